//! Which form of an answer a client's `Accept` asks for. JSON is the only encoding; Table and metadata are shapes of it.
//!
//! Keeps nothing.

use http::{HeaderMap, header};

use crate::status::Status;

/// The shape of a get, list or watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects themselves.
    Objects,
    /// `as=Table`: rows for a printer.
    Table,
    /// `as=PartialObjectMetadata` or its list.
    Metadata,
}

/// The first acceptable form, in the client's order (Kubernetes ignores `q`).
pub(crate) fn form(headers: &HeaderMap) -> Result<Form, Status> {
    let mut any = false;
    for value in headers.get_all(header::ACCEPT) {
        for range in value.to_str().unwrap_or("").split(',') {
            if range.trim().is_empty() {
                continue;
            }
            any = true;
            if let Some(form) = one(range) {
                return Ok(form);
            }
        }
    }
    if any { Err(Status::not_acceptable()) } else { Ok(Form::Objects) }
}

fn one(range: &str) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let (mut shape, mut group, mut version) = (None, None, None);
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => shape = Some(value),
            Some(("g", value)) => group = Some(value),
            Some(("v", value)) => version = Some(value),
            _ => {}
        }
    }
    let meta = matches!((group, version), (Some("meta.k8s.io"), Some("v1" | "v1beta1")));
    match shape {
        None => Some(Form::Objects),
        Some("Table") if meta => Some(Form::Table),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") if meta => Some(Form::Metadata),
        Some(_) => None,
    }
}

/// Whether the client takes gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.split(';').next().is_some_and(|name| name.trim() == "gzip"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_is_served_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        for (accept, expected) in [
            ("*/*", Some(Form::Objects)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Form::Objects)),
            ("application/vnd.kubernetes.protobuf, */*", Some(Form::Objects)),
            ("application/vnd.kubernetes.protobuf", None),
            (table, Some(Form::Table)),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                Some(Form::Objects),
            ),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Form::Metadata)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(form(&headers).ok(), expected, "{accept}");
        }
        assert_eq!(form(&HeaderMap::new()).ok(), Some(Form::Objects));
    }
}
