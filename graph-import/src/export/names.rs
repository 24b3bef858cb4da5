//! Names of a node's values in an ONNX file.

/// Names of a node's inputs and of its first result.
pub(super) struct Names {
    pub(super) inputs: Vec<String>,
    pub(super) output: String,
}

impl Names {
    /// The names of all inputs.
    pub(super) fn all(&self) -> Vec<&str> {
        self.inputs.iter().map(String::as_str).collect()
    }

    /// The name of an input; empty, which is an input that is left out, if there is none.
    pub(super) fn input(&self, position: usize) -> &str {
        self.inputs.get(position).map_or("", String::as_str)
    }
}
