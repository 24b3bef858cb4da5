//! A process for background steps; it serves only health requests.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use listener::Entrance;
use tokio::task::JoinHandle;

use super::choice::HEALTH_CROWDS;
use super::parts::{Parts, StartError};
use super::{Coordinator, ended, listen};
use crate::config::Config;

/// A coordinator with background work but without requests.
pub struct Worker {
    health_address: Option<SocketAddr>,
    coordinator: Coordinator,
    health_served: Option<JoinHandle<()>>,
    worked: JoinHandle<()>,
}

impl Coordinator {
    /// Opens everything and works on rounds, independently of `work.enabled`; listens only for health checks, if configured.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn work(config: &Config, parts: Parts) -> BoxFuture<'_, Result<Worker, StartError>> {
        Box::pin(async move {
            crate::process::open_files::raise_limit();
            let coordinator = Self::begin(config, parts).await?;
            let (health_served, health_address) = coordinator.serve_health(config).await?.unzip();
            let worked = coordinator.run_engine();
            tracing::info!("working on rounds");
            Ok(Worker { health_address, coordinator, health_served, worked })
        })
    }

    /// Answers health checks until the end: they observe the completion of running work.
    pub(super) async fn serve_health(
        &self,
        config: &Config,
    ) -> Result<Option<(JoinHandle<()>, SocketAddr)>, StartError> {
        let Some(wanted) = config.http.health_listen else { return Ok(None) };
        let (listener, address) = listen(config, wanted, Entrance::Health, HEALTH_CROWDS).await?;
        let router = crate::http::health_router(Arc::clone(&self.app));
        let served = tokio::spawn(listener.serve(Arc::clone(&self.app), router, self.stopped.clone()));
        Ok(Some((served, address)))
    }

    pub(super) fn run_engine(&self) -> JoinHandle<()> {
        let (engine, stopping) = (self.engine.clone(), self.stopping.clone());
        tokio::spawn(async move { engine.run(stopping).await })
    }
}

impl Worker {
    /// Address of the plain-text health listener, if configured.
    #[must_use]
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.health_address
    }

    /// Waits for running steps.
    pub fn shutdown(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            tracing::info!("shutting down");
            self.coordinator.stopping.cancel();
            ended("background work", Some(self.worked)).await;
            self.coordinator.stop().await;
            ended("the listener for health", self.health_served).await;
        })
    }
}
