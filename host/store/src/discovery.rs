//! Selects the API version of a resource by discovery: the first of the filter's versions that the API server serves, else
//! the version that the API server prefers.

use serde::Deserialize;
use weir_kube::LookupSpec;

use super::resource_client::{RequestError, ResourceClient};

/// Where the API server serves a resource: `/api/v1/services`, `/apis/apps.openyurt.io/v1beta2/nodepools`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServedResource {
    pub(super) path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiGroup {
    versions: Vec<ApiGroupVersion>,
    preferred_version: Option<ApiGroupVersion>,
}

#[derive(Deserialize)]
struct ApiGroupVersion {
    version: String,
}

#[derive(Deserialize)]
struct ApiResourceList {
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
}

/// Finds the version to read.
///
/// [`RequestError::NotFound`]: the API server serves no version that the filter can read. The core group has one version, so
/// it needs no request: a missing resource shows in the list request.
pub(super) async fn discover(client: &ResourceClient, lookup: &LookupSpec) -> Result<ServedResource, RequestError> {
    let (resource, group) = (&lookup.resource.resource, &lookup.resource.group);
    if group.is_empty() {
        return match lookup.versions.is_empty() || lookup.versions.iter().any(|version| version == "v1") {
            true => Ok(ServedResource { path: format!("/api/v1/{resource}") }),
            false => Err(RequestError::NotFound),
        };
    }
    let served: ApiGroup = client.get_json(&format!("/apis/{group}")).await?;
    for version in candidates(&lookup.versions, &served) {
        match client.get_json::<ApiResourceList>(&format!("/apis/{group}/{version}")).await {
            Ok(list) if list.resources.iter().any(|served| served.name == *resource) => {
                return Ok(ServedResource { path: format!("/apis/{group}/{version}/{resource}") });
            }
            Ok(_) | Err(RequestError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Err(RequestError::NotFound)
}

/// The versions to try, in order of preference.
fn candidates<'a>(wanted: &'a [String], group: &'a ApiGroup) -> Vec<&'a str> {
    let served = || group.versions.iter().map(|version| version.version.as_str());
    if !wanted.is_empty() {
        return wanted.iter().map(String::as_str).filter(|version| served().any(|served| served == *version)).collect();
    }
    let preferred = group.preferred_version.as_ref().map(|version| version.version.as_str());
    preferred.into_iter().chain(served().filter(|version| Some(*version) != preferred)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_the_filter_precede_the_preferred_version_of_the_server() {
        let group: ApiGroup = serde_json::from_str(
            r#"{"versions":[{"version":"v1"},{"version":"v1beta2"},{"version":"v1beta1"}],"preferredVersion":{"version":"v1beta2"}}"#,
        )
        .unwrap();
        let wanted = ["v2", "v1beta1", "v1"].map(str::to_owned);
        assert_eq!(candidates(&wanted, &group), ["v1beta1", "v1"]);
        assert_eq!(candidates(&[], &group), ["v1beta2", "v1", "v1beta1"]);
    }
}
