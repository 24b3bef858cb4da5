//! Selection of the steps that a change needs, with reasons.

use std::collections::BTreeSet;

use super::packages::{Packages, is_within};
use super::steps::{EVERYTHING, NOTHING, RELEASE, TABLE};

/// Base of the selection.
pub(crate) enum Since {
    /// Every step runs, for this reason.
    Everything(String),
    Commit {
        commit: String,
        /// Steps that the run of the commit skipped.
        skipped: Vec<String>,
        /// Paths relative to the repository.
        changed: Vec<String>,
    },
}

/// The verdict on one step.
pub(crate) struct Choice {
    pub(crate) name: String,
    pub(crate) runs: bool,
    pub(crate) reason: String,
}

/// The verdict on every step, and on the tests of every package.
pub(crate) fn of(packages: &Packages, since: &Since) -> Vec<Choice> {
    let names = || TABLE.iter().map(|step| step.name.to_owned());
    let tests = || packages.0.keys().map(|package| format!("tests:{package}"));
    let (commit, skipped, changed) = match since {
        Since::Commit { commit, skipped, changed } => (commit, skipped, changed),
        Since::Everything(reason) => {
            return all([RELEASE.to_owned()].into_iter().chain(names()).chain(tests()), reason);
        }
    };
    if let Some(path) = changed.iter().find(|path| concerns_everything(packages, path)) {
        let reason = format!("{path} has changed since {commit}, which concerns every step");
        return all([RELEASE.to_owned()].into_iter().chain(names()).chain(tests()), &reason);
    }
    let choose = |name: String, path: Option<&String>| Choice {
        name,
        runs: path.is_some(),
        reason: path.map_or_else(
            || format!("no path of it has changed since {commit}"),
            |path| format!("{path} has changed since {commit}"),
        ),
    };
    let touched: Vec<_> = changed.iter().map(|path| (path, packages.touched_by(path))).collect();
    let first = |needs: &BTreeSet<String>, folders: &[&str]| {
        let concerns = |path: &str, by: &BTreeSet<String>| {
            !by.is_disjoint(needs) || folders.iter().any(|folder| is_within(path, folder))
        };
        touched.iter().find(|(path, by)| concerns(path, by)).map(|(path, _)| *path)
    };
    let steps = TABLE.iter().map(|step| {
        let needs = step.packages.iter().flat_map(|package| packages.built_from(package)).collect();
        choose(step.name.to_owned(), first(&needs, step.paths))
    });
    let steps = steps.map(|choice| match choice.runs || !skipped.contains(&choice.name) {
        true => choice,
        false => Choice { runs: true, reason: "the last full run skipped it".to_owned(), ..choice },
    });
    let steps: Vec<Choice> = steps.collect();
    let user = TABLE.iter().zip(&steps).find(|(step, choice)| step.needs_release && choice.runs);
    let release = Choice {
        name: RELEASE.to_owned(),
        runs: user.is_some(),
        reason: user.map_or_else(|| "no step uses it".to_owned(), |(step, _)| format!("step {} uses it", step.name)),
    };
    let tests =
        packages.0.keys().map(|package| choose(format!("tests:{package}"), first(&packages.tested_with(package), &[])));
    // These tests check that the paths in the table exist, in any package.
    let tests = tests.map(|choice| match choice.runs || choice.name != "tests:xtask" {
        true => choice,
        false => Choice { runs: true, reason: "it always runs".to_owned(), ..choice },
    });
    [release].into_iter().chain(steps).chain(tests).collect()
}

fn all(names: impl Iterator<Item = String>, reason: &str) -> Vec<Choice> {
    names.map(|name| Choice { name, runs: true, reason: reason.to_owned() }).collect()
}

