//! Makes a coordinator give memory back, and a simulation keep it. mimalloc keeps freed pages for a moment, for training, which
//! allocates the same buffers again at every step. A coordinator handles one update after the other on many threads, each of
//! which would keep one; a simulation hands buffers from thread to thread, and would be given the same pages again and again,
//! each time cleared by the system. mimalloc reads its options from the environment before `main`, so these commands start
//! themselves anew with them: same process, same streams, same arguments.

/// Options of mimalloc, each with its value.
pub(crate) type Options = &'static [(&'static str, &'static str)];

/// Options of mimalloc, unless the environment overrides them.
pub(crate) const GIVE_BACK: Options = &[("MIMALLOC_PURGE_DELAY", "0"), ("MIMALLOC_ARENA_EAGER_COMMIT", "0")];
/// Options that make the allocator keep freed memory.
pub(crate) const KEEP: Options = &[("MIMALLOC_PURGE_DELAY", "-1")];

/// Threads of a coordinator's runtime that may block, for statements that wait for the database: more would keep more
/// memory. A statement waits for its turn while all are busy. Files of blobs have threads of their own
/// (`store::with_files`).
pub(crate) const BLOCKING_THREADS: usize = 16;

/// Replaces this process by one with these options; returns if it is one, or if that cannot be done.
#[cfg(unix)]
pub(crate) fn start(options: Options) {
    use std::os::unix::process::CommandExt as _;

    let is_told = |name: &str| std::env::vars_os().any(|(told, _)| told == name);
    let missing: Vec<_> = options.iter().copied().filter(|(name, _)| !is_told(name)).collect();
    let Ok(program) = std::env::current_exe() else { return };
    if !missing.is_empty() {
        // Comes back only with an error; then it works as well, with more memory or more slowly.
        let _ = std::process::Command::new(program).args(std::env::args_os().skip(1)).envs(missing).exec();
    }
}

/// Elsewhere a process cannot be replaced.
#[cfg(not(unix))]
pub(crate) fn start(_: Options) {}
