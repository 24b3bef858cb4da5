//! Resolves the paths in a crate's text to the modules that define the named items.

use std::collections::BTreeMap;

use super::source::{Mention, Module};

/// The target of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Module(usize),
    /// An item, or a part of one (a variant, an associated function): its defining module.
    Item(usize),
}

/// The edges between modules, each with the first line that causes it.
pub(super) fn edges(modules: &[Module]) -> BTreeMap<(usize, usize), usize> {
    let names = Names { modules };
    let mut edges = BTreeMap::new();
    for (from, module) in modules.iter().enumerate() {
        let imports = module.imports.iter().filter(|import| !import.is_reexport).map(|import| &import.mention);
        for mention in imports.chain(&module.mentions) {
            for to in names.used(from, mention).into_iter().filter(|to| *to != from) {
                let line = edges.entry((from, to)).or_insert(mention.line);
                *line = mention.line.min(*line);
            }
        }
    }
    edges
}

struct Names<'a> {
    modules: &'a [Module],
}

impl Names<'_> {
    /// The defining modules of the items that `mention` names. Ignores a path that ends at a module: uses through the imported name are
    /// found separately.
    fn used(&self, from: usize, mention: &Mention) -> Vec<usize> {
        let used = |place| match place {
            Place::Item(module) => Some(module),
            Place::Module(module) => mention.whole.then_some(module),
        };
        self.follow(from, &mention.path, &mut Vec::new()).into_iter().filter_map(used).collect()
    }

    /// The targets of a path, seen from module `from`: empty for another crate or a local name; several if a name is both a module and a
    /// function.
    fn follow(&self, from: usize, path: &[String], trail: &mut Vec<(usize, String)>) -> Vec<Place> {
        let Some((first, mut rest)) = path.split_first() else { return Vec::new() };
        let mut places = match first.as_str() {
            "crate" => vec![Place::Module(0)],
            "self" => vec![Place::Module(from)],
            "super" => {
                let mut above = self.modules[from].parent;
                while let Some((next, after)) = rest.split_first()
                    && next == "super"
                {
                    above = above.and_then(|module| self.modules[module].parent);
                    rest = after;
                }
                above.map(Place::Module).into_iter().collect()
            }
            name => self.look_up(from, name, trail),
        };
        for name in rest {
            let inside = |place: &Place| match *place {
                Place::Module(module) => self.look_up(module, name, &mut trail.clone()),
                Place::Item(_) => Vec::new(),
            };
            let found: Vec<Place> = places.iter().flat_map(inside).collect();
            places = if found.is_empty() {
                places.into_iter().filter(|place| matches!(place, Place::Item(_))).collect()
            } else {
                found
            };
        }
        places
    }

    /// The targets of `name` in the scope of `module`. `trail` holds the names in resolution, so that mutual imports terminate.
    fn look_up(&self, module: usize, name: &str, trail: &mut Vec<(usize, String)>) -> Vec<Place> {
        let asked = (module, name.to_owned());
        if trail.contains(&asked) {
            return Vec::new();
        }
        trail.push(asked);
        let here = &self.modules[module];
        let mut places = Vec::new();
        places.extend(here.children.get(name).copied().map(Place::Module));
        places.extend(here.defines.contains(name).then_some(Place::Item(module)));
        for import in here.imports.iter().filter(|import| import.name.as_deref() == Some(name)) {
            places.extend(self.follow(module, &import.mention.path, trail));
        }
        if places.is_empty() {
            for import in here.imports.iter().filter(|import| import.name.is_none()) {
                for place in self.follow(module, &import.mention.path, trail) {
                    if let Place::Module(other) = place {
                        places.extend(self.look_up(other, name, trail));
                    }
                }
            }
        }
        trail.pop();
        places
    }
}