/// Whether a change to the path concerns every step: it is listed so, or belongs to no package or step.
fn concerns_everything(packages: &Packages, path: &str) -> bool {
    let named = |folders: &[&str]| folders.iter().any(|folder| is_within(path, folder));
    named(EVERYTHING)
        || !named(NOTHING) && packages.owner(path).is_none() && !TABLE.iter().any(|step| named(step.paths))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cargo_metadata::MetadataCommand;

    use super::*;

    /// The packages of this repository, and its root folder.
    fn packages() -> (Packages, std::path::PathBuf) {
        let metadata = MetadataCommand::new().no_deps().exec().unwrap();
        let root = metadata.workspace_root.as_std_path();
        let fuzz = MetadataCommand::new().manifest_path(root.join("fuzz/Cargo.toml")).no_deps().exec().unwrap();
        (Packages::read(root, metadata.packages.iter().chain(&fuzz.packages)).unwrap(), root.to_owned())
    }

    /// Names of the steps selected for a change to these paths.
    fn chosen(packages: &Packages, changed: &[&str]) -> Vec<String> {
        let changed = changed.iter().map(|&path| path.to_owned()).collect();
        let choices = of(packages, &Since::Commit { commit: "0123".to_owned(), skipped: Vec::new(), changed });
        choices.into_iter().filter(|choice| choice.runs).map(|choice| choice.name).collect()
    }

    #[test]
    fn a_change_chooses_the_steps_that_prove_something_about_it() {
        let (packages, _) = packages();
        let runs = |changed: &str| chosen(&packages, &[changed]);
        assert_eq!(runs("CHANGELOG.md"), ["tests:xtask"]);
        let kernel = runs("aggregation/src/cpu/kernel.rs");
        for name in ["miri", "kernels", "ptx", "gpu", "release", "tests:aggregation", "tests:coordinator", "demo"] {
            assert!(kernel.contains(&name.to_owned()), "{name}: {kernel:?}");
        }
        for name in ["fuzz", "dashboard", "silo", "sdks", "tests:client-sdk", "tests:wire"] {
            assert!(!kernel.contains(&name.to_owned()), "{name}: {kernel:?}");
        }
        let page = runs("dashboard/pages/task.js");
        assert!(page.contains(&"dashboard".to_owned()) && page.contains(&"tests:coordinator".to_owned()), "{page:?}");
        assert!(!page.contains(&"miri".to_owned()) && !page.contains(&"tests:learning".to_owned()), "{page:?}");
        for (path, step) in [("xtask/src/floor.rs", "demo"), ("test-servers/src/line.rs", "load")] {
            assert!(runs(path).contains(&step.to_owned()), "{path}");
        }
        for path in
            ["examples/silo/net.py", "client-sdk/src/process_trainer/mod.rs", "client-sdk/python/tributary/program.py"]
        {
            assert!(["silo", "torch"].iter().all(|step| runs(path).contains(&(*step).to_owned())), "{path}");
        }
    }

    #[test]
    fn a_step_that_the_last_full_run_skipped_runs() {
        let (packages, _) = packages();
        let since = Since::Commit { commit: "0123".to_owned(), skipped: vec!["sdks".to_owned()], changed: Vec::new() };
        let runs = of(&packages, &since).into_iter().filter(|choice| choice.runs).map(|choice| choice.name);
        assert_eq!(runs.collect::<Vec<_>>(), [RELEASE, "sdks", "tests:xtask"]);
    }

    #[test]
    fn the_tests_of_a_package_run_when_a_file_that_they_read_changes() {
        let (packages, _) = packages();
        let runs = |changed: &str| chosen(&packages, &[changed]);
        assert!(runs("docs/PROTOCOL.md").contains(&"tests:federation".to_owned()));
        assert!(!runs("docs/PRIVACY.md").contains(&"tests:federation".to_owned()));
        assert!(runs("wire/tests/compat/v1/problem.json").contains(&"fuzz".to_owned()));
    }

    #[test]
    fn everything_runs_after_a_change_that_concerns_every_step_or_that_nothing_claims() {
        let (packages, _) = packages();
        for path in ["Cargo.lock", ".ci/run", ".ci/a-new-script.sh", "Cargo.toml", "a-new-folder/file"] {
            assert_eq!(chosen(&packages, &[path]).len(), TABLE.len() + 1 + packages.0.len(), "{path}");
        }
        let forced = of(&packages, &Since::Everything("CI_FULL is set".to_owned()));
        assert!(forced.iter().all(|choice| choice.runs) && forced.len() == TABLE.len() + 1 + packages.0.len());
    }

    #[test]
    fn a_change_to_any_package_chooses_its_tests_and_a_step() {
        let (packages, _) = packages();
        for (name, member) in &packages.0 {
            let runs = chosen(&packages, &[&format!("{}/src/lib.rs", member.folder)]);
            assert!(runs.contains(&format!("tests:{name}")), "{name}: {runs:?}");
            let has_step = runs.iter().any(|run| TABLE.iter().any(|step| step.name == run));
            assert!(has_step, "no step proves anything about {name}: xtask/src/ci/steps.rs");
        }
    }

    #[test]
    fn the_table_names_packages_paths_and_steps_that_exist() {
        let (packages, root) = packages();
        for step in TABLE {
            for package in step.packages {
                assert!(packages.0.contains_key(*package), "step {}: there is no package {package}", step.name);
            }
        }
        let paths = TABLE.iter().flat_map(|step| step.paths).chain(EVERYTHING).chain(NOTHING);
        for path in paths {
            assert!(root.join(path).exists(), "xtask/src/ci/steps.rs names {path}, which is not there");
        }
        assert_eq!(used(&root), TABLE.iter().map(|step| step.name.to_owned()).chain([RELEASE.to_owned()]).collect());
    }

    #[test]
    fn a_step_names_the_scripts_that_its_script_uses() {
        let (_, root) = packages();
        let files = std::fs::read_dir(root.join(".ci")).unwrap();
        let files: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        for step in TABLE {
            for path in step.paths.iter().filter(|path| path.starts_with(".ci/") && path.ends_with(".sh")) {
                let script = std::fs::read_to_string(root.join(path)).unwrap();
                let code: Vec<&str> = script.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
                for file in files.iter().filter(|file| file.contains('.')) {
                    let path = format!(".ci/{file}");
                    let is_used = code.iter().any(|line| line.contains(&format!("/{file}")));
                    assert!(!is_used || step.paths.contains(&path.as_str()), "step {} does not name {path}", step.name);
                }
            }
        }
    }

    /// The names in `.ci/run`: `part NAME` and `chosen NAME`.
    fn used(root: &Path) -> BTreeSet<String> {
        let script = std::fs::read_to_string(root.join(".ci/run")).unwrap();
        let words: Vec<&str> =
            script.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(str::split_whitespace).collect();
        let pairs = words.windows(2).filter(|pair| ["part", "chosen"].contains(&pair[0]));
        let names = pairs.map(|pair| pair[1].trim_end_matches(';').to_owned());
        names.filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase())).collect()
    }
}
