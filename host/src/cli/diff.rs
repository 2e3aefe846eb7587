//! `weir diff`: what a new configuration would change for the clients of a node, on the objects of the cluster.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::CommandError;
use super::cluster::Wanted;
use super::output::error_items;
use super::run::{document, title};
use super::site::Site;
use super::workbench::{block_on, configuration, read, shown};
use crate::config::Configuration;
use crate::config::operator::{DiffFlags, OutputFormat};
use crate::node_facts::{OFF, SWITCH};
use weir_kube::{GroupResource, VerbClass};
use weir_runtime::{FilterSet, Outcome};
use weir_spec::Mode;

/// The client that stands for all that no rule names.
const ANY: &str = "any other client";
/// The most objects that are named for one kind of change.
const NAMED: usize = 5;

/// What clients see of an object.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Unchanged,
    Edited(bytes::Bytes),
    Hidden,
    Failed,
}

/// What changes for one client component in one resource.
struct Difference {
    component: String,
    resource: GroupResource,
    objects: usize,
    hidden: Vec<String>,
    shown: Vec<String>,
    edited: Vec<String>,
    failed: Vec<String>,
}

/// Compares two configurations and prints what differs. Returns whether nothing does.
///
/// # Errors
/// A configuration or the cluster is not usable.
pub fn diff(flags: &DiffFlags) -> Result<bool, CommandError> {
    let differences = error_items(flags.output, block_on(differences(flags)))?;
    let changed = differences.iter().any(|difference| difference.changed() > 0);
    match flags.output {
        OutputFormat::Json => {
            print_line!("{:#}", json!(differences.iter().map(Difference::to_json).collect::<Vec<_>>()))
        }
        OutputFormat::Text => {
            differences.iter().for_each(|difference| print_line!("{}", difference.to_text().trim_end()))
        }
    }
    Ok(!changed)
}

/// Reads the new configuration before the cluster, whose credential may need a login.
async fn differences(flags: &DiffFlags) -> Result<Vec<Difference>, CommandError> {
    let after = configuration(&flags.config, &read(&flags.config)?)?;
    let site = Site::connect(&flags.site, &flags.node_name, flags.verbosity).await?;
    let before = match &flags.against {
        Some(file) => configuration(file, &read(file)?)?,
        None => site.configuration().await?,
    };
    for (configuration, file) in [(&after, shown(&flags.config)), (&before, "in force".to_owned())] {
        notes(configuration).iter().for_each(|note| eprintln!("{file}: note: {note}"));
    }
    if site.is_off() {
        eprintln!(
            "note: {SWITCH}={OFF} of Node {} turns all filters off: nothing differs before it is removed",
            flags.node_name
        );
    }
    let new = site.load(&shown(&flags.config), &after).await?;
    let old = site.load("the configuration in force", &before).await?;
    compare(&site, &old, &new).await
}

async fn compare(site: &Site, old: &FilterSet, new: &FilterSet) -> Result<Vec<Difference>, CommandError> {
    let mut found = Vec::new();
    for resource in resources(old, new)? {
        let objects = site.cluster.list(&Wanted::all(resource.clone(), None)).await?.unwrap_or_default();
        for component in components(old, new, &resource) {
            let (before, after) =
                (seen(old, &component, &resource, &objects).await, seen(new, &component, &resource, &objects).await);
            let mut difference = Difference::of(component, resource.clone(), objects.len());
            for ((object, before), after) in objects.iter().zip(before).zip(after) {
                difference.add(object, &before, &after);
            }
            found.push(difference);
        }
    }
    Ok(found)
}

/// The resources that a filter of either set matches.
fn resources(old: &FilterSet, new: &FilterSet) -> Result<BTreeSet<GroupResource>, CommandError> {
    let rules = || old.filters().iter().chain(new.filters()).flat_map(|filter| filter.rules());
    if let Some(rule) = rules().find(|rule| rule.resource().is_none()) {
        return Err(CommandError::invalid(rule, "a rule for all resources cannot be compared: name the resources"));
    }
    Ok(rules().filter_map(|rule| rule.resource().cloned()).collect())
}

/// The client components that a rule names, and one that none names if a rule is for all.
fn components(old: &FilterSet, new: &FilterSet, resource: &GroupResource) -> BTreeSet<String> {
    let filters = old.filters().iter().chain(new.filters());
    let rules = filters.flat_map(|filter| filter.rules()).filter(|rule| rule.covers(resource));
    rules.map(|rule| rule.component().unwrap_or(ANY).to_ascii_lowercase()).collect()
}

async fn seen(set: &FilterSet, component: &str, resource: &GroupResource, objects: &[Value]) -> Vec<Seen> {
    let Some(chain) = set.chain(component, resource, VerbClass::Read) else {
        return objects.iter().map(|_| Seen::Unchanged).collect();
    };
    let outcomes = chain.run(objects.iter().map(document).collect()).await;
    let seen = outcomes.into_iter().map(|outcome| match outcome {
        Outcome::Unchanged => Seen::Unchanged,
        Outcome::Edited(bytes) => Seen::Edited(bytes),
        Outcome::Hidden => Seen::Hidden,
        Outcome::Failed(_) => Seen::Failed,
    });
    seen.collect()
}

/// What a comparison does not show.
fn notes(configuration: &Configuration) -> Vec<String> {
    let observed = configuration.filters.iter().filter(|entry| entry.mode == Mode::Observe);
    observed.map(|entry| format!("filter {} only observes, so it changes nothing", entry.name)).collect()
}

impl Difference {
    fn of(component: String, resource: GroupResource, objects: usize) -> Self {
        let [hidden, shown, edited, failed] = Default::default();
        Self { component, resource, objects, hidden, shown, edited, failed }
    }

    fn add(&mut self, object: &Value, before: &Seen, after: &Seen) {
        if before == after {
            return;
        }
        let list = match (before, after) {
            (_, Seen::Failed) => &mut self.failed,
            (_, Seen::Hidden) => &mut self.hidden,
            (Seen::Hidden, _) => &mut self.shown,
            _ => &mut self.edited,
        };
        list.push(title(object));
    }

    fn kinds(&self) -> [(&'static str, &Vec<String>); 4] {
        [("hidden", &self.hidden), ("shown", &self.shown), ("edited", &self.edited), ("failed", &self.failed)]
    }

    fn changed(&self) -> usize {
        self.kinds().iter().map(|(_, objects)| objects.len()).sum()
    }

    fn to_text(&self) -> String {
        let Self { component, resource, objects, .. } = self;
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = match self.changed() {
            0 => writeln!(text, "{component} {resource}: none of {objects} objects changes"),
            changed => writeln!(text, "{component} {resource}: {changed} of {objects} objects change"),
        };
        for (kind, objects) in self.kinds().iter().filter(|(_, objects)| !objects.is_empty()) {
            let more = objects.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let named: Vec<_> =
                objects.iter().take(NAMED).map(|title| title.rsplit(' ').next().unwrap_or(title)).collect();
            let _ = writeln!(text, "  {} {kind}: {}{more}", objects.len(), named.join(", "));
        }
        text
    }

    fn to_json(&self) -> Value {
        json!({
            "component": self.component,
            "resource": self.resource.to_string(),
            "objects": self.objects,
            "hidden": self.hidden,
            "shown": self.shown,
            "edited": self.edited,
            "failed": self.failed,
        })
    }
}
