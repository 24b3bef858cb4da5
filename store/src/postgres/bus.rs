//! Wake-ups between processes, by LISTEN and NOTIFY.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Executor as _;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};

use super::error::connection_error;
use super::patience::within;
use super::pool::Pool;
use crate::error::{Result, StoreError};
use crate::wake::bus::Bus;

const CHANNEL: &str = "tributary";
pub(super) struct Notifications {
    pub(super) pool: Arc<Pool>,
    /// Options of a separate connection that carries only notifications.
    pub(super) options: PgConnectOptions,
}

#[async_trait]
impl Bus for Notifications {
    async fn send(&self, messages: Vec<String>) -> Result<()> {
        // Outside of other transactions: NOTIFY takes a server-wide lock until its commit.
        let notify = sqlx::query("SELECT pg_notify($1, message) FROM unnest($2::text[]) AS message");
        let notify = notify.bind(CHANNEL).bind(messages);
        self.pool.with(async move |connection| connection.execute(notify).await.map(drop)).await
    }

    async fn listen(&self, heard: &mut (dyn for<'m> FnMut(Option<&'m str>) + Send)) -> Result<()> {
        let wait = self.pool.patience.answer;
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(self.options.clone());
        let mut listener = within(wait, PgListener::connect_with(&pool)).await?.map_err(connection_error)?;
        within(wait, listener.execute(self.pool.patience.settings())).await?.map_err(connection_error)?;
        within(wait, listener.listen(CHANNEL)).await?.map_err(connection_error)?;
        heard(None);
        loop {
            // After this time without a notification the server is pinged, with the same timeout.
            match tokio::time::timeout(wait, listener.try_recv()).await {
                Ok(Ok(Some(notification))) => heard(Some(notification.payload())),
                Ok(Ok(None)) => return Err(StoreError::Unreachable("the connection for wake-ups was lost".to_owned())),
                Ok(Err(error)) => return Err(connection_error(error)),
                Err(_) => within(wait, listener.execute("SELECT 1")).await?.map(drop).map_err(connection_error)?,
            }
        }
    }
}
