//! Selects the steps of `.ci/run` by the paths changed since the commit of the last full run.
//!
//! `.ci/last-full` records that commit and the steps that the run skipped. A step runs if one of its paths has changed, or if the last
//! full run skipped it. All steps run if the selection may be incomplete: `CI_FULL=1`, no usable record, a full run older than a week, a
//! change to a dependency of every step, or a path outside all packages and steps.

mod choice;
mod packages;
pub(crate) mod rustdoc;
mod steps;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use cargo_metadata::MetadataCommand;

use choice::{Choice, Since};
use packages::Packages;

/// The file that records the commit of the last full run, and the steps that it skipped.
const RECORD: &str = ".ci/last-full";
/// The file with the versions of all dependencies.
const LOCK: &str = "Cargo.lock";
/// The longest time between two full runs.
const WEEK_S: u64 = 7 * 24 * 3600;

/// Prints a line for each step: its name, `run` or `skip`, and the reason, separated by tabs. Lines named `tests:PACKAGE` do the same for
/// the tests of a package.
pub(crate) fn run(full: bool) -> anyhow::Result<()> {
    let metadata = MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
    let root = metadata.workspace_root.as_std_path();
    let fuzz = MetadataCommand::new().manifest_path(root.join("fuzz/Cargo.toml")).no_deps().exec().context("fuzz")?;
    let packages = Packages::read(root, metadata.packages.iter().chain(&fuzz.packages))?;
    let since = if full { Since::Everything("CI_FULL is set".to_owned()) } else { since(root)? };
    for Choice { name, runs, reason } in choice::of(&packages, &since) {
        println!("{name}\t{}\t{reason}", if runs { "run" } else { "skip" });
    }
    Ok(())
}

/// The paths that changed since the recorded commit, in commits and in the working tree.
fn since(root: &Path) -> anyhow::Result<Since> {
    let record = std::fs::read_to_string(root.join(RECORD)).unwrap_or_default();
    let mut words = record.split_whitespace();
    let commit = words.next().unwrap_or_default();
    let skipped: Vec<String> = words.map(str::to_owned).collect();
    if let Some(name) = skipped.iter().find(|&name| !steps::TABLE.iter().any(|step| step.name == name)) {
        return Ok(Since::Everything(format!("{RECORD} names {name}, which is no step")));
    }
    if commit.len() != 40 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(Since::Everything(format!("{RECORD} names no commit")));
    }
    let Ok(full_run) = committed_s(root, commit) else {
        return Ok(Since::Everything(format!("this clone has no commit {commit}, which {RECORD} names")));
    };
    if git(root, &["merge-base", "--is-ancestor", commit, "HEAD"]).is_err() {
        return Ok(Since::Everything(format!("{commit}, which {RECORD} names, is not an ancestor of HEAD")));
    }
    if committed_s(root, "HEAD")?.saturating_sub(full_run) > WEEK_S {
        return Ok(Since::Everything("the last full run is more than a week old".to_owned()));
    }
    let mut changed = git(root, &["diff", "--name-only", "--no-renames", "-z", commit, "--"])?;
    changed.push_str(&git(root, &["ls-files", "--others", "--exclude-standard", "-z"])?);
    let lock = |text: &str| third_parties(text).map(str::to_owned).collect::<BTreeSet<_>>();
    let before = git(root, &["show", &format!("{commit}:{LOCK}")]).unwrap_or_default();
    let after = std::fs::read_to_string(root.join(LOCK)).unwrap_or_default();
    let is_ours = lock(&before) == lock(&after);
    let ignored = |path: &str| path.is_empty() || path == RECORD || path == LOCK && is_ours;
    let paths = changed.split('\0').filter(|path| !ignored(path));
    Ok(Since::Commit { commit: commit[..12].to_owned(), skipped, changed: paths.map(str::to_owned).collect() })
}

/// The entries of a lock file that come from a registry. The others are our packages, whose manifests change with them.
fn third_parties(lock: &str) -> impl Iterator<Item = &str> {
    lock.split("\n[[package]]\n").filter(|entry| entry.contains("\nsource = ")).map(str::trim)
}

