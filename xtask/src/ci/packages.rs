//! The packages of the repository: their folders, their dependencies, and the outside files that their code reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, Package};

/// A workspace package: its folder, its dependencies, and the texts in its code.
#[derive(Default)]
pub(crate) struct Member {
    /// The package's folder, relative to the repository.
    pub(crate) folder: String,
    /// Our packages that it needs.
    pub(crate) needs: BTreeSet<String>,
    /// Our packages that its tests and benchmarks need in addition.
    pub(crate) tests_need: BTreeSet<String>,
    /// String literals of its code that may name files.
    pub(crate) texts: BTreeSet<String>,
}

/// All packages by their names.
#[derive(Default)]
pub(crate) struct Packages(pub(crate) BTreeMap<String, Member>);

impl Packages {
    /// Reads the packages and their code.
    pub(crate) fn read<'a>(root: &Path, packages: impl Iterator<Item = &'a Package>) -> anyhow::Result<Self> {
        let mut all = Self::default();
        let top = fs::read_dir(root)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        // The names of packages are also words of tasks and of figures.
        let is_plain = |name: &String| !root.join(name).join("Cargo.toml").exists();
        let top: BTreeSet<String> = top.collect::<std::io::Result<Vec<_>>>()?.into_iter().filter(is_plain).collect();
        for package in packages {
            let folder = package.manifest_path.parent().context("a manifest lies in a folder")?.as_std_path();
            let mut member = Member {
                folder: folder.strip_prefix(root).context("a package outside the repository")?.display().to_string(),
                ..Member::default()
            };
            for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_some()) {
                let needs = match dependency.kind {
                    DependencyKind::Development => &mut member.tests_need,
                    _ => &mut member.needs,
                };
                needs.insert(dependency.name.clone());
            }
            // xtask names paths of the whole repository.
            if *package.name != "xtask" {
                read_texts(folder, &top, &mut member.texts)?;
            }
            all.0.insert(package.name.to_string(), member);
        }
        Ok(all)
    }

    /// The package whose folder contains the path: the innermost one.
    pub(crate) fn owner(&self, path: &str) -> Option<&str> {
        let owners = self.0.iter().filter(|(_, member)| is_within(path, &member.folder));
        owners.max_by_key(|(_, member)| member.folder.len()).map(|(name, _)| name.as_str())
    }

    /// The package and all of its dependencies among our packages.
    pub(crate) fn built_from(&self, package: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut open = vec![package.to_owned()];
        while let Some(next) = open.pop() {
            if let Some(member) = self.0.get(&next)
                && found.insert(next)
            {
                open.extend(member.needs.iter().cloned());
            }
        }
        found
    }

    /// All dependencies of a package's tests.
    pub(crate) fn tested_with(&self, package: &str) -> BTreeSet<String> {
        let also = self.0.get(package).into_iter().flat_map(|member| &member.tests_need);
        let also: BTreeSet<String> = also.flat_map(|other| self.built_from(other)).collect();
        &self.built_from(package) | &also
    }

    /// The packages that contain the path, or read it from outside.
    pub(crate) fn touched_by(&self, path: &str) -> BTreeSet<String> {
        let readers = self.0.iter().filter(|(_, member)| member.texts.iter().any(|text| reads(text, path)));
        readers.map(|(name, _)| name.as_str()).chain(self.owner(path)).map(str::to_owned).collect()
    }
}

/// Whether the path is this folder or file, or lies in it.
pub(crate) fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a text of code names the file, or a folder with it as its end or before a placeholder: `../docs/PROTOCOL.md`,
/// `/../dashboard/`, `docs/config/{name}.toml`.
fn reads(text: &str, path: &str) -> bool {
    let text = text.split('{').find(|part| part.contains('/')).unwrap_or(text);
    let (is_relative, text) = text.rsplit_once("../").map_or((false, text), |(_, within)| (true, within));
    let text = text.trim_matches('/');
    // A relative text may begin within the repository: `../../ffi/tests/options.json`.
    let mut ends = path.match_indices('/').map(|(slash, _)| &path[slash + 1..]);
    let is_an_end = is_relative && text.contains('/') && ends.any(|end| is_within(end, text));
    !text.is_empty() && (is_within(path, text) || is_an_end)
}

/// Adds the string literals of the Rust code below a folder that may name files. Skips comments and nested packages.
fn read_texts(folder: &Path, top: &BTreeSet<String>, texts: &mut BTreeSet<String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            let is_other =
                path.join("Cargo.toml").exists() || path.ends_with("target") || path.ends_with("node_modules");
            if !is_other && !path.is_symlink() {
                read_texts(&path, top, texts)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let code = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            let quoted = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
            let is_path =
                |text: &&str| !text.contains(char::is_whitespace) && (text.contains('/') || top.contains(*text));
            texts.extend(quoted.filter(is_path).map(str::to_owned));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_reads_files_and_folders_that_it_names() {
        let texts = ["../../docs/PROTOCOL.md", "/../dashboard/", "{}/../docs/config/{name}.toml", "deploy"];
        for (text, path) in texts.iter().zip([
            "docs/PROTOCOL.md",
            "dashboard/pages/task.js",
            "docs/config/task.toml",
            "deploy/README.md",
        ]) {
            assert!(reads(text, path), "{text} {path}");
        }
        assert!(reads("../../ffi/tests/options.json", "client-sdk/ffi/tests/options.json"));
        for path in ["docs/PRIVACY.md", "gpu/run.sh", "README.md", "dashboards/x"] {
            assert!(!texts.iter().any(|text| reads(text, path)), "{path}");
        }
    }

    #[test]
    fn the_innermost_package_owns_a_path() {
        let mut packages = Packages::default();
        for (name, folder) in [("sdk", "client-sdk"), ("ffi", "client-sdk/ffi")] {
            packages.0.insert(name.to_owned(), Member { folder: folder.to_owned(), ..Member::default() });
        }
        assert_eq!(packages.owner("client-sdk/ffi/src/lib.rs"), Some("ffi"));
        assert_eq!(packages.owner("client-sdk/ffim/src/lib.rs"), Some("sdk"));
        assert_eq!(packages.owner("docs/MOBILE.md"), None);
    }
}
