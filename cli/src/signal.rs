//! Signals to end the process: ctrl-c and SIGTERM.

/// Completes at the first of them that comes after this call, also if that is before it is awaited. Where signals cannot
/// be listened for it never does, and the system's default applies.
#[cfg(unix)]
pub(crate) fn shutdown() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| {
        let listening = signal(kind);
        async move {
            match listening {
                Ok(mut signals) => {
                    signals.recv().await;
                }
                Err(_) => std::future::pending().await,
            }
        }
    };
    let (interrupt, terminate) = (listen(SignalKind::interrupt()), listen(SignalKind::terminate()));
    async move {
        tokio::select! {
            () = interrupt => {}
            () = terminate => {}
        }
    }
}

/// Completes at the first ctrl-c that comes after it is first polled.
#[cfg(not(unix))]
pub(crate) async fn shutdown() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
