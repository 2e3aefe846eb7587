//! Finds where a looked-up resource is served, and retries until the API server answers.
//!
//! Selects the API version of a resource by discovery: the first of the filter's versions that the API server serves, else
//! the version that the API server prefers.

use std::sync::Arc;

use serde::Deserialize;
use weir_spec::LookupSpec;
use weir_upstream::{BackOff, Reconnects, jitter};

use super::cache::ReflectorClient;
use super::error::ReflectorError;
use super::resource_client::{RequestError, ResourceClient};
use super::timing::ReflectorTiming;

/// Asks the API server for the version of a lookup's resource.
pub(super) struct Discovery {
    client: ResourceClient,
    lookup: Arc<LookupSpec>,
    timing: ReflectorTiming,
    reconnects: Reconnects,
}

/// The only version of the core group.
const CORE_VERSION: &str = "v1";

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

impl Discovery {
    pub(super) fn new(client: ReflectorClient, lookup: Arc<LookupSpec>, timing: ReflectorTiming) -> Self {
        let ReflectorClient { client, connectivity, .. } = client;
        let resource = lookup.resource.clone();
        let client = ResourceClient { client, resource, response_timeout: timing.response_timeout };
        Self { client, lookup, timing, reconnects: connectivity.reconnects() }
    }

    /// Waits for the version to read; `None` if the API server serves no version that the filter can read. Errors are
    /// reported and retried. Cancel-safe.
    pub(super) async fn version(&mut self, report: impl Fn(ReflectorError)) -> Option<String> {
        let mut backoff = BackOff::new(self.timing.initial_backoff, self.timing.max_backoff);
        loop {
            match discover(&self.client, &self.lookup).await {
                Ok(version) => return Some(version),
                Err(RequestError::NotFound) => return None,
                // The daemon sends with its own credential.
                Err(RequestError::Expired | RequestError::UnknownVersion | RequestError::Withdrawn) => {}
                Err(RequestError::Other(error)) => report(error),
            }
            backoff.wait_or_reconnect(&mut self.reconnects).await;
        }
    }

    /// Waits until it is time to look again for a resource that is not served.
    pub(super) async fn pause(&mut self) {
        let mut backoff = BackOff::new(self.timing.initial_backoff, self.timing.max_backoff);
        backoff.wait_for(jitter(self.timing.rediscovery), &mut self.reconnects).await;
    }
}

/// Finds the version to read.
///
/// [`RequestError::NotFound`]: the API server serves no version that the filter can read. The core group has one version, so
/// it needs no request: a missing resource shows in the list request.
async fn discover(client: &ResourceClient, lookup: &LookupSpec) -> Result<String, RequestError> {
    let (resource, group) = (&lookup.resource.resource, &lookup.resource.group);
    if group.is_empty() {
        return match lookup.versions.is_empty() || lookup.versions.iter().any(|version| version == CORE_VERSION) {
            true => Ok(CORE_VERSION.to_owned()),
            false => Err(RequestError::NotFound),
        };
    }
    let served: ApiGroup = client.get_json(&format!("/apis/{group}")).await?;
    for version in candidates(&lookup.versions, &served) {
        match client.get_json::<ApiResourceList>(&format!("/apis/{group}/{version}")).await {
            Ok(list) if list.resources.iter().any(|served| served.name == *resource) => {
                return Ok(version.to_owned());
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
