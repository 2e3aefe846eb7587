//! get and list: versions, selectors, pages.
//!
//! A continue token names a version and the last key. Later pages come from that past state, which the store rebuilds
//! from its ring. Memory: pointers to the objects of one response.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, Response};
use serde_json::{Value, json};

use crate::body::{self, Body};
use crate::list_cache::ListKey;
use crate::negotiate::{self, Accepted};
use crate::plane::Plane;
use crate::render::{ListMetadata, Rendered, Renderer};
use crate::request::{Place, QueryOptions};
use crate::selector::Selector;
use crate::status::Status;
use crate::store::{CollectionSnapshot, Key, Lost, StoredObject};
use crate::table::Include;

/// How a list's resourceVersion is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VersionMatch {
    /// The latest state. It also serves any version not older than a known one, as there is only one server.
    Latest,
    /// Exactly this state.
    Exact(u64),
}

/// The start of the next page.
struct Page {
    /// `None`: the latest state.
    revision: Option<u64>,
    after: Key,
}

const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// The renderer for the negotiated format and options.
pub(crate) fn renderer(place: &Place, query: &QueryOptions, headers: &HeaderMap) -> Result<Renderer, Status> {
    let accepted = negotiate::objects(headers, &place.resource)?;
    let accepted = Accepted { pretty: accepted.pretty || query.flag("pretty"), ..accepted };
    let include = Include::parse(query.text("includeObject"));
    Ok(Renderer::new(Arc::clone(&place.resource), accepted, include))
}

/// One object. A get of its status sub-resource returns the same.
pub(crate) fn get(
    plane: &Plane,
    place: &Place,
    query: &QueryOptions,
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let renderer = renderer(place, query, headers)?;
    reached(plane, revision(query)?)?;
    let key = Key::new(&place.namespace, &place.name);
    let object = plane
        .store
        .find(&place.resource.qualified(), &key)
        .ok_or_else(|| Status::not_found(&place.resource, &place.name))?;
    Ok(answer(plane, headers, renderer.object(&object)?))
}

/// A collection or a page of it.
pub(crate) fn list(
    plane: &Plane,
    place: &Place,
    query: &QueryOptions,
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let renderer = renderer(place, query, headers)?;
    let whole = ListKey::of(place, query, &renderer);
    if let Some(whole) = &whole
        && let Some(kept) = plane.lists.get(whole, plane.store.revision())
    {
        return Ok(answer(plane, headers, kept));
    }
    let selector = Selector::parse(query.text("labelSelector"), query.text("fieldSelector"))?;
    let limit = match query.number("limit")? {
        // A list from the watch cache ignores the limit.
        _ if query.text("resourceVersion") == "0" => None,
        Some(0) | None => None,
        Some(limit) => usize::try_from(limit).ok(),
    };
    let page = match query.text("continue") {
        "" => None,
        token => Some(Page::parse(token)?),
    };
    let (snapshot, mut objects) = state(plane, place, query, limit.is_some(), page.as_ref())?;
    if let Some(page) = &page {
        objects.retain(|object| object.key > page.after);
    }
    objects.retain(|object| selector.matches(object));
    let mut meta = ListMetadata { revision: snapshot, next_page: None, remaining: None };
    if let Some(limit) = limit.filter(|limit| *limit < objects.len()) {
        let selective = !query.text("labelSelector").is_empty() || !query.text("fieldSelector").is_empty();
        meta.remaining = (!selective).then_some(objects.len() - limit);
        objects.truncate(limit);
        meta.next_page = objects.last().map(|last| Page { revision: Some(snapshot), after: last.key.clone() }.token());
    }
    let rendered = renderer.list(objects, &meta)?;
    let rendered = match whole {
        Some(whole) => plane.lists.keep(whole, snapshot, rendered),
        None => rendered,
    };
    Ok(answer(plane, headers, rendered))
}

