//! A directed graph of modules: cycles and reachability.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// Modules and their dependencies.
pub(crate) struct Graph {
    /// The path of each module from the root of its crate, and its file.
    modules: Vec<(String, PathBuf)>,
    /// Dependencies between modules, each with the line of an import that shows it.
    edges: BTreeMap<(usize, usize), usize>,
}

impl Graph {
    pub(super) fn new(modules: Vec<(String, PathBuf)>, edges: BTreeMap<(usize, usize), usize>) -> Self {
        Self { modules, edges }
    }

    /// One line for each strongly connected component of more than one module: its size and its shortest cycle, with the file
    /// (relative to `root`) and line of each edge.
    pub(crate) fn cycles(&self, root: &Path) -> Vec<String> {
        let line = |component: &BTreeSet<usize>| {
            let shortest = component.iter().filter_map(|&module| self.path(&[module], &[module], component));
            let path = shortest.min_by_key(Vec::len).unwrap_or_default();
            format!("a cycle among {} modules: {}", component.len(), self.describe(&path, root))
        };
        self.components().iter().map(line).collect()
    }

    /// Every edge inside a strongly connected component, one line each.
    pub(crate) fn edges_in_cycles(&self, root: &Path) -> Vec<String> {
        let inside = |component: &BTreeSet<usize>| {
            let edges = self.edges.keys().filter(|(from, to)| component.contains(from) && component.contains(to));
            edges.map(|(from, to)| self.describe(&[*from, *to], root)).collect::<Vec<_>>()
        };
        self.components().iter().flat_map(inside).collect()
    }

    /// The shortest path from a module at or below `from` to one at or below `to`, formatted, if any.
    pub(crate) fn way(&self, from: &str, to: &str, root: &Path) -> Option<String> {
        let below = |top: &str| -> Vec<usize> {
            let is_below =
                |path: &str| path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
            (0..self.modules.len()).filter(|&module| is_below(&self.modules[module].0)).collect()
        };
        let path = self.path(&below(from), &below(to), &(0..self.modules.len()).collect())?;
        Some(self.describe(&path, root))
    }

    /// `a -> b (file:line) -> c (file:line)`, where file and line show the import by the module before them.
    fn describe(&self, path: &[usize], root: &Path) -> String {
        let name = |module: usize| match self.modules[module].0.as_str() {
            "" => "crate",
            path => path,
        };
        let mut text = path.first().map_or(String::new(), |&first| name(first).to_owned());
        for edge in path.windows(2) {
            let file = &self.modules[edge[0]].1;
            let file = file.strip_prefix(root).unwrap_or(file).display();
            text += &format!(" -> {} ({file}:{})", name(edge[1]), self.edges[&(edge[0], edge[1])]);
        }
        text
    }

    /// The shortest path of at least one edge from one of `starts` to one of `ends` through `allowed` modules.
    fn path(&self, starts: &[usize], ends: &[usize], allowed: &BTreeSet<usize>) -> Option<Vec<usize>> {
        let mut before = BTreeMap::new();
        let mut queue: VecDeque<usize> = starts.iter().copied().collect();
        while let Some(module) = queue.pop_front() {
            for next in self.next(module).filter(|next| allowed.contains(next)) {
                if ends.contains(&next) {
                    let mut path = vec![next, module];
                    let mut at = module;
                    while !starts.contains(&at) {
                        at = before[&at];
                        path.push(at);
                    }
                    path.reverse();
                    return Some(path);
                }
                if !starts.contains(&next) && !before.contains_key(&next) {
                    before.insert(next, module);
                    queue.push_back(next);
                }
            }
        }
        None
    }

    fn next(&self, module: usize) -> impl Iterator<Item = usize> {
        self.edges.range((module, 0)..(module + 1, 0)).map(|((_, to), _)| *to)
    }

    fn reachable(&self, module: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut open = vec![module];
        while let Some(module) = open.pop() {
            open.extend(self.next(module).filter(|next| reached.insert(*next)));
        }
        reached
    }

    /// The strongly connected components of more than one module.
    fn components(&self) -> Vec<BTreeSet<usize>> {
        let reachable: Vec<BTreeSet<usize>> = (0..self.modules.len()).map(|module| self.reachable(module)).collect();
        let mut components = BTreeSet::new();
        for (module, reached) in reachable.iter().enumerate().filter(|(module, reached)| reached.contains(module)) {
            components.insert(reached.iter().copied().filter(|other| reachable[*other].contains(&module)).collect());
        }
        components.into_iter().collect()
    }
}
