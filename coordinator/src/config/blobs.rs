//! `[blobs]`: where models and masked inputs are.

use serde::{Deserialize, Serialize};

use super::require::require;

/// Where models and masked inputs are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BlobsConfig {
    /// `file:FOLDER`, or `memory:` for blobs that vanish with the process.
    pub url: String,
}

impl Default for BlobsConfig {
    fn default() -> Self {
        Self { url: "file:tributary-data/blobs".to_owned() }
    }
}

impl BlobsConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let known = self.url == "memory:" || self.url.strip_prefix("file:").is_some_and(|path| !path.is_empty());
        require(problems, known, "blobs.url: this build knows `file:FOLDER` and `memory:`");
    }
}
