//! What the people and machines that run the service ask: is it up, can it serve, what does it measure.

use std::sync::Arc;

use axum::extract::State;

use super::app::App;
use super::authenticate::Anybody;
use super::problem::{Error, Result};

/// `GET /healthz`. The one answer without a limit: it costs nothing, and whoever is asked too often must not look dead.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`.
pub(super) async fn readyz(_: Anybody, State(app): State<Arc<App>>) -> Result<&'static str> {
    if app.shutdown.is_cancelled() {
        return Err(Error::ShuttingDown);
    }
    crate::observe::health::check(&app.store, app.now()).await?;
    Ok("ready\n")
}

/// `GET /metrics`.
pub(super) async fn metrics(_: Anybody, State(app): State<Arc<App>>) -> String {
    // Folds what histograms gathered, which would grow otherwise.
    app.metrics.run_upkeep();
    app.metrics.render()
}
