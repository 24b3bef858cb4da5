//! The house rules as a test: dependency edges, no cycles between modules, deliberate faults for tests alone, file lengths,
//! files per folder, used dependencies, module docs, tests at the path of the code under test, paired migrations, vendored
//! files, unowned notes, plain English.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::cycles;
use crate::edges::{Allowed, TABLE};
use crate::rooms;
use crate::test_targets;

/// Maximum number of lines of a source file.
const LINES_MAX: usize = 500;
/// Maximum number of lines of a test file.
const TEST_LINES_MAX: usize = 800;
/// Files above [`LINES_MAX`] that are still to be split. This list only shrinks.
const LONG: &[&str] = &[];
/// Crates with module cycles that are still to be cut. This list only shrinks.
const CYCLIC: &[&str] = &[];
/// Parts of a crate that must stay independent of each other: (crate, part, part).
const APART: &[(&str, &str, &str)] = &[("coordinator", "http", "work")];
/// Crates that still violate their row in [`APART`]. This list only shrinks.
const NOT_APART: &[&str] = &[];

/// Tests that mirror the folders of their sources: (tests, sources).
const MIRRORS: &[(&str, &str)] = &[
    ("coordinator/tests/connections", "coordinator/src/http"),
    ("coordinator/tests/listener", "listener/src"),
    ("coordinator/tests/routes", "coordinator/src/http"),
    ("coordinator/tests/work", "coordinator/src/work"),
    ("client-sdk/tests/sdk/participant", "client-sdk/src/participant"),
    ("client-sdk/tests/sdk/privacy", "client-sdk/src/privacy"),
    ("client-sdk/tests/sdk/transport", "client-sdk/src/transport"),
];

/// Where the dashboard's modules from elsewhere are.
const VENDORED: [&str; 2] = ["dashboard/vendor", "api-reference/vendor"];

/// One TLS stack (rustls with ring), so no OpenSSL builds. A second user of SQLite would tie its version to rusqlite's.
const BANNED: &[&str] = &["aws-lc-rs", "aws-lc-sys", "openssl", "openssl-sys", "native-tls", "sqlx-sqlite"];

/// A feature that deliberately breaks privacy guarantees. Only tests may enable it.
const FAULTY: &str = "deliberate-faults";

/// Runs all checks and lists every violation.
pub(crate) fn run() -> anyhow::Result<()> {
    let metadata = MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
    let root = metadata.workspace_root.as_std_path();
    let mut wrong = Vec::new();
    for package in metadata.workspace_packages() {
        match TABLE.iter().find(|allowed| allowed.package == package.name.as_str()) {
            Some(allowed) => check_edges(package, allowed, &mut wrong),
            None => wrong.push(format!("{} has no line in xtask/src/edges.rs", package.name)),
        }
        check_faulty(package, &mut wrong);
        check_modules(package, root, &mut wrong)?;
    }
    let files = tracked_files(root)?;
    for package in metadata.workspace_packages() {
        test_targets::check(package, root, &files, &mut wrong)?;
    }
    for file in files.iter().filter(|file| file.extension().is_some_and(|ext| ext == "rs")) {
        check_source(root, file, &mut wrong)?;
    }
    for gone in LONG.iter().filter(|name| !files.iter().any(|file| file == Path::new(name))) {
        wrong.push(format!("{gone} is gone: take it off LONG (xtask/src/tidy.rs)"));
    }
    for (tests, sources) in MIRRORS {
        check_mirrors(&files, tests, sources, &mut wrong);
    }
    rooms::check(&files, &mut wrong);
    let manifest = fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml")?;
    crate::dependencies::check(&manifest, &metadata.workspace_packages(), &mut wrong);
    check_migrations(root, &files, &mut wrong);
    check_vendored(root, &files, &mut wrong)?;
    check_banned(root, &mut wrong)?;
    crate::english::check(root, &files, &mut wrong)?;
    if wrong.is_empty() {
        println!("tidy: {} packages and {} files are in order", metadata.workspace_packages().len(), files.len());
        return Ok(());
    }
    for line in &wrong {
        println!("{line}");
    }
    bail!("{} things are not tidy", wrong.len())
}

fn check_edges(package: &Package, allowed: &Allowed, wrong: &mut Vec<String>) {
    let ours: Vec<&str> = TABLE.iter().map(|line| line.package).collect();
    for dependency in package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal) {
        let name = dependency.name.as_str();
        if ours.contains(&name) && !allowed.ours.contains(&name) {
            wrong.push(format!("{} may not depend on our {name} (xtask/src/edges.rs)", package.name));
        }
        if allowed.never.contains(&name) {
            wrong.push(format!("{} may never depend on {name} (xtask/src/edges.rs)", package.name));
        }
    }
}

