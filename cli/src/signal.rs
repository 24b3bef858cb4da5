//! Signals to end the process: ctrl-c and SIGTERM.

/// Completes at the first of them that comes after this call, also if that is before it is awaited. If the process
/// cannot listen for signals, it stays pending, and the system's default applies.
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

/// Hang-ups (SIGHUP), which do not end the process from this call on.
#[cfg(unix)]
pub(crate) fn hangups() -> Hangups {
    Hangups(tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok())
}

/// See [`hangups`].
#[cfg(unix)]
pub(crate) struct Hangups(Option<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Hangups {
    /// Waits for another hang-up. Stays pending if the process cannot listen for them.
    pub(crate) async fn next(&mut self) -> bool {
        match &mut self.0 {
            Some(signals) => signals.recv().await.is_some(),
            None => std::future::pending().await,
        }
    }
}

/// Hang-ups, which this system lacks.
#[cfg(not(unix))]
pub(crate) fn hangups() -> Hangups {
    Hangups
}

/// See [`hangups`].
#[cfg(not(unix))]
pub(crate) struct Hangups;

#[cfg(not(unix))]
impl Hangups {
    /// Stays pending.
    pub(crate) async fn next(&mut self) -> bool {
        std::future::pending().await
    }
}