/// The state that a list is read from, and its version.
fn state(
    plane: &Plane,
    place: &Place,
    query: &QueryOptions,
    limited: bool,
    page: Option<&Page>,
) -> Result<(u64, Vec<Arc<StoredObject>>), Status> {
    let namespace = Some(place.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let qualified = place.resource.qualified();
    let at = match page {
        Some(page) => {
            if !matches!(query.text("resourceVersion"), "" | "0") {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            page.revision
        }
        None => match version(plane, query, limited)? {
            VersionMatch::Latest => None,
            VersionMatch::Exact(revision) => Some(revision),
        },
    };
    match plane.store.snapshot(&qualified, namespace, at) {
        Ok(CollectionSnapshot { revision, objects }) => Ok((revision, objects)),
        Err(Lost::Future { current }) => Err(Status::too_large_version(at.unwrap_or(0), current)),
        Err(Lost::Expired | Lost::Removed) => Err(match page {
            Some(page) => {
                Status::expired(TOO_OLD).with_next_page(Page { revision: None, after: page.after.clone() }.token())
            }
            None => Status::expired("The resourceVersion for the provided list is too old."),
        }),
    }
}

/// The version options of a list, validated as the API server validates them.
fn version(plane: &Plane, query: &QueryOptions, limited: bool) -> Result<VersionMatch, Status> {
    let revision = revision(query)?;
    match (query.text("resourceVersionMatch"), revision) {
        ("" | "NotOlderThan" | "Exact", Some(wanted)) => {
            let kind = query.text("resourceVersionMatch");
            if kind == "Exact" && wanted == 0 {
                return Err(Status::invalid_options(
                    "resourceVersionMatch",
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
            reached(plane, Some(wanted))?;
            // Without resourceVersionMatch, a limited list at a version means exactly that version, for compatibility.
            if kind == "Exact" || (kind.is_empty() && limited && wanted > 0) {
                Ok(VersionMatch::Exact(wanted))
            } else {
                Ok(VersionMatch::Latest)
            }
        }
        ("", None) => Ok(VersionMatch::Latest),
        (_, None) => Err(Status::invalid_options(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )),
        (other, Some(_)) => Err(Status::invalid_options("resourceVersionMatch", &format!("unknown value {other:?}"))),
    }
}

/// `resourceVersion` as a number; `None` if it is absent.
pub(crate) fn revision(query: &QueryOptions) -> Result<Option<u64>, Status> {
    match query.text("resourceVersion") {
        "" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .map_err(|_| Status::bad_request(format!("resourceVersion: Invalid value: {text:?}: invalid version"))),
    }
}

/// Refuses a version that the server has not reached.
pub(crate) fn reached(plane: &Plane, wanted: Option<u64>) -> Result<(), Status> {
    let current = plane.store.revision();
    match wanted {
        Some(wanted) if wanted > current => Err(Status::too_large_version(wanted, current)),
        _ => Ok(()),
    }
}

/// A rendered response, gzipped if policy and client allow it.
pub(crate) fn answer(plane: &Plane, headers: &HeaderMap, rendered: Rendered) -> Response<Body> {
    let gzip = negotiate::accepts_gzip(headers).then(|| plane.gzip());
    body::rendered(rendered, gzip)
}

// === impl Page ===

impl Page {
    fn token(&self) -> String {
        let revision = self.revision.map_or(Value::from(-1), Value::from);
        let text = json!({
            "v": "meta.k8s.io/v1",
            "rv": revision,
            "start": format!("{}/{}\u{0}", self.after.namespace, self.after.name),
        });
        URL_SAFE_NO_PAD.encode(text.to_string())
    }

    fn parse(token: &str) -> Result<Self, Status> {
        let invalid = || Status::bad_request("continue key is not valid");
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
        let start = value.get("start").and_then(Value::as_str).ok_or_else(invalid)?;
        let (namespace, name) = start.trim_end_matches('\u{0}').split_once('/').ok_or_else(invalid)?;
        Ok(Self { revision: value.get("rv").and_then(Value::as_u64), after: Key::new(namespace, name) })
    }
}
