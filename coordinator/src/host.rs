//! The name of this machine.

/// The machine's host name, read from a file of the system; `None` where there is none. A process id alone does not tell apart processes
/// of two machines that share a folder or a database.
pub(crate) fn host() -> Option<String> {
    ["/proc/sys/kernel/hostname", "/etc/hostname"]
        .into_iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .map(|name| name.trim().to_owned())
        .find(|name| !name.is_empty())
}
