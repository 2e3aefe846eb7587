//! The path of a request: record, hook, authentication, routing, authorization, verb.
//!
//! Memory: the state of one request.

use std::sync::Arc;

use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;

use crate::access::Attributes;
use crate::body::{self, Body};
use crate::discovery;
use crate::fault::{self, Action, Broken};
use crate::negotiate;
use crate::plane::Plane;
use crate::read;
use crate::record::Connection;
use crate::request::{Place, QueryOptions, Target, target};
use crate::selector::Selector;
use crate::status::Status;
use crate::stream;
use crate::watch;
use crate::write::{self, Posted, collect};

/// Serves a request, or closes its connection if a hook says so.
pub(crate) async fn handle(
    plane: Arc<Plane>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Broken> {
    let recorded = plane.record.add(&request, &connection);
    let mut action = match plane.hook() {
        Some(hook) => hook(&recorded),
        None => Action::Serve,
    };
    loop {
        match action {
            Action::Serve => return Ok(serve(&plane, request).await),
            Action::Answer(response) => return Ok(fault::answer(response)),
            Action::Stream(response) => return Ok(response),
            Action::Hang => std::future::pending::<()>().await,
            Action::Reset => return Err(Broken),
            Action::Cut { after, end } => {
                let response = serve(&plane, request).await;
                return Ok(fault::cut(response, after, end));
            }
            Action::Warn(warning) => {
                let mut response = serve(&plane, request).await;
                response.headers_mut().append(http::header::WARNING, warning);
                return Ok(response);
            }
            Action::After(wait, next) => {
                wait.await;
                action = *next;
                continue;
            }
        }
        action = Action::Hang;
    }
}

async fn serve(plane: &Arc<Plane>, request: Request<Incoming>) -> Response<Body> {
    if let Some(answer) = plane.fixed.answer(request.uri().path()) {
        return answer;
    }
    let audit = request.headers().get("audit-id").cloned();
    let media = negotiate::status(request.headers());
    let mut response = match route(plane, request).await {
        Ok(response) => response,
        Err(status) => status.response(media),
    };
    let headers = response.headers_mut();
    let made = HeaderValue::from_static("00000000-0000-4000-8000-000000000000");
    headers.insert("audit-id", audit.unwrap_or(made));
    headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

async fn route(plane: &Arc<Plane>, mut request: Request<Incoming>) -> Result<Response<Body>, Status> {
    let path = request.uri().path().to_owned();
    let query = QueryOptions::parse(request.uri());
    let user = plane.access.user(request.headers())?;
    let caller = Attributes::of(user, request.headers(), &path);
    let place = match target(&plane.catalog, &path) {
        Target::Path => return Ok(discovery::answer(&plane.catalog, &path, request.headers())),
        Target::Resource(place) => place,
    };
    let verb = place.verb(request.method(), &query);
    if place.resource.review {
        return review(plane, &place, &caller.at(&place, verb, None), verb, request).await;
    }
    let selector = Selector::parse(query.text("labelSelector"), query.text("fieldSelector"))?;
    plane.access.check(&caller.at(&place, verb, selector.name()))?;
    if let Some(subresource) = place.subresource.clone()
        && let Some(answer) = kubelet(plane, &place, &query, &subresource, &mut request)
    {
        return answer;
    }
    match verb {
        "get" => read::get(plane, &place, &query, request.headers()),
        "list" => read::list(plane, &place, &query, request.headers()),
        "watch" => watch::watch(plane, &place, &query, request.headers()),
        _ => write(plane, &place, &query, verb, request).await,
    }
}

/// The subresources that a kubelet would serve; `None` for all others.
fn kubelet(
    plane: &Plane,
    place: &Place,
    query: &QueryOptions,
    subresource: &str,
    request: &mut Request<Incoming>,
) -> Option<Result<Response<Body>, Status>> {
    match subresource {
        "log" => Some(Ok(stream::log(plane, place, query))),
        "exec" | "attach" | "portforward" => Some(stream::upgrade(plane, request)),
        "proxy" if request.headers().contains_key(http::header::UPGRADE) => Some(stream::upgrade(plane, request)),
        "proxy" => {
            let line = format!("{} {}\n", request.method(), request.uri());
            Some(Ok(body::respond(StatusCode::OK, "text/plain", body::full(line))))
        }
        _ => None,
    }
}

async fn write(
    plane: &Plane,
    place: &Place,
    query: &QueryOptions,
    verb: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, Status> {
    let (parts, body) = request.into_parts();
    let posted = Posted {
        plane,
        place,
        query,
        headers: &parts.headers,
        renderer: read::renderer(place, query, &parts.headers)?,
        media: negotiate::status(&parts.headers),
        body: collect(body).await?,
    };
    let named = !place.name.is_empty();
    let namespaced = !place.resource.namespaced || !place.namespace.is_empty();
    match (verb, place.subresource.as_deref()) {
        ("create", Some(subresource)) => posted.create_sub(subresource),
        ("create", None) if !named && namespaced => posted.create(),
        ("update", _) if named => posted.update(),
        ("patch", _) if named => posted.patch(),
        ("delete", None) => posted.delete(),
        ("deletecollection", None) if namespaced => posted.delete_collection(),
        _ => Err(Status::method_not_allowed()),
    }
}

async fn review(
    plane: &Plane,
    place: &Place,
    caller: &Attributes,
    verb: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, Status> {
    if verb != "create" || !place.name.is_empty() {
        return Err(Status::method_not_allowed());
    }
    let (parts, body) = request.into_parts();
    let posted = write::object(&parts.headers, &collect(body).await?)?;
    let answer = plane.access.review(caller, &place.resource.kind, Value::Object(posted))?;
    Ok(body::json(StatusCode::CREATED, &answer))
}
