//! Errors as the `Status` objects of kube-apiserver, with reasons and details: clients depend on them, not on the
//! text.

use http::{Response, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::body::{self, Body};
use crate::catalog::Resource;
use crate::negotiate::Media;
use crate::render;

/// The error of a request. It is boxed, as every `Result` of the crate contains it.
#[derive(Clone, Debug)]
pub(crate) struct Status(Box<StatusFields>);

#[derive(Clone, Debug)]
struct StatusFields {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    /// The token with which an expired paged list may continue inconsistently.
    next_page: Option<String>,
}

// === impl Status ===

impl Status {
    fn new(code: StatusCode, reason: &'static str, message: String) -> Self {
        Self(Box::new(StatusFields { code, reason, message, details: Map::new(), next_page: None }))
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        if !name.is_empty() {
            self.0.details.insert("name".into(), name.into());
        }
        if !resource.group.is_empty() {
            self.0.details.insert("group".into(), resource.group.clone().into());
        }
        self.0.details.insert("kind".into(), resource.plural.clone().into());
        self
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(resource, name)
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name)
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(resource, name)
    }

    pub(crate) fn invalid(resource: &Resource, name: &str, field: &str, why: &str) -> Self {
        let kind = qualified_kind(&resource.group, &resource.kind);
        let mut status = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!("{kind} \"{name}\" is invalid: {field}: {why}"),
        )
        .about(resource, name);
        status.0.details.insert("kind".into(), resource.kind.clone().into());
        let cause = json!({"reason": "FieldValueInvalid", "message": why, "field": field});
        status.0.details.insert("causes".into(), json!([cause]));
        status
    }

    /// The options of a list or watch contradict each other.
    pub(crate) fn invalid_options(field: &str, why: &str) -> Self {
        let mut status = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: Forbidden: {why}"),
        );
        let cause = json!({"reason": "FieldValueForbidden", "message": format!("Forbidden: {why}"), "field": field});
        status.0.details.insert("group".into(), "meta.k8s.io".into());
        status.0.details.insert("kind".into(), "ListOptions".into());
        status.0.details.insert("causes".into(), json!([cause]));
        status
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message.into())
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized".into())
    }

    pub(crate) fn forbidden(message: String) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message.into())
    }

    pub(crate) fn too_large_version(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let mut status = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        status.0.details.insert("causes".into(), json!([cause]));
        status.0.details.insert("retryAfterSeconds".into(), 1.into());
        status
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource".into(),
        )
    }

    pub(crate) fn not_acceptable() -> Self {
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/vnd.kubernetes.protobuf".into(),
        )
    }

    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}"),
        )
    }

    pub(crate) fn internal(message: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    pub(crate) fn too_big() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            "the request body is larger than the server takes".into(),
        )
    }

    #[must_use]
    pub(crate) fn with_next_page(mut self, token: String) -> Self {
        self.0.next_page = Some(token);
        self
    }

    /// The object itself, for the ERROR event of a watch.
    pub(crate) fn value(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.0.next_page {
            metadata.insert("continue".into(), token.clone().into());
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.0.message,
            "reason": self.0.reason,
        });
        if let Some(object) = status.as_object_mut() {
            if !self.0.details.is_empty() {
                object.insert("details".into(), self.0.details.clone().into());
            }
            object.insert("code".into(), self.0.code.as_u16().into());
        }
        status
    }

    /// The complete response.
    pub(crate) fn response(&self, media: Media) -> Response<Body> {
        let mut response = answer(self.0.code, &self.value(), media);
        if let Some(seconds) = self.0.details.get("retryAfterSeconds").and_then(Value::as_u64) {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// A Status as a response, failure or success.
pub(crate) fn answer(code: StatusCode, status: &Value, media: Media) -> Response<Body> {
    let in_protobuf = match media {
        Media::Json => None,
        Media::Protobuf => render::sealed(status).ok(),
    };
    match in_protobuf {
        Some(bytes) => body::respond(code, media.name(), body::full(bytes)),
        None => body::json(code, status),
    }
}

/// `Service`, or `NodePool.apps.openyurt.io`.
fn qualified_kind(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

/// The Status of a completed deletion.
pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = Map::new();
    details.insert("name".into(), name.into());
    if !resource.group.is_empty() {
        details.insert("group".into(), resource.group.clone().into());
    }
    details.insert("kind".into(), resource.plural.clone().into());
    details.insert("uid".into(), uid.into());
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
