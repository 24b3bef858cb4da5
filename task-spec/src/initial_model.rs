//! A task's given initial model.

use std::fmt;

use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Digest;

/// Prefix of a digest where a file could be named.
const SHA256: &str = "sha256:";

/// A given initial model, instead of values drawn from a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitialModel {
    /// Path of a safetensors file, relative to the task file. `tributary task create` uploads the file and writes its digest in
    /// this place.
    File(String),
    /// SHA-256 of an uploaded safetensors file. A coordinator stores every task with this form.
    Stored(Digest),
    /// A model version of the same coordinator, which replaces it by the version's digest.
    Version(VersionOfTask),
}

/// A model version of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionOfTask {
    /// Name or id of the task.
    pub task: String,
    /// Number of the version. Default: the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}

impl fmt::Display for InitialModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Stored(digest) => write!(f, "{SHA256}{digest}"),
            Self::Version(VersionOfTask { task, version: Some(version) }) => write!(f, "version {version} of {task}"),
            Self::Version(VersionOfTask { task, version: None }) => write!(f, "the newest version of {task}"),
        }
    }
}

impl Serialize for InitialModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(_) | Self::Stored(_) => serializer.collect_str(self),
            Self::Version(version) => version.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for InitialModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Forms)
    }
}

/// Reads a string or a table.
struct Forms;

impl<'de> Visitor<'de> for Forms {
    type Value = InitialModel;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the path of a safetensors file, `sha256:` and 64 hexadecimal digits, or { task = \"…\", version = N }",
        )
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<InitialModel, E> {
        match text.strip_prefix(SHA256) {
            Some(digest) => digest.parse().map(InitialModel::Stored).map_err(E::custom),
            None if text.is_empty() => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
            None => Ok(InitialModel::File(text.to_owned())),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<InitialModel, A::Error> {
        VersionOfTask::deserialize(MapAccessDeserializer::new(map)).map(InitialModel::Version)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_form_reads_what_it_writes() {
        let digest = Digest([0xab; 32]);
        let version = |version| InitialModel::Version(VersionOfTask { task: "digits".to_owned(), version });
        for (form, written) in [
            (InitialModel::File("net.safetensors".to_owned()), json!("net.safetensors")),
            (InitialModel::Stored(digest), json!(format!("sha256:{digest}"))),
            (version(Some(12)), json!({ "task": "digits", "version": 12 })),
            (version(None), json!({ "task": "digits" })),
        ] {
            assert_eq!(serde_json::to_value(&form).unwrap(), written);
            assert_eq!(serde_json::from_value::<InitialModel>(written).unwrap(), form);
        }
    }

    #[test]
    fn another_form_is_rejected_with_the_possible_ones() {
        let refused = |value: Value| serde_json::from_value::<InitialModel>(value).unwrap_err().to_string();
        assert!(refused(json!(7)).contains("or { task = "), "{}", refused(json!(7)));
        assert!(refused(json!("")).contains("safetensors"), "{}", refused(json!("")));
        assert_eq!(refused(json!("sha256:ab")), "a SHA-256 digest is written as 64 hexadecimal digits");
        assert!(refused(json!({ "task": "a", "round": 1 })).contains("unknown field `round`"));
        assert!(refused(json!({ "version": 1 })).contains("missing field `task`"));
    }
}
