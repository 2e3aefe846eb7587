//! A directed graph of names. Each edge has the file that it was found in.

use std::collections::{BTreeMap, BTreeSet};

/// The edges by their source.
#[derive(Debug, Default)]
pub(crate) struct Graph(BTreeMap<String, BTreeMap<String, String>>);

impl Graph {
    /// Adds an edge. Messages show `place`. The first place of an edge stays.
    pub(crate) fn add(&mut self, from: &str, to: &str, place: &str) {
        if from != to {
            let edges = self.0.entry(from.to_owned()).or_default();
            edges.entry(to.to_owned()).or_insert_with(|| place.to_owned());
        }
    }

    /// Removes an edge. Returns whether it was there.
    pub(crate) fn remove(&mut self, from: &str, to: &str) -> bool {
        self.0.get_mut(from).is_some_and(|edges| edges.remove(to).is_some())
    }

    /// Whether a path leads from one name to the other.
    pub(crate) fn reaches(&self, from: &str, to: &str) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(name) = open.pop() {
            for next in self.0.get(name).into_iter().flat_map(BTreeMap::keys) {
                if next == to {
                    return true;
                }
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        false
    }

    /// A shortest cycle through the first name that is on one: `a → b (file) → a (file)`.
    pub(crate) fn cycle(&self) -> Option<String> {
        self.find_cycle().map(|path| self.show(&path))
    }

    /// Removes the last edge of that cycle.
    pub(crate) fn break_cycle(&mut self) {
        let last = self.find_cycle().map(|path| path.into_iter().rev().take(2).map(str::to_owned).collect::<Vec<_>>());
        if let Some([to, from]) = last.as_deref() {
            self.remove(from, to);
        }
    }

    fn find_cycle(&self) -> Option<Vec<&str>> {
        let start = self.0.keys().find(|name| self.reaches(name, name))?;
        let mut paths = vec![vec![start.as_str()]];
        let mut seen = BTreeSet::new();
        loop {
            let mut longer = Vec::new();
            for path in &paths {
                let last = *path.last()?;
                for next in self.0.get(last).into_iter().flat_map(BTreeMap::keys) {
                    let path: Vec<_> = path.iter().copied().chain([next.as_str()]).collect();
                    if next == start {
                        return Some(path);
                    }
                    if seen.insert(next) {
                        longer.push(path);
                    }
                }
            }
            paths = longer;
        }
    }

    fn show(&self, path: &[&str]) -> String {
        let mut text = path.first().copied().unwrap_or_default().to_owned();
        for pair in path.windows(2) {
            let place = self.0.get(pair[0]).and_then(|edges| edges.get(pair[1]));
            text += &format!(" → {} ({})", pair[1], place.map_or("", String::as_str));
        }
        text
    }
}