/// Only a test's dependency may enable the deliberate faults, so shipped builds cannot contain them by accident. The feature itself may
/// enable that of a crate below.
fn check_faulty(package: &Package, wrong: &mut Vec<String>) {
    let is_faulty = |feature: &String| feature == FAULTY || feature.ends_with(&format!("/{FAULTY}"));
    let others = package.features.iter().filter(|(name, _)| *name != FAULTY);
    for (name, _) in others.filter(|(_, enables)| enables.iter().any(is_faulty)) {
        wrong.push(format!("{}: feature {name} turns {FAULTY} on, which only tests may", package.name));
    }
    let shipped = package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
    for dependency in shipped.filter(|dependency| dependency.features.iter().any(is_faulty)) {
        wrong.push(format!("{} takes {} with {FAULTY}, which only tests may", package.name, dependency.name));
    }
}

/// Modules must not depend on themselves through others, and separated parts must stay independent.
fn check_modules(package: &Package, root: &Path, wrong: &mut Vec<String>) -> anyhow::Result<()> {
    let name = package.name.as_str();
    let (mut cyclic, mut joined) = (Vec::new(), Vec::new());
    for graph in cycles::of_package(package)? {
        cyclic.extend(graph.cycles(root));
        for (_, one, other) in APART.iter().filter(|(crate_name, ..)| *crate_name == name) {
            joined.extend(graph.way(one, other, root));
            joined.extend(graph.way(other, one, root));
        }
    }
    except(CYCLIC.contains(&name), cyclic, &format!("{name} has no cycle: take it off CYCLIC"), wrong);
    except(NOT_APART.contains(&name), joined, &format!("the parts of {name} are apart: take it off NOT_APART"), wrong);
    Ok(())
}

/// Reports `found` unless `listed` as an exception; reports an unnecessary exception as `needless`.
fn except(listed: bool, found: Vec<String>, needless: &str, wrong: &mut Vec<String>) {
    match (listed, found.is_empty()) {
        (true, true) => wrong.push(format!("{needless} (xtask/src/tidy.rs)")),
        (false, false) => wrong.extend(found),
        (true, false) | (false, true) => {}
    }
}

/// Second TLS and crypto stacks arrive through innocent-looking features; the lock file reveals them.
fn check_banned(root: &Path, wrong: &mut Vec<String>) -> anyhow::Result<()> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    for name in BANNED {
        if lock.lines().any(|line| line == format!("name = \"{name}\"")) {
            wrong.push(format!("Cargo.lock has {name}; find who asks for it with `cargo tree -i {name}`"));
        }
    }
    Ok(())
}

