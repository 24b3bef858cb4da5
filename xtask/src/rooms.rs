//! Limits the number of source files per folder, except for lists of like things.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum number of `.rs` files in a folder, without `mod.rs`, `lib.rs` and `main.rs`.
const FILES_MAX: usize = 12;

/// Folders with one file per thing of a kind: (folder, kind).
const LISTS: &[(&str, &str)] = &[
    ("aggregation/src/cpu", "one kernel per file and instruction set"),
    ("cli/src/command", "one command per file"),
    ("coordinator/src/http/admin", "one group of endpoints per file"),
    ("coordinator/src/http/inspect", "one group of endpoints per file"),
    ("fuzz/src/targets", "one fuzz target per file"),
    ("graph-import/src/lower", "one family of operators per file"),
    ("store/src/conformance", "one entity per file"),
    ("store/src/entity", "one entity per file"),
    ("task-spec/src/check", "one section of a task per file"),
];

/// Exceptions: (folder, number of files). The numbers only shrink.
const CROWDED: &[(&str, usize)] = &[
    ("cli/src", 13),
    ("cli/src/command/demo", 14),
    ("client-sdk/ffi/src/c", 14),
    ("faults/src", 18),
    ("federation/src", 15),
    ("simulation/src", 14),
];

/// Checks the number of files in each folder of sources.
pub(crate) fn check(files: &[PathBuf], wrong: &mut Vec<String>) {
    check_against(files, LISTS, CROWDED, wrong);
}

fn check_against(files: &[PathBuf], lists: &[(&str, &str)], crowded: &[(&str, usize)], wrong: &mut Vec<String>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for folder in files.iter().filter_map(|file| folder(file)) {
        *counts.entry(folder).or_default() += 1;
    }
    for (folder, count) in &counts {
        let is_list = lists.iter().any(|(list, _)| list == folder);
        let is_crowded = crowded.iter().any(|(listed, _)| listed == folder);
        if *count > FILES_MAX && !is_list && !is_crowded {
            wrong.push(format!("{folder}: {count} loose .rs files; at most {FILES_MAX}: move some into a folder"));
        }
    }
    let count = |folder: &str| counts.get(folder).copied().unwrap_or(0);
    for (list, _) in lists.iter().filter(|(list, _)| count(list) <= FILES_MAX) {
        wrong.push(format!("{list} has {} files: take it off LISTS (xtask/src/rooms.rs)", count(list)));
    }
    for (folder, noted) in crowded {
        let count = count(folder);
        if count > *noted {
            wrong.push(format!("{folder}: {count} loose .rs files, {noted} are noted: move some into a folder"));
        } else if count <= FILES_MAX {
            wrong.push(format!("{folder} has {count} files: take it off CROWDED (xtask/src/rooms.rs)"));
        } else if count < *noted {
            wrong.push(format!("{folder} has {count} files: note {count} in CROWDED (xtask/src/rooms.rs)"));
        }
    }
}

/// The folder of a loose source file; `None` for roots of crates and modules, and for files outside `src`.
fn folder(file: &Path) -> Option<&str> {
    let is_root = ["mod.rs", "lib.rs", "main.rs"].iter().any(|root| file.ends_with(root));
    let folder = file.parent()?;
    let is_source = file.extension().is_some_and(|ext| ext == "rs") && folder.iter().any(|part| part == "src");
    if is_source && !is_root { folder.to_str() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The complaints about `count` files in `a/src/b` among files that are exempt.
    fn complaints(count: usize, lists: &[(&str, &str)], crowded: &[(&str, usize)]) -> Vec<String> {
        let loose = (0..count).map(|number| format!("a/src/b/file_{number}.rs"));
        let others = ["a/src/lib.rs", "a/src/b/mod.rs", "a/src/b/c/file.rs", "a/src/b/table.txt"];
        let tests = (0..20).map(|number| format!("a/tests/b/file_{number}.rs"));
        let files: Vec<PathBuf> = loose.chain(others.map(str::to_owned)).chain(tests).map(PathBuf::from).collect();
        let mut wrong = Vec::new();
        check_against(&files, lists, crowded, &mut wrong);
        wrong
    }

    #[test]
    fn folder_of_sources_rejects_thirteen_files() {
        assert_eq!(complaints(12, &[], &[]), [""; 0]);
        assert_eq!(complaints(13, &[], &[]), ["a/src/b: 13 loose .rs files; at most 12: move some into a folder"]);
    }

    #[test]
    fn list_of_like_things_may_be_long_and_must_be() {
        let lists = [("a/src/b", "one file per thing")];
        assert_eq!(complaints(40, &lists, &[]), [""; 0]);
        assert_eq!(complaints(12, &lists, &[]), ["a/src/b has 12 files: take it off LISTS (xtask/src/rooms.rs)"]);
    }

    #[test]
    fn noted_number_only_shrinks() {
        let noted = [("a/src/b", 20)];
        let wrong = |count| complaints(count, &[], &noted);
        assert_eq!(wrong(20), [""; 0]);
        assert_eq!(wrong(21), ["a/src/b: 21 loose .rs files, 20 are noted: move some into a folder"]);
        assert_eq!(wrong(19), ["a/src/b has 19 files: note 19 in CROWDED (xtask/src/rooms.rs)"]);
        assert_eq!(wrong(12), ["a/src/b has 12 files: take it off CROWDED (xtask/src/rooms.rs)"]);
    }
}
