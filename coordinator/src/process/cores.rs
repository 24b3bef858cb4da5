//! Prevents core dumps, which would contain `seal.key`, the authority's key and tokens in plain text.

/// Disables core dumps of this process, and protects its memory from other processes of its user.
#[cfg(unix)]
pub fn forbid_core_dumps() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // A soft limit alone could be raised again. Core handlers, such as systemd's, ignore limits.
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        tracing::warn!(%error, "core dumps cannot be limited, and would hold keys: {error}");
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "core dumps cannot be forbidden, and would hold keys: {error}");
    }
}

/// Empty: only Unix has cores.
#[cfg(not(unix))]
pub fn forbid_core_dumps() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};

    use super::*;

    #[test]
    fn forbidden_core_dumps_stay_forbidden() {
        forbid_core_dumps();
        let limit = getrlimit(Resource::Core);
        assert_eq!((limit.current, limit.maximum), (Some(0), Some(0)));
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    }
}
