//! Reads of Weir's own whose answers are remembered.

use std::time::Duration;
use weir_kube::Identity;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt as _, Limited};
use tokio::time::timeout;
use weir_upstream::{AnsweredBy, Purpose, RequestHead, error_report, no_request_body};

use crate::offline::Offline;

/// The timeout of a fetch.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer.
const LIMIT: usize = 16 << 20;

impl Offline {
    /// Sends a get that the API server itself answers, and returns its whole answer. `fits`: whether there is room for so many
    /// bytes.
    ///
    /// # Errors
    /// Why there is none, as text.
    pub(super) async fn fetch(
        &self,
        identity: Identity,
        path: PathAndQuery,
        headers: HeaderMap,
        fits: impl Fn(usize) -> bool,
    ) -> Result<(http::response::Parts, Bytes), String> {
        let head = RequestHead { method: Method::GET, path, headers, answered_by: AnsweredBy::Server };
        let fetch = async {
            let response = self.handlers.upstream.send(identity, Purpose::Short, head, no_request_body()).await;
            let (parts, body) = response.map_err(|error| error_report(&error))?.into_parts();
            let (mut body, mut whole) = (Limited::new(body, LIMIT), Vec::new());
            while let Some(frame) = body.frame().await {
                let data = frame.map_err(|error| error.to_string())?.into_data().unwrap_or_default();
                if !fits(whole.len() + data.len()) {
                    return Err("its client has no share left for it".to_owned());
                }
                whole.extend_from_slice(&data);
            }
            Ok((parts, whole.into()))
        };
        timeout(TIMEOUT, fetch).await.map_err(|_| format!("no response within {TIMEOUT:?}"))?
    }
}
