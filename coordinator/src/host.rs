//! The name of this machine.

/// The machine's name, where the system tells it in a file: folders and databases are shared between machines, numbers of processes
/// are not.
pub(crate) fn host() -> Option<String> {
    ["/proc/sys/kernel/hostname", "/etc/hostname"]
        .into_iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .map(|name| name.trim().to_owned())
        .find(|name| !name.is_empty())
}
