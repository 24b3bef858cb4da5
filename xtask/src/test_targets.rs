//! One test executable per package: each executable links everything again, longer than most of its tests take.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use cargo_metadata::{Package, TargetKind};

/// Executables of their own, with the reason.
const SEPARATE: &[(&str, &str, &str)] = &[
    ("aggregation", "devices", "gpu/bundle.sh ships it"),
    ("aggregation", "cuda_stand_in", "the CUDA driver is loaded once per process"),
    ("faults", "planted", "its faults are global to the process"),
    ("tributary", "audit", "its faults are global to the process"),
];

/// Requires at most one test executable per package, except separate ones, and each test file to be part of one.
pub(crate) fn check(package: &Package, root: &Path, files: &[PathBuf], wrong: &mut Vec<String>) -> anyhow::Result<()> {
    let name = package.name.as_str();
    let is_separate = |target: &str| SEPARATE.iter().any(|(of, separate, _)| *of == name && *separate == target);
    let tests = package.targets.iter().filter(|target| target.kind.contains(&TargetKind::Test));
    let (separate, shared): (Vec<_>, Vec<_>) = tests.partition(|target| is_separate(&target.name));
    if shared.len() > 1 {
        wrong.push(format!(
            "{name} has {} test executables: make them modules of one (xtask/src/test_targets.rs)",
            shared.len()
        ));
    }
    let folder = package.manifest_path.parent().context("a manifest lies in a folder")?.as_std_path();
    let tests = folder.strip_prefix(root)?.join("tests");
    let Some(main) =
        shared.iter().map(|target| target.src_path.as_std_path()).find(|path| path.ends_with("tests/main.rs"))
    else {
        return Ok(());
    };
    let roots = [main.to_owned(), folder.join("src/lib.rs")].map(|path| fs::read_to_string(path).unwrap_or_default());
    let is_target = |file: &Path| separate.iter().any(|target| target.src_path.as_std_path() == root.join(file));
    let modules = files.iter().filter_map(|file| Some((file, module(file.strip_prefix(&tests).ok()?)?)));
    for (file, module) in modules.filter(|(file, _)| !is_target(file)) {
        if !is_declared(&roots, &module) {
            wrong.push(format!(
                "{}: no test executable has it: declare it in {}/main.rs",
                file.display(),
                tests.display()
            ));
        }
    }
    Ok(())
}

/// The module of a file directly in `tests`, or of the `mod.rs` of a folder there.
fn module(path: &Path) -> Option<String> {
    let path = path.to_str()?;
    let module = path.strip_suffix("/mod.rs").or_else(|| path.strip_suffix(".rs"))?;
    (!module.contains('/') && module != "main").then(|| module.to_owned())
}

/// Whether a root declares the module, by its name or by its path.
fn is_declared(roots: &[String], module: &str) -> bool {
    let ways = [format!("mod {module};"), format!("tests/{module}.rs\"]")];
    roots.iter().any(|root| root.lines().any(|line| ways.iter().any(|way| line.ends_with(way.as_str()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_a_file_or_a_folder_in_tests() {
        let modules = ["codec.rs", "support/mod.rs", "attacks/server.rs", "main.rs", "vectors/kat.json"];
        assert_eq!(
            modules.map(|path| module(Path::new(path))),
            [Some("codec".into()), Some("support".into()), None, None, None]
        );
    }

    #[test]
    fn a_module_is_declared_by_name_or_by_path() {
        let roots = ["mod codec;\n".to_owned(), "#[path = \"../tests/vectors.rs\"]\nmod known;\n".to_owned()];
        assert!(is_declared(&roots, "codec") && is_declared(&roots, "vectors"));
        assert!(!is_declared(&roots, "cohort") && !is_declared(&roots, "code"));
    }
}
