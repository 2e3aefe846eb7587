//! `weir run`: runs one filter on objects from files and prints the changes as a diff.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use weir_document::Document;

use super::workbench::{Workbench, block_on, entry, load_granted, module, some_objects, world};
use super::{CommandError, bench};
use crate::config::author::RunFlags;
use crate::explanation;
use crate::logging::Repeated;
use weir_kube::{GroupResource, VerbClass};
use weir_runtime::{Chain, FilterSet, LoadError, Loader, Outcome};
use weir_spec::{FilterEntry, MatchRule};

/// The result of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Objects that the filter ran on.
    pub objects: usize,
    /// Objects that it failed on.
    pub failed: usize,
}

/// Runs a filter and prints the outcome for each object.
///
/// # Errors
/// A file or the module is not usable. If the filter fails on an object, the result counts the failure.
pub fn run(flags: &RunFlags) -> Result<RunSummary, CommandError> {
    let workbench = Workbench::of(&flags.modules, Repeated::Shown)?;
    let (text, summary) = block_on(async {
        let module_bytes = module(&flags.module)?;
        let loader = workbench.loader(world(&flags.world)?);
        let listed = entry(&flags.entry, &flags.module)?;
        // Its own rules may name a client, which no object has: those are compared below.
        let entry = FilterEntry { matches: Some(vec![every()?]), ..listed.clone() };
        let objects = some_objects(&flags.object)?;
        // In the daemon a lookup needs the grant.
        let note = |resource: &GroupResource| {
            eprintln!("weir: note: the configuration of this filter needs {resource} in `grants`");
        };
        let source = flags.module.display().to_string();
        let filter = load_granted(&loader, entry, &source, &module_bytes, note).await;
        let filter = filter.map_err(CommandError::of_module(&flags.module))?;
        if flags.bench {
            return bench::bench(&module_bytes, filter, &objects).await;
        }
        let rules = rules(&loader, listed, &module_bytes).await.map_err(CommandError::of_module(&flags.module))?;
        Ok(run_on(&FilterSet::new(vec![Arc::new(filter)]), &rules, &objects).await)
    })?;
    std::io::stdout().write_all(text.as_bytes()).map_err(CommandError::System)?;
    Ok(summary)
}

/// The match rules of a filter: those of its entry, or else of its module's plan.
async fn rules(loader: &Loader, entry: FilterEntry, module: &Bytes) -> Result<Vec<MatchRule>, LoadError> {
    if let Some(rules) = entry.matches {
        return Ok(rules);
    }
    let probe = loader.inspect(&entry, module).await?;
    // A rule that is none was refused when the filter was loaded.
    Ok(probe.matches.iter().filter_map(|rule| rule.parse().ok()).collect())
}

async fn run_on(set: &FilterSet, rules: &[MatchRule], objects: &[Value]) -> (String, RunSummary) {
    let (mut text, mut summary) = (String::new(), RunSummary::default());
    for object in objects {
        let title = title(object);
        let resource = resource(object);
        if !rules.iter().any(|rule| rule.covers(&resource)) {
            let rules: Vec<_> = rules.iter().map(ToString::to_string).collect();
            let _ =
                writeln!(text, "{title}: no rule matches it, the filter does not run (its rules: {})", rules.join(" "));
            continue;
        }
        summary.objects += 1;
        let Some(chain) = chain_for(set, object) else { continue };
        for outcome in chain.run(vec![document(object)]).await {
            // Writing to a String cannot fail.
            let _ = match outcome {
                Outcome::Unchanged => writeln!(text, "{title}: unchanged"),
                Outcome::Hidden => writeln!(text, "{title}: hidden"),
                Outcome::Edited(bytes) => writeln!(text, "{title}: edited\n{}", diff(object, &bytes)),
                Outcome::Failed(failure) => {
                    summary.failed += 1;
                    writeln!(text, "{title}: failed ({}): {}", failure.class.label(), failure.message)
                }
            };
        }
    }
    (text, summary)
}

/// The rule that matches all requests.
pub(super) fn every() -> Result<MatchRule, CommandError> {
    "*/*".parse().map_err(|error| CommandError::invalid("*/*", format!("{error}")))
}

/// Returns the chain for one object, whichever client reads it.
pub(super) fn chain_for(set: &FilterSet, object: &Value) -> Option<Chain> {
    set.chain("weir-run", &resource(object), VerbClass::Read)
}

/// Returns an object as an API server sends it.
pub(super) fn document(object: &Value) -> Document {
    Document::json(Bytes::from(object.to_string()))
}

/// Returns the resource of an object.
pub(super) fn resource(object: &Value) -> GroupResource {
    let field = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    GroupResource::of_kind(field("apiVersion"), field("kind"))
}

/// Returns the resource and the name of an object.
pub(super) fn title(object: &Value) -> String {
    let of = |name: &str| object.pointer(&format!("/metadata/{name}")).and_then(Value::as_str).unwrap_or_default();
    match of("namespace") {
        "" => format!("{} {}", resource(object), of("name")),
        namespace => format!("{} {namespace}/{}", resource(object), of("name")),
    }
}

fn diff(before: &Value, after: &[u8]) -> String {
    match serde_json::from_slice::<Value>(after) {
        Ok(after) => explanation::diff(before, &after),
        Err(_) => String::from_utf8_lossy(after).into_owned(),
    }
}
