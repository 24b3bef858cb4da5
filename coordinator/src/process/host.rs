//! The name of this machine.

/// The machine's host name, from a system file; `None` if unknown. It distinguishes machines with a common folder or database, unlike a
/// process id.
pub(crate) fn host() -> Option<String> {
    ["/proc/sys/kernel/hostname", "/etc/hostname"]
        .into_iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .map(|name| name.trim().to_owned())
        .find(|name| !name.is_empty())
}
