//! The objects that a plan's lookups return: for each declared resource its objects, sorted, reduced to metadata where
//! declared so. Built when a filter is configured or its environment changes.

use std::collections::BTreeMap;
use std::ops::Bound;

use weir_document::{Document, Error, TypeMeta};
use weir_kube::{GroupResource, LabelSelector};

use super::Environment;
use crate::{Lookup, Plan};

/// The objects of one resource by namespace (empty if cluster-scoped) and name.
type ObjectsByName = BTreeMap<(String, String), Document>;

/// The objects of an environment that a plan declares.
#[derive(Debug, Default)]
pub(super) struct LookupStore {
    resources: BTreeMap<String, ObjectsByName>,
}

impl LookupStore {
    pub(super) fn new(plan: &Plan, environment: &Environment) -> Result<Self, String> {
        let mut store = Self::default();
        for lookup in &plan.lookups {
            let selector = LabelSelector::parse(lookup.label_selector.as_deref().unwrap_or(""))
                .map_err(|error| format!("lookup of {}: {error}", lookup.resource))?;
            let objects = store.resources.entry(lookup.resource.clone()).or_default();
            for document in &environment.cluster {
                let object = |error: Error| format!("an object of the cluster: {error}");
                if declares(lookup, &selector, document).map_err(object)? {
                    let key = key(document).map_err(object)?;
                    let document =
                        if lookup.metadata_only { metadata(document).map_err(object)? } else { document.clone() };
                    let document = document.read_only();
                    // Parses the document now, so that all its clones share the result.
                    document.name().map_err(object)?;
                    objects.entry(key).or_insert(document);
                }
            }
        }
        Ok(store)
    }

    /// Returns one object. Fails if the resource is not declared.
    pub(super) fn get(&self, resource: &str, namespace: Option<&str>, name: &str) -> Result<Option<Document>, String> {
        let key = (namespace.unwrap_or("").to_owned(), name.to_owned());
        Ok(self.objects(resource)?.get(&key).cloned())
    }

    /// Returns the objects that match a selector, sorted by namespace, then name.
    pub(super) fn find(
        &self,
        resource: &str,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Vec<Document>, String> {
        let selector = LabelSelector::parse(selector).map_err(|error| error.to_string())?;
        let start = Bound::Included((namespace.unwrap_or("").to_owned(), String::new()));
        let within = self.objects(resource)?.range((start, Bound::Unbounded));
        let within = within.take_while(|((place, _), _)| namespace.is_none_or(|namespace| place == namespace));
        let mut found = Vec::new();
        for (_, document) in within {
            if matches(&selector, document).map_err(|error| error.to_string())? {
                found.push(document.clone());
            }
        }
        Ok(found)
    }

    fn objects(&self, resource: &str) -> Result<&ObjectsByName, String> {
        self.resources.get(resource).ok_or_else(|| format!("the plan declares no lookup of {resource}"))
    }
}

fn declares(lookup: &Lookup, selector: &LabelSelector, document: &Document) -> Result<bool, Error> {
    let api_version = document.api_version()?;
    let version = api_version.rsplit('/').next().unwrap_or_default();
    Ok(GroupResource::of_kind(&api_version, &document.kind()?).to_string() == lookup.resource
        && (lookup.versions.is_empty() || lookup.versions.iter().any(|declared| declared == version))
        && lookup.name.as_deref().is_none_or(|name| document.name().is_ok_and(|found| found == name))
        && matches(selector, document)?)
}

fn matches(selector: &LabelSelector, document: &Document) -> Result<bool, Error> {
    let mut unreadable = None;
    let matched = selector.matches(|key| match document.label(key) {
        Ok(value) => value.map(|value| value.into_owned()),
        Err(error) => {
            unreadable = Some(error);
            None
        }
    });
    unreadable.map_or(Ok(matched), Err)
}

fn key(document: &Document) -> Result<(String, String), Error> {
    let namespace = document.namespace()?.unwrap_or_default().into_owned();
    Ok((namespace, document.name()?.into_owned()))
}

/// Reduces the object to a PartialObjectMetadata in JSON.
fn metadata(document: &Document) -> Result<Document, Error> {
    let partial = TypeMeta { api_version: "meta.k8s.io/v1".to_owned(), kind: "PartialObjectMetadata".to_owned() };
    let whole = Document::json(document.to_json()?.into());
    Ok(Document::json(whole.only_metadata(&partial)?))
}
