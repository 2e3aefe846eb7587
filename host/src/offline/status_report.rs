//! kubelet's patches of the statuses of its pods. A status that does not reach the API server is kept.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::Pod;
use weir_document::path;
use weir_kube::{Encoding, Identity, RequestInfo, Verb};
use weir_store::StoreReader;
use weir_upstream::RequestBody;

use crate::offline::Offline;
use crate::serve::body::{ResponseBody, full};
use crate::serve::get::LIMIT;
use crate::serve::respond::{ApiStatus as _, StatusError};
use weir_wire::object::body_document;

/// The largest patch that is read. The status of a pod with a hundred containers has 100 KB.
const MAX_PATCH: u64 = 256 << 10;
/// The form of kubelet's patches.
const STRATEGIC_MERGE_PATCH: HeaderValue = HeaderValue::from_static("application/strategic-merge-patch+json");

/// A patch of a pod's status by the node's kubelet.
pub(crate) struct StatusReport {
    namespace: String,
    name: String,
    patch: Bytes,
}

impl Offline {
    /// Reads the body of a request that reports a pod's status. Those of other requests are not read yet.
    ///
    /// # Errors
    /// The client did not send the whole body.
    pub(crate) async fn take_report(
        &self,
        request: Request<Incoming>,
        parsed: &RequestInfo,
        identity: Identity,
    ) -> Result<(Request<RequestBody>, Option<StatusReport>), StatusError> {
        let Some((namespace, name)) = reported_pod(&request, parsed) else { return Ok((streamed(request), None)) };
        let reader = StoreReader::of(identity, request.headers());
        let status = self.local_status.as_ref().zip(reader).filter(|(status, reader)| status.is_kubelet(reader));
        let Some((status, kubelet)) = status else { return Ok((streamed(request), None)) };
        status.follow(&kubelet);
        let (parts, body) = request.into_parts();
        let patch = body.collect().await.map_err(|error| StatusError::RequestBody(error.into()))?.to_bytes();
        let body = Full::new(patch.clone()).map_err(|never| match never {}).boxed_unsync();
        Ok((Request::from_parts(parts, body), Some(StatusReport { namespace, name, patch })))
    }

    /// Keeps a report that did not reach the API server, and notes one that did.
    pub(crate) async fn note_report(
        &self,
        report: StatusReport,
        response: Response<ResponseBody>,
    ) -> Response<ResponseBody> {
        let StatusReport { namespace, name, patch } = report;
        let Some(status) = &self.local_status else { return response };
        status.restored().await;
        let code = response.status();
        if code.is_server_error() && self.handlers.upstream.is_failing() {
            if let Err(error) = status.keep(&namespace, &name, &patch) {
                tracing::warn!(namespace, name, %error, "kubelet's patch of a pod's status is not valid");
            }
            return response;
        }
        if !status.holds(&namespace, &name) {
            return response;
        }
        match code {
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => {
                status.forget(&namespace, &name);
                response
            }
            StatusCode::OK => self.note_accepted(response).await,
            _ => response,
        }
    }

    /// Reads the pod that the API server answers with.
    async fn note_accepted(&self, response: Response<ResponseBody>) -> Response<ResponseBody> {
        let (parts, body) = response.into_parts();
        let encoding = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let encoding = encoding.and_then(Encoding::from_content_type);
        let is_plain = !parts.headers.contains_key(header::CONTENT_ENCODING);
        let is_small = body.size_hint().upper().is_none_or(|size| size <= LIMIT as u64);
        let (Some(encoding), true, true) = (encoding, is_plain, is_small) else {
            return Response::from_parts(parts, body);
        };
        let body = match Limited::new(body, LIMIT).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return StatusError::InvalidResponse(error.to_string()).response(encoding),
        };
        let pod = body_document(&parts.headers, &body);
        let pod = pod.and_then(|pod| pod.deserialize_at::<Pod>(&path!("$")).ok()?);
        if let (Some(pod), Some(status)) = (pod, &self.local_status)
            && let Err(error) = status.accept(&pod)
        {
            tracing::warn!(%error, "the API server's answer to a patch of a pod's status is not valid");
        }
        Response::from_parts(parts, full(body))
    }
}

fn streamed(request: Request<Incoming>) -> Request<RequestBody> {
    request.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// The namespace and the name of the pod whose status a request reports.
fn reported_pod(request: &Request<Incoming>, parsed: &RequestInfo) -> Option<(String, String)> {
    let resource = parsed.resource()?;
    let is_report = *request.method() == Method::PATCH
        && resource.verb == Verb::Patch
        && (&*resource.resource.resource, &*resource.resource.group) == ("pods", "")
        && resource.subresource.as_deref() == Some("status")
        // A client with a timeout says so in the query. Nothing but this one changes what a patch means.
        && parsed.query.first("dryRun").is_none()
        && request.headers().get(header::CONTENT_TYPE) == Some(&STRATEGIC_MERGE_PATCH)
        && !request.headers().contains_key(header::CONTENT_ENCODING)
        && request.body().size_hint().upper().is_some_and(|size| size <= MAX_PATCH);
    is_report.then(|| Some((resource.namespace.clone()?, resource.name.clone()?)))?
}
