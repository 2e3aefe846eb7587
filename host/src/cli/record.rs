//! `weir record`: the objects that a filter matches and looks up in a cluster, as files for `weir run`, `dev` and `test`.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::CommandError;
use super::cluster::{Cluster, Wanted};
use super::project::Project;
use super::run::{chain_for, document, every, title};
use super::workbench::{Workbench, block_on, entry, load_granted, module};
use crate::config::author::RecordFlags;
use crate::logging::Repeated;
use crate::lookups::FileView;
use weir_kube::GroupResource;
use weir_runtime::{FilterSet, Outcome, Probe};
use weir_spec::{FilterEntry, MatchRule};

/// What `--object` reads.
const OBJECTS: &str = "objects.json";
/// What `--cluster` reads.
const CLUSTER: &str = "cluster.json";
/// What is in the folder of `--cases`.
const CASES: &str = "cases/recorded.json";
/// The most recorded cases: they are for people to read.
const MAX_CASES: usize = 50;

/// Writes three files: the objects that the filter matches, those that it looks up, and cases with its present outcomes.
///
/// # Errors
/// The module or the cluster is not usable, or a file cannot be written.
pub fn record(flags: &RecordFlags) -> Result<(), CommandError> {
    let workbench = Workbench::of(&flags.modules, Repeated::LeftOut)?;
    let path = Project::module_or(flags.module.as_deref())?;
    let module = module(&path)?;
    let entry = entry(&flags.entry, &path)?;
    block_on(async {
        // Its lookups may depend on the name of the node.
        let nothing = view(flags, &[])?;
        let probe = workbench.loader(nothing).inspect(&entry, &module).await;
        let probe = probe.map_err(CommandError::of_module(&path))?;
        let cluster = Cluster::connect(&flags.cluster).await?;
        let mut objects = Vec::new();
        for resource in matched(flags, &probe, &entry)? {
            objects.extend(cluster.list(&Wanted::all(resource, flags.namespace.as_deref())).await?.unwrap_or_default());
        }
        let mut looked_up: Vec<Value> = Vec::new();
        for lookup in &probe.lookups {
            let found = cluster.list(&Wanted::of(lookup)?).await?.unwrap_or_default();
            looked_up.extend(found);
        }
        // Several lookups may have the same objects.
        looked_up.sort_by_key(title);
        looked_up.dedup_by_key(|object| title(object));
        let filter = FilterEntry { matches: Some(vec![every()?]), ..entry.clone() };
        let loader = workbench.loader(view(flags, &looked_up)?);
        let loaded = load_granted(&loader, filter, &path.display().to_string(), &module, |_| {}).await;
        let set = FilterSet::new(vec![Arc::new(loaded.map_err(CommandError::of_module(&path))?)]);
        let cases = cases(&set, &objects, &looked_up, &entry, flags).await;
        write(&flags.output, OBJECTS, &list(&objects))?;
        write(&flags.output, CLUSTER, &list(&looked_up))?;
        write(&flags.output, CASES, &cases)?;
        let folder = flags.output.display();
        print_line!("{folder}/{OBJECTS}: {} objects that the filter matches", objects.len());
        print_line!("{folder}/{CLUSTER}: {} objects that it looks up", looked_up.len());
        print_line!("{folder}/{CASES}: {} cases with its present outcomes", objects.len().min(MAX_CASES));
        print_line!("\nweir run {} --object {folder}/{OBJECTS} --cluster {folder}/{CLUSTER}", path.display());
        print_line!("weir test {} --cases {folder}/cases", path.display());
        Ok(())
    })
}

/// What the filter sees.
fn view(flags: &RecordFlags, objects: &[Value]) -> Result<FileView, CommandError> {
    FileView::new(&flags.node_name, objects.iter().cloned(), Vec::new(), None)
        .map_err(|source| CommandError::Objects { what: "the cluster".to_owned(), source })
}

/// The resources to record.
fn matched(flags: &RecordFlags, probe: &Probe, entry: &FilterEntry) -> Result<Vec<GroupResource>, CommandError> {
    if !flags.resource.is_empty() {
        return Ok(flags.resource.clone());
    }
    let planned = || probe.matches.iter().filter_map(|rule| rule.parse().ok()).collect();
    let rules: Vec<MatchRule> = entry.matches.clone().unwrap_or_else(planned);
    let mut resources: Vec<GroupResource> = rules.iter().filter_map(|rule| rule.resource().cloned()).collect();
    resources.sort();
    resources.dedup();
    match resources.is_empty() {
        true => Err(CommandError::invalid("--resource", "missing: the filter's rules name none")),
        false => Ok(resources),
    }
}

/// Cases that expect what the filter makes of the objects now.
async fn cases(
    set: &FilterSet,
    objects: &[Value],
    cluster: &[Value],
    entry: &FilterEntry,
    flags: &RecordFlags,
) -> Value {
    let mut cases = Vec::new();
    for object in objects.iter().take(MAX_CASES) {
        let Some(chain) = chain_for(set, object) else { continue };
        for outcome in chain.run(vec![document(object)]).await {
            let expect = match outcome {
                Outcome::Unchanged => json!("unchanged"),
                Outcome::Hidden => json!("hidden"),
                Outcome::Edited(bytes) => {
                    json!({"object": serde_json::from_slice::<Value>(&bytes).unwrap_or_default()})
                }
                Outcome::Failed(failure) => json!({"error": failure.message.as_ref()}),
            };
            cases.push(json!({"name": title(object), "rule": "recorded", "input": object, "expect": expect}));
        }
    }
    json!({"settings": entry.settings, "node": {"name": flags.node_name}, "cluster": cluster, "cases": cases})
}

fn list(objects: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": objects})
}

fn write(folder: &Path, name: &str, content: &Value) -> Result<(), CommandError> {
    let path = folder.join(name);
    let folder = path.parent().unwrap_or(folder);
    std::fs::create_dir_all(folder).map_err(CommandError::of_directory(folder))?;
    let mut text = serde_json::to_string_pretty(content).map_err(|error| CommandError::System(error.into()))?;
    text.push('\n');
    std::fs::write(&path, text).map_err(CommandError::of_file(&path))
}
