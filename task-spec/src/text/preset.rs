//! Built-in tasks, for first experiments without a file.

/// A built-in task to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// Keys of a task as TOML, with a `description`. It has no name, no model and no cohort.
    pub toml: &'static str,
}

macro_rules! presets {
    ($($name:literal),+) => {
        /// Every preset, by name.
        pub const PRESETS: &[Preset] =
            &[$(Preset { name: $name, toml: include_str!(concat!("../../presets/", $name, ".toml")) }),+];
    };
}

presets!("asynchronous", "compressed", "heterogeneous", "personalized", "private", "robust");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_says_what_it_is_for_and_leaves_the_model_to_its_user() {
        for Preset { name, toml } in PRESETS {
            let table: toml::Table = toml::from_str(toml).unwrap();
            assert!(table["description"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
            assert!(!table.contains_key("name") && !table.contains_key("model"), "{name}");
        }
        assert!(PRESETS.is_sorted_by_key(|preset| preset.name));
    }
}
