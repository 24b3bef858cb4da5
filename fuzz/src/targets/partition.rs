//! Patterns dividing a model into shared and local tensors.

use std::sync::Arc;

use learning::parameters::{Layout, TensorSpec};
use learning::partition::Patterns;

/// One input: patterns and tensor names, one per line, separated by an empty line; the last characters of a name give
/// its shape.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((patterns, names)) = text.split_once("\n\n") else { return };
    let Ok(patterns) = Patterns::new(patterns.lines().map(str::to_owned).collect()) else { return };
    let tensor = |name: &str| TensorSpec { name: name.into(), shape: vec![1 + name.len() as u64 % 3] };
    let Ok(layout) = Layout::new(names.lines().map(tensor).collect()) else { return };
    let layout = Arc::new(layout);
    if let Ok(partition) = layout.partition(&patterns) {
        let (shared, personal) = (partition.shared(), partition.personal());
        assert_eq!(shared.len() + personal.len(), layout.len(), "every tensor is in one part");
        assert!(!shared.tensors().is_empty());
        assert!(personal.tensors().iter().all(|tensor| patterns.matches(&tensor.name)));
        assert!(shared.tensors().iter().all(|tensor| !patterns.matches(&tensor.name)));
    }
}

/// Patterns of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "head.*\n\nbody.weight\nbody.bias\nhead.weight\nhead.bias",
        "*.bias\nblock?.norm*\n\nblock1.norm.weight\nblock1.fc.bias\nblock2.fc.weight",
        "**a**b**a**\n\naaaaaaaabaaaaaaaa\nab\nba",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