/// The files tracked by git, without build output and scratch files.
fn tracked_files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = std::process::Command::new("git").args(["ls-files", "-z"]).current_dir(root).output()?;
    if !output.status.success() {
        bail!("git ls-files failed in {}", root.display());
    }
    let listing = String::from_utf8(output.stdout).context("file names are UTF-8")?;
    Ok(listing.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

fn check_source(root: &Path, file: &Path, wrong: &mut Vec<String>) -> anyhow::Result<()> {
    let path = root.join(file);
    // A file that is staged for deletion is still listed.
    if !path.exists() {
        return Ok(());
    }
    let text = fs::read_to_string(&path).with_context(|| file.display().to_string())?;
    check_length(file, text.lines().count(), wrong);
    if !text.starts_with("//!") {
        wrong.push(format!("{}: begins without a module comment (//!)", file.display()));
    }
    for (number, line) in text.lines().enumerate() {
        let note = ["TO", "FIX"].map(|start| format!("{start}{}", if start == "TO" { "DO" } else { "ME" }));
        if note.iter().any(|word| line.contains(word.as_str())) {
            wrong.push(format!("{}:{}: a note without an owner; open an issue", file.display(), number + 1));
        }
    }
    Ok(())
}

fn check_length(file: &Path, lines: usize, wrong: &mut Vec<String>) {
    let name = file.display().to_string();
    let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
    let max = if is_test { TEST_LINES_MAX } else { LINES_MAX };
    let long = (lines > max).then(|| format!("{name}: {lines} lines; at most {max}"));
    let needless = format!("{name} has {lines} lines: take it off LONG");
    except(LONG.contains(&name.as_str()), long.into_iter().collect(), &needless, wrong);
}

/// Each file under `tests` has the path of the file under `sources` that it tests, or lies in a folder of that name;
/// `x/mod.rs` and `x.rs` are the same module.
fn check_mirrors(files: &[PathBuf], tests: &str, sources: &str, wrong: &mut Vec<String>) {
    let module = |file: &Path, folder: &str| -> Option<PathBuf> {
        let path = file.strip_prefix(folder).ok()?.with_extension("");
        Some(if path.ends_with("mod") { path.parent()?.to_owned() } else { path })
    };
    let tested: Vec<PathBuf> = files.iter().filter_map(|file| module(file, sources)).collect();
    for file in files {
        let is_tested = |path: &Path| !path.as_os_str().is_empty() && tested.iter().any(|module| module == path);
        if module(file, tests).is_some_and(|path| !path.as_os_str().is_empty() && !path.ancestors().any(is_tested)) {
            wrong.push(format!("{}: tests no file of {sources} at that path", file.display()));
        }
    }
}

/// Vendored files must match their `SHA256SUMS`, byte for byte.
fn check_vendored(root: &Path, files: &[PathBuf], wrong: &mut Vec<String>) -> anyhow::Result<()> {
    for vendored in VENDORED {
        let folder = root.join(vendored);
        let noted = fs::read_to_string(folder.join("SHA256SUMS")).context("SHA256SUMS of vendored files")?;
        let mut found = Vec::new();
        for file in files.iter().filter_map(|file| file.strip_prefix(vendored).ok()) {
            if file.extension().is_some_and(|ext| ext == "js" || ext == "gz") {
                let digest = ring::digest::digest(&ring::digest::SHA256, &fs::read(folder.join(file))?);
                found.push(format!("{}  {}", hex::encode(digest), file.display()));
            }
        }
        compare_vendored(vendored, &noted, &found, wrong);
    }
    Ok(())
}

/// Compares lines of digest and name.
fn compare_vendored(vendored: &str, noted: &str, found: &[String], wrong: &mut Vec<String>) {
    for line in found.iter().filter(|line| !noted.lines().any(|noted| noted == *line)) {
        wrong.push(format!("{vendored}/SHA256SUMS does not note {line}"));
    }
    for line in noted.lines().filter(|line| !found.iter().any(|found| found == line)) {
        wrong.push(format!("{vendored}/SHA256SUMS notes what is not there: {line}"));
    }
}

/// Every step up has its step down, in every database's folder, under the same names.
fn check_migrations(root: &Path, files: &[PathBuf], wrong: &mut Vec<String>) {
    let sql =
        files.iter().filter(|file| file.starts_with("migrations") && file.extension().is_some_and(|ext| ext == "sql"));
    for file in sql {
        let name = file.to_string_lossy();
        let other = if let Some(stem) = name.strip_suffix(".up.sql") {
            format!("{stem}.down.sql")
        } else if let Some(stem) = name.strip_suffix(".down.sql") {
            format!("{stem}.up.sql")
        } else {
            wrong.push(format!("{name}: migrations are called N_name.up.sql and N_name.down.sql"));
            continue;
        };
        if !root.join(&other).exists() {
            wrong.push(format!("{name}: {other} is missing"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excepted(listed: bool, found: &[&str]) -> Vec<String> {
        let mut wrong = Vec::new();
        except(listed, found.iter().map(|&text| text.to_owned()).collect(), "needless", &mut wrong);
        wrong
    }

    #[test]
    fn an_exception_covers_what_is_found_and_must_be_needed() {
        assert_eq!(excepted(false, &["a cycle"]), ["a cycle"]);
        assert_eq!(excepted(true, &["a cycle"]), [""; 0]);
        assert_eq!(excepted(false, &[]), [""; 0]);
        assert_eq!(excepted(true, &[]), ["needless (xtask/src/tidy.rs)"]);
    }

    #[test]
    fn a_test_lies_where_what_it_tests_lies() {
        let files =
            ["src/http/mod.rs", "src/http/admin/excuse.rs", "src/http/check_in/mod.rs", "tests/routes/check_in.rs"];
        let stray = ["tests/routes/admin.rs", "tests/routes/admin/excused.rs"];
        let within = "tests/routes/admin/excuse/twice.rs";
        let wrong = |more: &[&str]| {
            let (mut wrong, files) = (Vec::new(), files.iter().chain(more).map(PathBuf::from).collect::<Vec<_>>());
            check_mirrors(&files, "tests/routes", "src/http", &mut wrong);
            wrong.len()
        };
        assert_eq!(wrong(&["tests/routes/admin/excuse.rs", "tests/routes/mod.rs", "tests/other.rs", within]), 0);
        assert_eq!(wrong(&stray), 2);
    }

    #[test]
    fn a_vendored_file_is_what_was_noted() {
        let wrong = |found: &[&str]| {
            let found: Vec<String> = found.iter().map(|&line| line.to_owned()).collect();
            let mut wrong = Vec::new();
            compare_vendored("dashboard/vendor", "aa  one.js\nbb  two.js\n", &found, &mut wrong);
            wrong.len()
        };
        assert_eq!(wrong(&["aa  one.js", "bb  two.js"]), 0);
        assert_eq!(wrong(&["aa  one.js", "cc  two.js"]), 2);
        assert_eq!(wrong(&["aa  one.js", "bb  two.js", "dd  three.js"]), 1);
        assert_eq!(wrong(&["aa  one.js"]), 1);
    }

    #[test]
    fn tests_may_be_longer_than_what_they_test() {
        let wrong = |file: &str, lines| {
            let mut wrong = Vec::new();
            check_length(Path::new(file), lines, &mut wrong);
            wrong.len()
        };
        assert_eq!([500, 501].map(|lines| wrong("wire/src/route.rs", lines)), [0, 1]);
        for file in ["wire/tests/session.rs", "learning/src/compress/tests.rs"] {
            assert_eq!([501, 800, 801].map(|lines| wrong(file, lines)), [0, 0, 1], "{file}");
        }
        for file in LONG {
            assert_eq!([500, 501].map(|lines| wrong(file, lines)), [1, 0], "{file}");
        }
    }
}
