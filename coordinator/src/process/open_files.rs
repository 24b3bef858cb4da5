//! The limit on open files, and the number of connections it allows.

use listener::ConnectionLimits;

/// Files besides connections and uploads: database, logs, reads of models, libraries.
const ELSEWHERE: usize = 96;
/// Minimum number of connections of each kind.
const LEAST: usize = 8;

/// Raises the limit on open files as far as allowed and returns it; `None` if unlimited.
#[cfg(unix)]
pub(crate) fn raise_limit() -> Option<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Some systems refuse a limit above their own, even if they report none.
    const PLENTY: u64 = 1 << 20;
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(PLENTY, |most| most.min(PLENTY));
    if limit.current.is_none_or(|now| now >= wanted) {
        return limit.current.map(saturate);
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }) {
        Ok(()) => Some(saturate(wanted)),
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files: {error}");
            limit.current.map(saturate)
        }
    }
}

#[cfg(not(unix))]
pub(crate) fn raise_limit() -> Option<usize> {
    None
}

#[cfg(unix)]
fn saturate(files: u64) -> usize {
    usize::try_from(files).unwrap_or(usize::MAX)
}

/// The `wanted` number of connections of each kind, reduced to the limit on open files. A participant may use two files: its connection,
/// and its upload.
pub(crate) fn fit(wanted: ConnectionLimits, files: Option<usize>) -> ConnectionLimits {
    let Some(files) = files else { return wanted };
    let rest = |connection_limits: &ConnectionLimits| {
        connection_limits.arriving + connection_limits.operators + connection_limits.strangers + ELSEWHERE
    };
    let mut connection_limits = wanted;
    if rest(&connection_limits).saturating_add(connection_limits.members.saturating_mul(2)) <= files {
        return connection_limits;
    }
    // At most an eighth of the files for each of these, so that participants keep the larger part.
    let eighth = (files / 8).max(LEAST);
    connection_limits.arriving = connection_limits.arriving.min(eighth);
    connection_limits.operators = connection_limits.operators.min(eighth);
    connection_limits.strangers = connection_limits.strangers.min(eighth);
    connection_limits.each_address = connection_limits.each_address.min(connection_limits.strangers);
    connection_limits.members =
        connection_limits.members.min((files.saturating_sub(rest(&connection_limits)) / 2).max(LEAST));
    tracing::warn!(
        files,
        participants = connection_limits.members,
        strangers = connection_limits.strangers,
        "only {files} files may be open: at most {} connections of participants and {} of strangers are held at once, not {} \
         and {}; raise the hard limit of open files (ulimit -Hn, LimitNOFILE) or lower http.connections_max",
        connection_limits.members,
        connection_limits.strangers,
        wanted.members,
        wanted.strangers
    );
    connection_limits
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: ConnectionLimits = ConnectionLimits {
        arriving: 1024,
        operators: 256,
        members: 10_000,
        each_member: 16,
        strangers: 1000,
        each_address: 250,
    };

    fn all(connection_limits: ConnectionLimits) -> usize {
        connection_limits.arriving
            + connection_limits.operators
            + connection_limits.strangers
            + 2 * connection_limits.members
    }

    #[test]
    fn connections_fit_into_the_files_there_are() {
        assert_eq!(fit(WANTED, None), WANTED);
        assert_eq!(fit(WANTED, Some(30_000)), WANTED);
        for files in [512, 1024, 4096, 10_000] {
            let connection_limits = fit(WANTED, Some(files));
            assert!(all(connection_limits) + ELSEWHERE <= files, "{files}: {connection_limits:?}");
            assert!(connection_limits.members > files / 8, "{files}: {connection_limits:?}");
            assert!(connection_limits.each_address <= connection_limits.strangers);
        }
        // Too few files: a few connections of each kind, and rejections.
        assert_eq!(fit(WANTED, Some(64)).members, LEAST);
    }

    #[cfg(unix)]
    #[test]
    fn the_limit_is_as_high_as_it_may_be() {
        let first = raise_limit();
        assert_eq!(raise_limit(), first, "nothing is left to raise");
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert!(limit.current == limit.maximum || limit.current >= Some(1 << 20), "{limit:?}");
    }
}
