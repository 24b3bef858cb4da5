//! Documents our crates with the arguments by which `.ci/clippy.sh` compiled them.
//!
//! `cargo doc` would first check every crate of others, which the tests have compiled already.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use cargo_metadata::{MetadataCommand, Target, TargetKind};

/// Runs rustdoc for every library and executable that has documentation. A warning is an error.
///
/// # Errors
///
/// A crate that was not compiled, or whose documentation has warnings.
pub(crate) fn run(compiled: &Path, out: &Path) -> anyhow::Result<()> {
    let metadata = MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
    let documented = metadata.packages.iter().flat_map(|package| &package.targets).filter(|target| target.doc);
    let files: Vec<String> = documented.filter_map(file).collect();
    for file in &files {
        let read = |what: &str| {
            let path = compiled.join(format!("{file}.{what}"));
            fs::read_to_string(&path).with_context(|| format!("{}: this crate was not compiled", path.display()))
        };
        let (arguments, variables) = (read("arguments")?, read("variables")?);
        let variables = variables.split('\0').filter_map(|variable| variable.split_once('='));
        // The pipes of a cargo that has ended.
        let variables = variables.filter(|(name, _)| *name != "CARGO_MAKEFLAGS");
        let status = Command::new("rustdoc")
            .args(arguments_of_rustdoc(&arguments))
            .args(["-Dwarnings", "--out-dir"])
            .arg(out)
            .envs(variables)
            .current_dir(&metadata.workspace_root)
            .status()
            .context("rustdoc")?;
        if !status.success() {
            bail!("rustdoc of {file} fails");
        }
    }
    println!("{} crates are documented without warnings.", files.len());
    Ok(())
}

/// The name of a target's file, without extension. None for tests, benches, examples, build scripts and macros.
fn file(target: &Target) -> Option<String> {
    let is_bin = target.kind.contains(&TargetKind::Bin);
    let libraries = [TargetKind::Lib, TargetKind::RLib, TargetKind::CDyLib, TargetKind::StaticLib];
    let is_lib = target.kind.iter().any(|kind| libraries.contains(kind));
    (is_bin || is_lib).then(|| format!("{}-{}", if is_bin { "bin" } else { "lib" }, target.name.replace('-', "_")))
}

/// The compiler's arguments, without its own name, the kinds of files to write and their folder, and the libraries to link, which rustdoc
/// does not take.
fn arguments_of_rustdoc(arguments: &str) -> Vec<&str> {
    let mut words = arguments.split('\0').skip(1).filter(|word| !word.is_empty());
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--out-dir" | "-l" => drop(words.next()),
            word if word.starts_with("--emit=") => {}
            word => kept.push(word),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_about_output_are_left_out() {
        let compiled = "rustc\0--crate-name\0wire\0--emit=dep-info,metadata,link\0--out-dir\0/t/deps\0-L\0/t/deps\0\
                        -l\0static=shim\0";
        assert_eq!(arguments_of_rustdoc(compiled), ["--crate-name", "wire", "-L", "/t/deps"]);
    }
}
