//! Requests of feeds with the daemon's own identity: what is asked, in which form, and what a refusal means.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;

use super::error::FeedError;
use weir_kube::GroupResource;
use weir_upstream::{Gunzip, in_full};

/// Asks for one resource.
#[derive(Clone)]
pub(super) struct Asker {
    pub(super) client: kube::Client,
    pub(super) resource: GroupResource,
    /// For an answer's head and between chunks of a list.
    pub(super) patience: Duration,
}

/// A request did not give what was asked.
#[derive(Debug)]
pub(super) enum Failure {
    /// 404: the server lacks the kind.
    Missing,
    /// 410: the version or the continue token is too old.
    Expired,
    /// All else.
    Other(FeedError),
}

/// How much of a refusal's body is read for its message.
const MAX_REFUSAL: usize = 16 << 10;
/// The characters of a reason that are kept.
const MAX_REASON: usize = 400;
/// Discovery documents are small; a cluster with thousands of kinds stays below.
const MAX_DISCOVERY: usize = 4 << 20;

impl Asker {
    /// A GET. Cancel-safe: the request ends with the future.
    pub(super) async fn get(&self, path: &str, accept: &str, gzip: bool) -> Result<Response<Body>, Failure> {
        let encoding = if gzip { "gzip" } else { "identity" };
        let request = Request::get(path)
            .header(ACCEPT, accept)
            .header(ACCEPT_ENCODING, encoding)
            .body(Body::empty())
            .map_err(|error| self.malformed(error))?;
        let answer = match tokio::time::timeout(self.patience, self.client.send(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(self.unreachable(in_full(&error))),
            Err(_) => return Err(self.unreachable(format!("no answer within {:?}", self.patience))),
        };
        if answer.status() == StatusCode::OK {
            return Ok(answer);
        }
        let code = answer.status();
        let body = Limited::new(answer.into_body(), MAX_REFUSAL).collect();
        let body = match tokio::time::timeout(self.patience, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            _ => Bytes::new(),
        };
        Err(self.refusal(code, &body))
    }

    /// A small JSON document.
    pub(super) async fn document<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let answer = self.get(path, "application/json", false).await?;
        let body = Limited::new(answer.into_body(), MAX_DISCOVERY).collect();
        match tokio::time::timeout(self.patience, body).await {
            Ok(Ok(body)) => serde_json::from_slice(&body.to_bytes())
                .map_err(|error| self.malformed(format_args!("{path}: {error}"))),
            Ok(Err(error)) => Err(self.unreachable(format!("{path}: {error}"))),
            Err(_) => Err(self.unreachable(format!("{path}: the answer stopped for {:?}", self.patience))),
        }
    }

    /// What a status code other than 200 means.
    pub(super) fn refusal(&self, code: StatusCode, body: &[u8]) -> Failure {
        #[derive(serde::Deserialize)]
        struct Status {
            message: Option<String>,
        }
        let message = serde_json::from_slice::<Status>(body).ok().and_then(|status| status.message);
        let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
        let message: String = message.chars().filter(|c| !c.is_control()).take(300).collect();
        let resource = self.resource.clone();
        match code {
            StatusCode::NOT_FOUND => Failure::Missing,
            StatusCode::GONE => Failure::Expired,
            StatusCode::FORBIDDEN => Failure::Other(FeedError::Forbidden { resource, message }),
            StatusCode::UNAUTHORIZED => Failure::Other(FeedError::Unauthorized { resource, message }),
            _ if code.is_server_error()
                || code == StatusCode::TOO_MANY_REQUESTS
                || code == StatusCode::REQUEST_TIMEOUT =>
            {
                self.unreachable(format!("it answers {}: {message}", code.as_u16()))
            }
            _ => Failure::Other(FeedError::Refused { resource, code: code.as_u16(), message }),
        }
    }

    pub(super) fn unreachable(&self, reason: impl std::fmt::Display) -> Failure {
        // Part of it may be the server's own words.
        let reason = reason.to_string().chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
        Failure::Other(FeedError::Unreachable { resource: self.resource.clone(), reason })
    }

    pub(super) fn malformed(&self, reason: impl std::fmt::Display) -> Failure {
        Failure::Other(FeedError::Malformed { resource: self.resource.clone(), reason: reason.to_string() })
    }
}

/// An answer's body as it arrives, decompressed.
pub(super) struct Chunks {
    body: Body,
    gunzip: Option<Gunzip>,
}

impl Chunks {
    /// Refuses an answer that is not JSON.
    pub(super) fn of(asker: &Asker, answer: Response<Body>) -> Result<Self, Failure> {
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = header(CONTENT_TYPE);
        if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
            return Err(asker.malformed(format_args!("its content type is {kind:?}, not application/json")));
        }
        let gunzip = match header(CONTENT_ENCODING) {
            "" | "identity" => None,
            "gzip" => Some(Gunzip::default()),
            other => return Err(asker.malformed(format_args!("its content encoding is {other:?}"))),
        };
        Ok(Self { body: answer.into_body(), gunzip })
    }

    /// The next bytes; none at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            if let Some(gunzip) = &mut self.gunzip
                && let Some(piece) = gunzip.next_piece().map_err(|error| error.to_string())?
            {
                return Ok(Some(piece));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => match (frame.into_data(), &mut self.gunzip) {
                    (Ok(data), None) => return Ok(Some(data)),
                    (Ok(data), Some(gunzip)) => gunzip.feed(data),
                    (Err(_), _) => {}
                },
                Some(Err(error)) => return Err(in_full(&error)),
                None => {
                    let ended = self.gunzip.as_ref().map_or(Ok(()), Gunzip::finish);
                    return ended.map(|()| None).map_err(|error| error.to_string());
                }
            }
        }
    }
}
