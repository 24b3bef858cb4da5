//! `tributary audit verify --recursive`: the record of a version, and the records below it, level by level.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Serialize;
use wire::audit::AuditKey;
use wire::provenance::{Provenance, SpentSoFar};
use wire::{Digest, TaskId};

use crate::command::model::read_signed;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, number};

/// Maximum number of levels below the first record.
const MAX_LEVELS: usize = 16;

/// Records below, by their digests.
type Records = HashMap<Digest, (PathBuf, Provenance)>;

/// The verdict about a complete chain.
#[derive(Serialize)]
struct Verdict {
    task: TaskId,
    version: u32,
    key: AuditKey,
    /// Whether the expected signing key was given.
    key_was_given: bool,
    /// What the first record states about its task's privacy cost.
    privacy: Option<SpentSoFar>,
    /// Number of levels below the first record.
    levels: usize,
    below: Vec<Below>,
}

/// A record below that is intact.
#[derive(Serialize)]
struct Below {
    path: PathBuf,
    task: TaskId,
    version: u32,
    key: AuditKey,
    /// What the record states about its task's privacy cost.
    privacy: Option<SpentSoFar>,
}

/// Verifies the record in `file` and all records below it, which are among `below`: files, or folders of files.
///
/// # Errors
/// [`Exit::Damaged`] if a record is damaged or missing, or no record names it.
pub(super) fn verify(file: &Path, below: &[PathBuf], key: Option<AuditKey>, output: Output) -> Outcome {
    let damaged = |problem: String| Failure::new(Exit::Damaged, format!("{}: {problem}", file.display()));
    let signed = read_signed(file)?;
    let top = signed.open().map_err(|error| damaged(format!("the record: {error}")))?;
    if let Some(key) = key.filter(|key| *key != top.coordinator) {
        return Err(damaged(format!("the record is signed by the key {}, not by {key}", top.coordinator)));
    }
    let (mut records, mut problems) = read_all(below)?;
    // The first record may be in a folder of records, too.
    records.remove(&signed.sha256());
    let levels = walk(file, &top, &records, &mut problems);
    if !problems.is_empty() {
        problems.sort_unstable();
        return Err(Failure::new(Exit::Damaged, problems.join("; ")));
    }
    let mut below: Vec<_> = records.into_values().map(|(path, record)| Below::new(path, &record)).collect();
    below.sort_by(|one, next| one.path.cmp(&next.path));
    let Provenance { task, version, coordinator, privacy, .. } = top;
    let verdict = Verdict { task, version, key: coordinator, key_was_given: key.is_some(), privacy, levels, below };
    output.answer(&verdict, || told(&verdict));
    Ok(())
}

fn told(verdict: &Verdict) -> String {
    let Verdict { task, version, key, privacy, below, levels, .. } = verdict;
    let cost = cost(privacy.as_ref());
    let mut lines = vec![format!("The record of version {version} of task {task} is intact, signed by {key}{cost}.")];
    lines.extend(below.iter().map(|Below { path, task, version, key, privacy }| {
        format!("{}: version {version} of task {task}, signed by {key}{}", path.display(), self::cost(privacy.as_ref()))
    }));
    lines.push(format!("{} records on {levels} levels below it are intact.", number(below.len() as u64)));
    lines.push("Compare each key with the one that you know.".to_owned());
    lines.join("\n")
}

/// The privacy cost that a record states, as the end of its line.
fn cost(privacy: Option<&SpentSoFar>) -> String {
    let told = |SpentSoFar { epsilon, delta }: &SpentSoFar| format!(", epsilon {epsilon:.3} at delta {delta:e}");
    privacy.map(told).unwrap_or_default()
}

impl Below {
    fn new(path: PathBuf, record: &Provenance) -> Self {
        Self { path, task: record.task, version: record.version, key: record.coordinator, privacy: record.privacy }
    }
}

