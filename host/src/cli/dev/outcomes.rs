//! The outcomes of given objects, and how those of two builds differ.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::cli::CommandError;
use crate::cli::run::{chain_for, document, every, resource, title};
use crate::cli::workbench::Workbench;
use crate::lookups::FileView;
use weir_runtime::{FilterSet, Outcome};
use weir_spec::{Digest, FilterEntry};

/// The most objects that a comparison names.
const NAMED: usize = 10;

/// The outcome of each object that the filter matches, by its resource and name.
#[derive(Debug)]
pub(super) struct Outcomes(Vec<(String, Made)>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Made {
    Unchanged,
    Edited(Bytes),
    Hidden,
    Failed(String),
}

/// Filters the objects. All of them can be looked up.
pub(super) async fn outcomes(
    workbench: &Workbench,
    entry: &FilterEntry,
    path: &Path,
    module: &Bytes,
    objects: &[Value],
) -> Result<Outcomes, CommandError> {
    let view = FileView::new("weir-dev", objects.iter().cloned(), Vec::new(), None)
        .map_err(|source| CommandError::Objects { what: "--object".to_owned(), source })?;
    let loaded =
        workbench.loader(view).load(entry, path.display().to_string(), Digest::of(module), module, || {}).await;
    let mut filter = loaded.map_err(CommandError::of_module(path))?;
    let rules = filter.rules().to_vec();
    // Whichever client reads an object.
    let every = FilterEntry { matches: Some(vec![every()?]), ..entry.clone() };
    filter = filter.with_rules_of(&every).unwrap_or(filter);
    let set = FilterSet::new(vec![Arc::new(filter)]);
    let mut made = Vec::new();
    for object in objects {
        let Some(chain) = chain_for(&set, object) else { continue };
        if !rules.iter().any(|rule| rule.covers(&resource(object))) {
            continue;
        }
        made.extend(chain.run(vec![document(object)]).await.into_iter().map(|outcome| (title(object), outcome.into())));
    }
    Ok(Outcomes(made))
}

impl Outcomes {
    /// Describes the difference from an earlier build: `12 changed: 3 newly hidden`. The objects are the same in both.
    pub(super) fn since(&self, before: Option<&Self>) -> String {
        let Some(before) = before else {
            let count = |wanted: fn(&Made) -> bool| self.0.iter().filter(|(_, made)| wanted(made)).count();
            return format!(
                "{} objects: {} unchanged, {} edited, {} hidden, {} failed\n",
                self.0.len(),
                count(|made| *made == Made::Unchanged),
                count(|made| matches!(made, Made::Edited(_))),
                count(|made| *made == Made::Hidden),
                count(|made| matches!(made, Made::Failed(_))),
            );
        };
        let pairs = self.0.iter().zip(&before.0).filter(|((_, now), (_, then))| now != then);
        let changes: Vec<_> = pairs.map(|((title, now), (_, then))| (title, change(then, now))).collect();
        let mut text = format!("{} objects: ", self.0.len());
        if changes.is_empty() {
            return text + "no outcome changed\n";
        }
        let kinds = ["newly failing", "newly hidden", "newly shown", "otherwise edited"];
        let counts = kinds.iter().filter_map(|kind| {
            let count = changes.iter().filter(|(_, change)| change == kind).count();
            (count > 0).then(|| format!("{count} {kind}"))
        });
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} changed: {}", changes.len(), counts.collect::<Vec<_>>().join(", "));
        for (title, change) in changes.iter().take(NAMED) {
            let _ = writeln!(text, "  {title}: {change}");
        }
        if changes.len() > NAMED {
            let _ = writeln!(text, "  and {} more", changes.len() - NAMED);
        }
        text
    }
}

fn change(then: &Made, now: &Made) -> &'static str {
    match (then, now) {
        (_, Made::Failed(_)) => "newly failing",
        (_, Made::Hidden) => "newly hidden",
        (Made::Hidden | Made::Failed(_), _) => "newly shown",
        _ => "otherwise edited",
    }
}

impl From<Outcome> for Made {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Unchanged => Self::Unchanged,
            Outcome::Edited(bytes) => Self::Edited(bytes),
            Outcome::Hidden => Self::Hidden,
            Outcome::Failed(failure) => Self::Failed(failure.message.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(made: &[Made]) -> Outcomes {
        Outcomes(made.iter().enumerate().map(|(n, made)| (format!("services s-{n}"), made.clone())).collect())
    }

    #[test]
    fn differences_are_counted_by_kind_and_named() {
        let edited = |text: &'static str| Made::Edited(Bytes::from_static(text.as_bytes()));
        let failed = || Made::Failed("no".to_owned());
        let before = of(&[Made::Unchanged, edited("a"), Made::Hidden, edited("b"), Made::Hidden, failed()]);
        assert_eq!(before.since(None), "6 objects: 1 unchanged, 2 edited, 2 hidden, 1 failed\n");
        assert_eq!(before.since(Some(&before)), "6 objects: no outcome changed\n");
        let now = of(&[Made::Hidden, edited("c"), Made::Unchanged, Made::Unchanged, failed(), failed()]);
        assert_eq!(
            now.since(Some(&before)),
            "6 objects: 5 changed: 1 newly failing, 1 newly hidden, 1 newly shown, 2 otherwise edited\n  \
             services s-0: newly hidden\n  services s-1: otherwise edited\n  services s-2: newly shown\n  \
             services s-3: otherwise edited\n  services s-4: newly failing\n"
        );
        let all = of(&vec![Made::Hidden; 25]);
        assert!(all.since(Some(&of(&vec![Made::Unchanged; 25]))).ends_with("  and 15 more\n"));
    }
}
