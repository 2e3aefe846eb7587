//! Remembers complete responses for the time in which no API server can be reached: in memory, and on disk beyond the
//! process.
//!
//! A key names everything that a response depends on, the credential of its client included, as a hash. So only the client
//! that fetched a response gets it again. Confidential responses are encrypted on disk, and not stored there without a key.
//! Bounds: [`MAX_RESPONSE`] each, and in memory the share of the owner, see `process/src/ledger.rs`, copies of responses on their way
//! included. The cache on disk bounds its values itself.

mod recorder;
mod table;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use tokio::time::Instant;
use weir_store::disk::{CachedValue, DiskCache};

use self::table::AnswerTable;
use crate::serve::body::{ResponseBody, full};
use crate::serve::cached::OFFLINE;
use weir_process::ledger::{Ledger, Owner};
use weir_upstream::clock;

/// The largest response that is remembered. The OpenAPI document of all built-in groups has about 5 MiB.
const MAX_RESPONSE: usize = 16 << 20;
/// How long a response is kept whose client needs no further permission.
pub(crate) const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);
/// The shortest time between two writes of a response that may change often.
pub(crate) const WRITE_INTERVAL: Duration = Duration::from_secs(60);
/// The headers that a remembered response has. It has another length, and no date.
const HEADERS: [HeaderName; 5] =
    [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::ETAG, header::LAST_MODIFIED, header::VARY];

/// The remembered responses. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct AnswerMemory {
    recent: Arc<Mutex<AnswerTable>>,
    /// What is being copied: one response of each name at a time.
    copies: Arc<Mutex<HashSet<String>>>,
    ledger: Ledger,
    disk: Option<Arc<DiskCache>>,
}

/// A response in memory.
#[derive(Debug, Clone)]
struct Recent {
    answer: Arc<Answer>,
    /// When a response of this name was written to disk.
    written: Instant,
    /// Whether it was this one.
    is_written: bool,
}

/// The request that a response depends on, and how it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnswerKey {
    pub(super) name: String,
    /// Whose share it counts in.
    pub(super) owner: Owner,
    /// Whether the response is encrypted on disk.
    pub(super) confidential: bool,
    /// The response is not replayed from this time on.
    pub(super) expires: SystemTime,
    /// The shortest time between two writes to disk.
    pub(super) interval: Duration,
}

/// A remembered response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) expires: SystemTime,
}

impl Answer {
    /// Copies the head of a response.
    pub(super) fn of(parts: &http::response::Parts, body: Bytes, expires: SystemTime) -> Self {
        let headers = HEADERS.into_iter().filter_map(|name| Some((name.clone(), parts.headers.get(name)?.clone())));
        Self { status: parts.status, headers: headers.collect(), body, expires }
    }

    /// The response, with a warning that it may be stale.
    pub(crate) fn response(&self) -> Response<ResponseBody> {
        let mut response = Response::new(full(self.body.clone()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        response.headers_mut().insert(header::WARNING, OFFLINE);
        response
    }

    /// Whether this response serves as well as a newer one: it is the same, and lasts about as long.
    fn covers(&self, newer: &Self) -> bool {
        let left = |answer: &Self| answer.expires.duration_since(clock::now()).unwrap_or_default();
        let lasts = left(self) > left(newer) / 2 && newer.expires >= self.expires;
        lasts && (self.status, &self.headers, &self.body) == (newer.status, &newer.headers, &newer.body)
    }

    fn is_expired(&self) -> bool {
        self.expires <= clock::now()
    }

    /// One line of JSON with the head, then the body.
    fn to_bytes(&self) -> Vec<u8> {
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        let mut bytes = serde_json::to_vec(&(self.status.as_u16(), headers)).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.body);
        bytes
    }

    fn from_bytes(CachedValue { bytes, expires }: CachedValue) -> Option<Self> {
        let bytes = Bytes::from(bytes);
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (status, headers): (u16, Vec<(String, String)>) = serde_json::from_slice(bytes.get(..end)?).ok()?;
        let header = |(name, value): (String, String)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        };
        let headers = headers.into_iter().map(header).collect::<Option<_>>()?;
        Some(Self { status: StatusCode::from_u16(status).ok()?, headers, body: bytes.slice(end + 1..), expires })
    }
}

impl AnswerKey {
    /// The name of a response in memory and on disk. It begins with its owner.
    fn full_name(&self) -> String {
        format!("{}/{}", self.owner.folder(), self.name)
    }
}

impl AnswerMemory {
    /// Without a disk, responses are remembered as long as the process runs.
    pub(crate) fn new(disk: Option<Arc<DiskCache>>, ledger: Ledger) -> Self {
        Self { recent: Arc::new(Mutex::new(AnswerTable::new(ledger.clone()))), copies: Arc::default(), ledger, disk }
    }

