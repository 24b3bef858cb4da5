//! Checks that every workspace dependency is used.

use std::collections::BTreeSet;

use cargo_metadata::Package;

/// Requires each name of `[workspace.dependencies]` to be a dependency of a package.
pub(crate) fn check(manifest: &str, packages: &[&Package], wrong: &mut Vec<String>) {
    let used = packages.iter().flat_map(|package| &package.dependencies);
    let used: BTreeSet<&str> =
        used.map(|dependency| dependency.rename.as_ref().unwrap_or(&dependency.name).as_str()).collect();
    for name in declared(manifest).filter(|name| !used.contains(name)) {
        wrong.push(format!("Cargo.toml: no package uses the workspace's dependency {name}"));
    }
}

/// The names in the section `[workspace.dependencies]`.
fn declared(manifest: &str) -> impl Iterator<Item = &str> {
    let lines = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let section = lines.take_while(|line| !line.starts_with('['));
    section.filter(|line| !line.starts_with('#')).filter_map(|line| Some(line.split_once(" = ")?.0.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_section() {
        let manifest = "[workspace]\nresolver = \"3\"\n[workspace.dependencies]\n# ---- ours\nwire = { path = \"wire\" }\n\nhex = \"0.4\" # text\n[profile.dev]\ndebug = 1\n";
        assert_eq!(declared(manifest).collect::<Vec<_>>(), ["wire", "hex"]);
        let mut wrong = Vec::new();
        check(manifest, &[], &mut wrong);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
    }
}
