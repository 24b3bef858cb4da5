//! Import cycles between the modules of one crate, and parts of a crate that must not reach each other.
//!
//! A node is a module (a file, or an inline `mod`). There is an edge from module `a` to module `b` when code of `a` names an item that `b`
//! *defines*, by `use` or by path, in code, in a macro's tokens or in an attribute (`#[serde(with = "…")]`). A cycle is a strongly
//! connected component of more than one module.
//!
//! Rules:
//! - A re-export is not a use. A name is followed through every `use` to the module that defines it, so `use super::Thing` is an edge to
//!   `child` if the parent contains `pub use child::Thing`; the parent's `pub use` itself is not an edge.
//! - Parents and children are nodes like any other. A child that uses its parent's helper while the parent calls the child *is* a cycle:
//!   move the shared helper to a module below both. `mod child;` itself is not an edge.
//! - Code for tests (`#[test]`, `#[cfg(test)]`) is ignored.
//! - Method calls are ignored, since resolving a method requires the receiver's type. Naming the type is an edge.

mod graph;
mod names;
mod source;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use cargo_metadata::{MetadataCommand, Package, Target};
use graph::Graph;

/// Prints every import of crate `name` that is part of a cycle.
pub(crate) fn run(name: &str) -> anyhow::Result<()> {
    let metadata = MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
    let package = metadata.workspace_packages().into_iter().find(|package| package.name.as_str() == name);
    for graph in of_package(package.ok_or_else(|| anyhow!("no crate of ours is called {name}"))?)? {
        for edge in graph.edges_in_cycles(metadata.workspace_root.as_std_path()) {
            println!("{edge}");
        }
    }
    Ok(())
}

/// The graphs of a package's shipped targets: its library of whatever kind, executables and examples.
pub(crate) fn of_package(package: &Package) -> anyhow::Result<Vec<Graph>> {
    let is_other = |target: &&Target| target.is_custom_build() || target.is_test() || target.is_bench();
    let shipped = package.targets.iter().filter(|target| !is_other(target));
    shipped.map(|target| graph(target.src_path.as_std_path(), &|file| fs::read_to_string(file).ok())).collect()
}

/// The module graph of the crate with the root file `root`. `read` returns the text of a file, or `None` if it does not exist. Fails if a
/// file does not parse or the file of a `mod` is missing.
fn graph(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> anyhow::Result<Graph> {
    let modules = source::modules(root, read)?;
    let edges = names::edges(&modules);
    Ok(Graph::new(modules.into_iter().map(|module| (module.path, module.file)).collect(), edges))
}

#[cfg(test)]
mod tests;
