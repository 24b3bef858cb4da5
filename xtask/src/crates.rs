//! Number of crates that cargo compiles for an app with its own training.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// Most crates; the SDK's own are counted, the app itself is not. Two of them (`ipnet`, `percent-encoding`) read proxies from the
/// environment.
const LIMIT: usize = 153;

/// Counts the crates of `client-sdk` with the feature `https` alone, for Linux, and compares them with the limit.
pub(crate) fn run() -> anyhow::Result<()> {
    let (all, within) = (crates("normal,build")?, crates("normal")?);
    let for_scripts = all.difference(&within).count();
    println!("{} crates, {for_scripts} of them for build scripts alone (limit {LIMIT})", all.len());
    if all.len() > LIMIT {
        bail!("an app compiles too many crates: see `cargo tree -p client-sdk --no-default-features --features https`");
    }
    Ok(())
}

/// The crates along these edges, each with its version.
fn crates(edges: &str) -> anyhow::Result<BTreeSet<String>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["tree", "--locked", "--package", "client-sdk", "--no-default-features", "--features", "https"]);
    cargo.args(["--target", "x86_64-unknown-linux-gnu", "--edges", edges, "--prefix", "none", "--format", "{p}"]);
    let tree = cargo.stderr(Stdio::inherit()).output().context("cargo tree")?;
    if !tree.status.success() {
        bail!("cargo tells no tree");
    }
    // `cargo tree` marks repeated crates.
    let lines = std::str::from_utf8(&tree.stdout)?.lines();
    Ok(lines.map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
}