/// The intact records in files and folders, and what is wrong with the other files.
fn read_all(paths: &[PathBuf]) -> Outcome<(Records, Vec<String>)> {
    let (mut records, mut problems) = (Records::new(), Vec::new());
    for path in paths {
        for file in files(path)? {
            let opened = read_signed(&file).map_err(|failure| failure.detail).and_then(|signed| {
                let record = signed.open().map_err(|error| format!("the record in {}: {error}", file.display()))?;
                Ok((signed.sha256(), record))
            });
            match opened {
                Ok((sha256, record)) => drop(records.insert(sha256, (file, record))),
                Err(problem) => problems.push(format!("damaged: {problem}")),
            }
        }
    }
    Ok((records, problems))
}

/// The file, or the files in the folder.
fn files(path: &Path) -> Outcome<Vec<PathBuf>> {
    let cannot = || Failure::because(Exit::Data, format!("cannot read {}", path.display()));
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(cannot())? {
        let file = entry.map_err(cannot())?.path();
        if file.is_file() {
            files.push(file);
        }
    }
    Ok(files)
}

/// Follows the digests from the first record, and adds what is missing or unknown. Returns the number of levels below it.
fn walk(file: &Path, top: &Provenance, records: &Records, problems: &mut Vec<String>) -> usize {
    let (mut reached, mut levels) = (HashSet::new(), 0);
    let mut level = vec![(file, top)];
    loop {
        let mut next = Vec::new();
        for (path, record) in level {
            for digest in &record.below {
                match records.get(digest) {
                    Some((path, record)) if reached.insert(*digest) => next.push((path.as_path(), record)),
                    Some(_) => {}
                    None => problems.push(format!("missing: the record {digest}, which {} names", path.display())),
                }
            }
        }
        if next.is_empty() {
            break;
        }
        if levels == MAX_LEVELS {
            problems.push(format!("there are more than {MAX_LEVELS} levels"));
            return levels;
        }
        (level, levels) = (next, levels + 1);
    }
    let unknown = records.iter().filter(|(digest, _)| !reached.contains(*digest));
    problems.extend(unknown.map(|(_, (path, _))| format!("unknown: no record above names {}", path.display())));
    levels
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(version: u32, below: &[Digest]) -> Provenance {
        serde_json::from_value(json!({
            "format": 1, "coordinator": "ab".repeat(32), "task": "00000000-0000-0000-0000-000000000001",
            "task_sha256": "00".repeat(32), "version": version, "sha256": "00".repeat(32), "bytes": 1, "origin": "trained",
            "base": null, "round": null, "roster": null, "updates": 1, "below": below, "privacy": null, "published_at": 0,
            "signed_at": 0, "program": "a test",
        }))
        .unwrap()
    }

    fn sha256(n: usize) -> Digest {
        Digest([u8::try_from(n).unwrap(); 32])
    }

    /// Each record names the next one.
    fn line(length: usize) -> Records {
        let named = |n| if n + 1 < length { vec![sha256(n + 1)] } else { Vec::new() };
        (0..length).map(|n| (sha256(n), (PathBuf::from(format!("{n}.json")), record(1, &named(n))))).collect()
    }

    fn walked(top: &[Digest], records: &Records) -> (usize, Vec<String>) {
        let mut problems = Vec::new();
        let levels = walk(Path::new("top.json"), &record(2, top), records, &mut problems);
        problems.sort_unstable();
        (levels, problems)
    }

    #[test]
    fn all_levels_are_followed_up_to_a_limit() {
        assert_eq!(walked(&[], &Records::new()), (0, Vec::new()));
        assert_eq!(walked(&[sha256(0)], &line(MAX_LEVELS)), (MAX_LEVELS, Vec::new()));
        let (levels, problems) = walked(&[sha256(0)], &line(MAX_LEVELS + 1));
        assert_eq!((levels, &problems[..]), (MAX_LEVELS, &["there are more than 16 levels".to_owned()][..]));
    }

    #[test]
    fn missing_and_unknown_records_are_named() {
        let mut records = line(3);
        records.remove(&sha256(1));
        let missing = format!("missing: the record {}, which 0.json names", sha256(1));
        let expected = vec![missing, "unknown: no record above names 2.json".to_owned()];
        assert_eq!(walked(&[sha256(0), sha256(0)], &records), (1, expected));
    }
}
