//! The results of a run by test name, and what differs between two runs.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// The results of a run: the failure of each test that ran, or none.
#[derive(Debug, Clone, Default)]
pub(super) struct Results {
    by_name: BTreeMap<String, Option<String>>,
    seconds: f64,
    /// The test that took longest, and its seconds.
    slowest: (f64, String),
}

impl Results {
    /// Reads ginkgo's report.
    pub(super) fn of_ginkgo(report: &Path) -> Result<Self, String> {
        let text = std::fs::read(report).map_err(|error| error.to_string())?;
        std::fs::remove_file(report).map_err(|error| error.to_string())?;
        let suites: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let mut results = Self::default();
        for suite in suites.as_array().into_iter().flatten() {
            results.seconds += suite["RunTime"].as_f64().unwrap_or_default() / 1e9;
            for test in suite["SpecReports"].as_array().into_iter().flatten() {
                let state = test["State"].as_str().unwrap_or_default();
                if test["LeafNodeType"] != "It" || matches!(state, "skipped" | "pending" | "") {
                    continue;
                }
                let failure = (state != "passed").then(|| {
                    let message = test["Failure"]["Message"].as_str().unwrap_or_default();
                    format!("{state}: {}", message.chars().take(600).collect::<String>())
                });
                let seconds = test["RunTime"].as_f64().unwrap_or_default() / 1e9;
                if seconds > results.slowest.0 {
                    results.slowest = (seconds, name(test));
                }
                results.by_name.insert(name(test), failure);
            }
        }
        Ok(results)
    }

    /// Reads saved results; none if there are none.
    pub(super) fn load(file: &Path) -> Self {
        let text = std::fs::read(file).unwrap_or_default();
        Self { by_name: serde_json::from_slice(&text).unwrap_or_default(), ..Self::default() }
    }

    pub(super) fn save(&self, file: &Path) {
        std::fs::write(file, serde_json::to_string_pretty(&self.by_name).unwrap()).unwrap();
    }

    /// These results, replaced by later ones.
    pub(super) fn updated(mut self, later: &Self) -> Self {
        self.by_name.extend(later.by_name.clone());
        self
    }

    /// These results, where a test that passed in either run has passed.
    pub(super) fn passed_in_any(mut self, other: &Self) -> Self {
        for (name, failure) in &other.by_name {
            if failure.is_none() || !self.by_name.contains_key(name) {
                self.by_name.insert(name.clone(), failure.clone());
            }
        }
        self
    }

    /// Whether every test has passed.
    pub(super) fn all_passed(&self) -> bool {
        self.by_name.values().all(Option::is_none)
    }

    /// The number of tests that have passed.
    pub(super) fn passed(&self) -> usize {
        self.by_name.values().filter(|failure| failure.is_none()).count()
    }

    /// Whether a test ran whose name has these words, with anything where `.*` is.
    pub(super) fn has(&self, words: &str) -> bool {
        self.by_name.keys().any(|name| {
            let parts = words.split(".*").try_fold(name.as_str(), |rest, part| Some(rest.split_once(part)?.1));
            parts.is_some()
        })
    }

    /// One line of a run.
    pub(super) fn summary(&self) -> String {
        let passed = self.passed();
        let (slowest, name) = &self.slowest;
        format!(
            "{passed} of {} passed in {:.0} s; the slowest took {slowest:.0} s: {name}",
            self.by_name.len(),
            self.seconds
        )
    }
}

/// The full name of a test, as `--focus` sees it.
fn name(test: &Value) -> String {
    let parents = test["ContainerHierarchyTexts"].as_array().into_iter().flatten();
    let words: Vec<_> = parents.chain([&test["LeafNodeText"]]).filter_map(Value::as_str).collect();
    words.join(" ")
}

/// The tests that pass directly, but not through Weir.
pub(super) fn compare(direct: &Results, weir: &Results) -> Vec<String> {
    let ran = weir.by_name.iter().filter(|(_, failure)| failure.is_some());
    ran.filter(|(name, _)| direct.by_name.get(*name) == Some(&None)).map(|(name, _)| name.clone()).collect()
}

/// The tests that fail through Weir, and are not known to fail directly.
pub(super) fn suspects(direct: &Results, weir: &Results) -> Vec<String> {
    let failed = weir.by_name.iter().filter(|(_, failure)| failure.is_some());
    failed
        .filter(|(name, _)| !matches!(direct.by_name.get(*name), Some(Some(_))))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Prints the numbers of each SIG, and what differs.
pub(super) fn print(direct: &Results, weir: &Results) {
    let mut sigs: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for (name, failure) in &weir.by_name {
        let sig = name.split(']').next().unwrap_or_default().trim_start_matches('[');
        let [tests, passed, direct_tests, passed_directly] = sigs.entry(sig).or_default();
        *tests += 1;
        *passed += usize::from(failure.is_none());
        *direct_tests += usize::from(direct.by_name.contains_key(name));
        *passed_directly += usize::from(direct.by_name.get(name) == Some(&None));
    }
    println!("\n{:24} {:>12} {:>14}", "", "directly", "through Weir");
    for (sig, [tests, passed, direct_tests, passed_directly]) in sigs {
        println!("{sig:24} {passed_directly:>5} of {direct_tests:<4} {passed:>5} of {tests:<4}");
    }
    for (name, failure) in &weir.by_name {
        match (direct.by_name.get(name), failure) {
            (Some(None), Some(failure)) => println!("\nDIFFERS, passes only directly: {name}\n    {failure}"),
            (Some(Some(_)), None) => println!("\ndiffers, passes only through Weir: {name}"),
            (Some(Some(failure)), Some(_)) => println!("\nfails both ways: {name}\n    {failure}"),
            _ => {}
        }
    }
}
