//! The options of apps in other languages: as in docs/OPTIONS.md, Kotlin and Swift.

use std::collections::BTreeSet;

use client_sdk::runner::Options;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/OPTIONS.md");
/// Each option once; what the tests in other languages compare their packages with.
const EACH: &str = include_str!("../../../ffi/tests/options.json");
const KOTLIN: [&str; 2] = [
    include_str!("../../../kotlin/src/common/org/tributary/ParticipantOptions.kt"),
    include_str!("../../../kotlin/src/common/org/tributary/Policies.kt"),
];
const SWIFT: [&str; 2] = [
    include_str!("../../../swift/Sources/Tributary/ParticipantOptions.swift"),
    include_str!("../../../swift/Sources/Tributary/Policies.swift"),
];

/// The objects in the options whose keys are options.
const OBJECTS: [&[&str]; 5] =
    [&[], &["secure_aggregation"], &["privacy"], &["privacy", "lifetime"], &["device_conditions"]];

/// The keys of an object in the options, as they are named when another is refused.
fn keys(object: &[&str]) -> Vec<String> {
    let another = object.iter().rev().fold(r#"{"?": 0}"#.to_owned(), |inner, key| format!(r#"{{"{key}": {inner}}}"#));
    let refused = serde_json::from_str::<Options>(&another).err().unwrap().to_string();
    let (_, expected) = refused.split_once("expected").unwrap();
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The keys of all objects, without the objects' names, sorted.
fn all_keys() -> Vec<String> {
    let mut all: Vec<_> = OBJECTS.iter().flat_map(|object| keys(object)).collect();
    all.sort();
    all
}

#[test]
fn the_page_has_a_row_for_each_option_and_no_other() {
    let mut known = BTreeSet::new();
    for object in OBJECTS {
        known.extend(keys(object).iter().map(|key| [object, &[key.as_str()]].concat().join(".")));
    }
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let told: Vec<_> = rows.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(told.iter().cloned().collect::<BTreeSet<_>>(), known);
    assert_eq!(told.len(), known.len(), "one row for each");
}

#[test]
fn what_other_languages_are_compared_with_has_each_option_and_can_be_read() {
    assert_eq!(serde_json::from_str::<Options>(EACH).err().map(|error| error.to_string()), None);
    let each: Value = serde_json::from_str(EACH).unwrap();
    for object in OBJECTS {
        let found = object.iter().fold(&each, |outer, key| &outer[*key]).as_object().unwrap();
        let found: BTreeSet<_> = found.keys().cloned().collect();
        assert_eq!(found, BTreeSet::from_iter(keys(object)), "{object:?}");
    }
}

#[test]
fn kotlin_writes_each_option_and_no_other() {
    let lines = KOTLIN.iter().flat_map(|source| source.lines());
    let fields = lines.filter_map(|line| line.trim_start().strip_prefix('"')?.split_once("\" to "));
    let mut written: Vec<_> = fields.map(|(name, _)| name.to_owned()).collect();
    written.sort();
    assert_eq!(written, all_keys());
}

#[test]
fn swift_writes_each_option_and_no_other() {
    let mut written: Vec<_> = SWIFT.iter().flat_map(|source| coding_keys(source)).map(|(_, name)| name).collect();
    written.sort();
    assert_eq!(written, all_keys());
    let [options, _] = SWIFT;
    for (key, _) in coding_keys(options) {
        assert!(options.contains(&format!("forKey: .{key})")), "{key} is not encoded");
    }
}

/// What the structures of a source in Swift encode: each key, and its name in JSON.
fn coding_keys(source: &str) -> Vec<(String, String)> {
    let enums = source.split(": String, CodingKey {").skip(1).filter_map(|rest| rest.split('}').next());
    let cases = enums.flat_map(str::lines).filter_map(|line| line.trim_start().strip_prefix("case "));
    cases
        .flat_map(|line| line.split(", "))
        .map(|case| {
            let (key, name) = case.split_once(" = ").unwrap_or((case, case));
            (key.to_owned(), name.trim_matches('"').to_owned())
        })
        .collect()
}
