//! A withdrawal for callers without a tokio runtime.

use std::panic::resume_unwind;

use wire::contributions::SignedContributions;

use crate::participant::{BuildError, Builder, WithdrawalError};

/// [`Builder::withdraw`], on a thread of its own: blocks for at most some minutes, usually less than a second.
///
/// # Errors
/// [`WithdrawalError`], also if the thread cannot be started ([`BuildError::Thread`]).
pub fn withdraw(builder: Builder) -> Result<SignedContributions, WithdrawalError> {
    let no_thread = |error: std::io::Error| BuildError::Thread(error.to_string());
    // The caller's thread may already have a runtime, in which a second one cannot block.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("tributary-withdrawal".to_owned());
        let work = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
            runtime.block_on(builder.withdraw())
        };
        let thread = thread.spawn_scoped(scope, work).map_err(no_thread)?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