    /// Returns the response that is remembered under a key.
    pub(crate) async fn get(&self, key: &AnswerKey) -> Option<Arc<Answer>> {
        let name = key.full_name();
        let recent = self.recent().get(&name);
        if let Some(recent) = recent.filter(|recent| !recent.answer.is_expired()) {
            return Some(recent.answer);
        }
        let value = self.disk.as_ref()?.get(&name).await?;
        let answer = Arc::new(Answer::from_bytes(value)?);
        let recent = Recent { answer: answer.clone(), written: Instant::now(), is_written: true };
        self.recent().insert(&key.owner, &name, recent);
        Some(answer)
    }

    /// Forgets what is in memory: it may be of another cluster than the one that answers now.
    pub(crate) fn forget_all(&self) {
        *self.recent() = AnswerTable::new(self.ledger.clone());
    }

    /// Forgets the response that is remembered under a key.
    pub(crate) fn forget(&self, key: &AnswerKey) {
        let name = key.full_name();
        let mut recent = self.recent();
        recent.remove(&name);
        if let Some(disk) = &self.disk {
            disk.remove_later(&name);
        }
    }

    /// Remembers a response. One that is on disk already is not written again, and one that changes often only now and then:
    /// flash wears.
    pub(crate) fn put(&self, key: &AnswerKey, answer: Answer) {
        if answer.body.len() > MAX_RESPONSE {
            return;
        }
        let name = key.full_name();
        // Held until the response waits for the disk: of two of one name, the later one is the one on disk, too.
        let mut recent = self.recent();
        let known = recent.get(&name);
        if known.as_ref().is_some_and(|known| known.is_written && known.answer.covers(&answer)) {
            return;
        }
        let answer = Arc::new(answer);
        let written = known.map(|known| known.written).filter(|written| written.elapsed() < key.interval);
        let (is_written, written) = (written.is_none(), written.unwrap_or_else(Instant::now));
        let has_room = recent.insert(&key.owner, &name, Recent { answer: answer.clone(), written, is_written });
        if let Some(disk) = self.disk.as_ref().filter(|_| is_written && has_room) {
            let value = CachedValue { bytes: answer.to_bytes(), expires: answer.expires };
            disk.put_later(&name, value, key.confidential);
        }
    }

    fn recent(&self) -> MutexGuard<'_, AnswerTable> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(lifetime: i64) -> AnswerKey {
        let (now, span) = (clock::now(), Duration::from_secs(lifetime.unsigned_abs()));
        let expires = if lifetime < 0 { now - span } else { now + span };
        AnswerKey { name: "a".to_owned(), owner: Owner::Node, confidential: true, expires, interval: Duration::ZERO }
    }

    fn answer(expires: SystemTime) -> Answer {
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.status = StatusCode::CREATED;
        parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("9"));
        Answer::of(&parts, Bytes::from_static(b"{}\n{\"a\":1}"), expires)
    }

    #[tokio::test]
    async fn a_response_is_replayed_as_it_came_until_it_expires() {
        let memory = AnswerMemory::new(None, Ledger::new(256 << 20));
        let key = key(60);
        memory.put(&key, answer(key.expires));
        let replayed = memory.get(&key).await.unwrap();
        assert_eq!((replayed.status, &replayed.body[..]), (StatusCode::CREATED, &b"{}\n{\"a\":1}"[..]));
        assert!(replayed.response().headers().contains_key(header::WARNING));
        assert!(!replayed.headers.contains_key(header::CONTENT_LENGTH));
        memory.put(&key, answer(self::key(-1).expires));
        assert_eq!(memory.get(&key).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_changes_often_is_written_now_and_then() {
        let memory = AnswerMemory::new(None, Ledger::new(256 << 20));
        let key = AnswerKey { interval: WRITE_INTERVAL, ..key(3600) };
        let put = |text: &'static str| {
            memory.put(&key, Answer { body: text.into(), ..answer(key.expires) });
            memory.recent().get(&key.full_name()).unwrap().is_written
        };
        assert!(put("a") && put("a"));
        assert!(!put("b") && !put("b") && !put("c"));
        tokio::time::advance(WRITE_INTERVAL).await;
        assert!(put("c"), "also if it did not change since");
        assert_eq!(memory.get(&key).await.unwrap().body, "c");
    }

    #[test]
    fn a_response_on_disk_has_its_head_and_its_body() {
        let expires = key(60).expires;
        let answer = answer(expires);
        let value = |bytes| CachedValue { bytes, expires };
        assert_eq!(Answer::from_bytes(value(answer.to_bytes())), Some(answer));
        for damaged in ["", "{}", "[200]\n", "[200,[[\"a b\",\"c\"]]]\n", "[1,[]]\n"] {
            assert_eq!(Answer::from_bytes(value(damaged.as_bytes().to_vec())), None, "{damaged:?}");
        }
    }
}
