//! Names of nodes, for messages.

/// Most bytes of a name that is kept.
const MAX_LABEL: usize = 256;

/// Nodes that read a parameter.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// In the order of the file.
    pub(crate) names: Vec<String>,
    has_slices: bool,
}

impl Readers {
    /// Adds a node; the same node several times counts once.
    pub(crate) fn add(&mut self, name: String) {
        // Nodes are visited one after the other.
        if self.names.last() != Some(&name) {
            self.names.push(name);
        }
    }

    /// Adds one of several nodes that take parts of the parameter, which count once.
    pub(crate) fn add_slice(&mut self) {
        if !self.has_slices {
            self.has_slices = true;
            self.names.push("slices".to_owned());
        }
    }
}

/// The start of a name for messages, without control characters.
pub(super) fn label(name: &str) -> String {
    let mut label: String = name.chars().take(MAX_LABEL).filter(|letter| !letter.is_control()).collect();
    label.truncate(label.floor_char_boundary(MAX_LABEL));
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_short_and_printable() {
        assert_eq!(label("a\u{1b}[31m\nb"), "a[31mb");
        assert_eq!(label(&"ä".repeat(200)).len(), 256);
    }

    #[test]
    fn readers_count_each_node_once() {
        let mut readers = Readers::default();
        readers.add_slice();
        readers.add("node 1".to_owned());
        readers.add("node 1".to_owned());
        readers.add_slice();
        readers.add("node 2".to_owned());
        assert_eq!(readers.names, ["slices", "node 1", "node 2"]);
    }
}