/// The time of a commit, in seconds since 1970.
fn committed_s(root: &Path, commit: &str) -> anyhow::Result<u64> {
    let text = git(root, &["show", "--no-patch", "--format=%ct", commit])?;
    text.trim().parse().with_context(|| format!("the time of {commit}: {text}"))
}

/// The output of a git command.
fn git(root: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(args).current_dir(root).output().context("git")?;
    if !output.status.success() {
        bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("git prints UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with one commit.
    fn repository(name: &str) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("tributary-ci-{name}-{}", std::process::id()));
        std::fs::create_dir_all(root.join(".ci")).unwrap();
        git(&root, &["init", "--quiet"]).unwrap();
        commit(&root, "wire.rs", "2026-01-01T00:00:00Z");
        root
    }

    fn commit(root: &Path, file: &str, date: &str) -> String {
        std::fs::write(root.join(file), file).unwrap();
        git(root, &["add", file]).unwrap();
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let output = Command::new("git")
            .args(who)
            .args(["commit", "--quiet", "--message", file])
            .env("GIT_COMMITTER_DATE", date)
            .current_dir(root)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        git(root, &["rev-parse", "HEAD"]).unwrap().trim().to_owned()
    }

    fn record(root: &Path, text: &str) -> Since {
        std::fs::write(root.join(RECORD), text).unwrap();
        since(root).unwrap()
    }

    #[test]
    fn commits_and_the_working_tree_are_compared() {
        let root = repository("paths");
        let first = git(&root, &["rev-parse", "HEAD"]).unwrap();
        commit(&root, "committed.rs", "2026-01-02T00:00:00Z");
        std::fs::write(root.join("untracked.rs"), "").unwrap();
        std::fs::write(root.join("wire.rs"), "changed").unwrap();
        let Since::Commit { changed, .. } = record(&root, &first) else { panic!("the commit is here") };
        assert_eq!(changed, ["committed.rs", "wire.rs", "untracked.rs"]);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn lock_file_counts_if_a_third_party_has_changed() {
        let root = repository("lock");
        let ours = "[[package]]\nname = \"wire\"\ndependencies = [\n \"serde\",\n]\n";
        let theirs = "[[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nsource = \"registry\"\n";
        std::fs::write(root.join(LOCK), format!("version = 4\n\n{ours}\n{theirs}")).unwrap();
        git(&root, &["add", LOCK]).unwrap();
        let first = commit(&root, "committed.rs", "2026-01-02T00:00:00Z");
        let changed = |lock: &str| {
            std::fs::write(root.join(LOCK), lock).unwrap();
            let Since::Commit { changed, .. } = record(&root, &first) else { panic!("the commit is here") };
            changed
        };
        let new = ours.replace("serde", "anyhow");
        assert!(changed(&format!("version = 4\n\n{theirs}\n{new}")).is_empty());
        assert_eq!(changed(&format!("version = 4\n\n{ours}\n{}", theirs.replace("1.0.0", "1.0.1"))), [LOCK]);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn steps_that_the_full_run_skipped_are_read() {
        let root = repository("skipped");
        let first = git(&root, &["rev-parse", "HEAD"]).unwrap();
        let Since::Commit { skipped, .. } = record(&root, &format!("{first}miri\nsdks\n")) else {
            panic!("the commit is here")
        };
        assert_eq!(skipped, ["miri", "sdks"]);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn an_unusable_record_means_everything() {
        let root = repository("record");
        let first = git(&root, &["rev-parse", "HEAD"]).unwrap();
        let unknown_step = format!("{}\nmiri\nmirri\n", first.trim());
        for text in ["", "none\n", "0123456789012345678901234567890123456789\n", &unknown_step] {
            assert!(matches!(record(&root, text), Since::Everything(_)), "{text:?}");
        }
        let other = commit(&root, "other.rs", "2026-01-02T00:00:00Z");
        git(&root, &["reset", "--quiet", "--hard", first.trim()]).unwrap();
        let Since::Everything(reason) = record(&root, &other) else { panic!("not an ancestor") };
        assert!(reason.contains("not an ancestor"), "{reason}");
        commit(&root, "later.rs", "2026-01-08T00:00:01Z");
        let Since::Everything(reason) = record(&root, &first) else { panic!("older than a week") };
        assert!(reason.contains("more than a week"), "{reason}");
        std::fs::remove_dir_all(root).unwrap();
    }
}
