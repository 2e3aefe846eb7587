//! Which version of a kind the server has, by discovery: the filter's preferred ones first, else the server's.

use serde::Deserialize;

use super::request::{Asker, Failure};
use weir_kube::Lookup;

/// Where a kind is served: `/api/v1/services`, `/apis/apps.openyurt.io/v1beta2/nodepools`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    versions: Vec<GroupVersion>,
    preferred_version: Option<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Deserialize)]
struct Resources {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
}

/// Finds the version to read. [`Failure::Missing`]: the server has none that the filter can read. The core group has one
/// version, so it is not asked for: a list tells soon enough.
pub(super) async fn discover(asker: &Asker, lookup: &Lookup) -> Result<Served, Failure> {
    let (resource, group) = (&lookup.resource.resource, &lookup.resource.group);
    if group.is_empty() {
        return match lookup.versions.is_empty() || lookup.versions.iter().any(|version| version == "v1") {
            true => Ok(Served { path: format!("/api/v1/{resource}") }),
            false => Err(Failure::Missing),
        };
    }
    let present: Group = asker.document(&format!("/apis/{group}")).await?;
    for version in candidates(&lookup.versions, &present) {
        match asker.document::<Resources>(&format!("/apis/{group}/{version}")).await {
            Ok(list) if list.resources.iter().any(|present| present.name == *resource) => {
                return Ok(Served { path: format!("/apis/{group}/{version}/{resource}") });
            }
            Ok(_) | Err(Failure::Missing) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Missing)
}

/// The versions to try, in order.
fn candidates<'a>(wanted: &'a [String], present: &'a Group) -> Vec<&'a str> {
    let served = || present.versions.iter().map(|version| version.version.as_str());
    if !wanted.is_empty() {
        return wanted.iter().map(String::as_str).filter(|version| served().any(|served| served == *version)).collect();
    }
    let preferred = present.preferred_version.as_ref().map(|version| version.version.as_str());
    preferred.into_iter().chain(served().filter(|version| Some(*version) != preferred)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_order_goes_before_the_servers() {
        let group: Group = serde_json::from_str(
            r#"{"versions":[{"version":"v1"},{"version":"v1beta2"},{"version":"v1beta1"}],"preferredVersion":{"version":"v1beta2"}}"#,
        )
        .unwrap();
        let wanted = ["v2", "v1beta1", "v1"].map(str::to_owned);
        assert_eq!(candidates(&wanted, &group), ["v1beta1", "v1"]);
        assert_eq!(candidates(&[], &group), ["v1beta2", "v1", "v1beta1"]);
    }
}
