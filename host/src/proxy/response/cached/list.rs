//! A list from a view: a consistent snapshot, selected and encoded while it is sent.
//!
//! Memory: pointers to the selected objects, and one chunk of output.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use weir_document::protobuf::{list_head, list_item, list_tail};
use weir_document::{Error, TypeMeta};
use weir_kube::{Encoding, Transform, Verb};

use super::table::table;
use super::{CachedRead, Start, head};
use crate::codec::object::partial_list;
use crate::proxy::Proxy;
use crate::proxy::body::{AbortError, ResponseBody, full};
use crate::proxy::respond::StatusError;
use crate::view::{self, View, ViewSnapshot};

/// How long a list waits for a version that the view has not reached; as kube-apiserver.
const FRESH: Duration = Duration::from_secs(3);
/// The size of a chunk of output.
const CHUNK: usize = 128 << 10;

/// Answers a list.
///
/// # Errors
/// The version is in the future, or a selected object has no verdict.
pub(super) async fn list(proxy: &Proxy, read: &CachedRead, view: &View) -> Result<Response<ResponseBody>, StatusError> {
    if let Start::NotOlderThan(version) = read.start {
        let mut changes = view.subscribe();
        let reached = changes.wait_for(|_| view.snapshot().version >= version);
        if tokio::time::timeout(FRESH, reached).await.is_err() {
            return Err(StatusError::TooLargeVersion { version, current: view.snapshot().version });
        }
    }
    let snapshot = view.snapshot();
    let objects = selected(read, &snapshot)?;
    proxy.remember_list(read, &snapshot);
    let media_type = read.media_type;
    if let Transform::Table(version, include) = media_type.transform {
        let body = table(&snapshot.format, &objects, Some(snapshot.version), (version, include))?;
        let response = head(media_type.encoding, Verb::List).body(full(body));
        return response.map_err(|error| StatusError::InvalidResponse(error.to_string()));
    }
    let writer = ListWriter::new(&snapshot, media_type.encoding, media_type.transform, objects);
    let writer = writer.map_err(|error| StatusError::InvalidResponse(error.to_string()))?;
    let mut builder = head(media_type.encoding, Verb::List);
    if let Some(length) = writer.length {
        builder = builder.header(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    let chunks = stream::unfold(writer, |mut writer| async move {
        let chunk = writer.next()?;
        Some((chunk.map(Frame::data).map_err(|error| AbortError::InvalidResponse(error.to_string())), writer))
    });
    builder
        .body(StreamBody::new(chunks).boxed_unsync())
        .map_err(|error| StatusError::InvalidResponse(error.to_string()))
}

/// The bytes that the client sees of the selected objects.
fn selected(read: &CachedRead, snapshot: &ViewSnapshot) -> Result<VecDeque<Bytes>, StatusError> {
    let mut objects = VecDeque::new();
    for object in snapshot.objects.values() {
        if matches!((object.shown(), object.failure()), (None, None))
            || !read.selector.matches(&snapshot.format, &object.source)
        {
            continue;
        }
        match (object.shown(), object.failure()) {
            (Some(bytes), _) => objects.push_back(bytes.clone()),
            (None, Some(failure)) => return Err(StatusError::Filter(failure.clone())),
            (None, None) => {}
        }
    }
    Ok(objects)
}

/// Writes a list chunk by chunk.
struct ListWriter {
    format: weir_store::cache::ObjectFormat,
    encoding: Encoding,
    transform: Transform,
    objects: VecDeque<Bytes>,
    buffer: Vec<u8>,
    /// The length of the body, where it is known before it is written.
    length: Option<u64>,
    first: bool,
    ended: bool,
}

impl ListWriter {
    fn new(
        snapshot: &ViewSnapshot,
        encoding: Encoding,
        transform: Transform,
        objects: VecDeque<Bytes>,
    ) -> Result<Self, Error> {
        let mut writer = Self {
            format: snapshot.format.clone(),
            encoding,
            transform,
            objects,
            buffer: Vec::with_capacity(CHUNK + CHUNK / 8),
            length: None,
            first: true,
            ended: false,
        };
        writer.start(snapshot.version)?;
        Ok(writer)
    }

    fn start(&mut self, version: u64) -> Result<(), Error> {
        let type_meta = match self.transform {
            Transform::Metadata(version) => partial_list(version),
            Transform::None | Transform::Table(..) => TypeMeta {
                api_version: self.format.type_meta.api_version.clone(),
                kind: format!("{}List", self.format.type_meta.kind),
            },
        };
        match self.encoding {
            Encoding::Json => {
                let TypeMeta { api_version, kind } = &type_meta;
                // Both come from a list that the API server sent.
                let [api_version, kind] = [api_version, kind].map(|text| serde_json::Value::from(text.as_str()));
                let metadata = format!("\"metadata\":{{\"resourceVersion\":\"{version}\"}}");
                let head = format!("{{\"kind\":{kind},\"apiVersion\":{api_version},{metadata},\"items\":[");
                self.buffer.extend_from_slice(head.as_bytes());
            }
            Encoding::Protobuf => {
                // Its length comes first, so that the objects are converted before the first byte is sent.
                if self.transform != Transform::None {
                    let objects = std::mem::take(&mut self.objects);
                    for bytes in objects {
                        let item = view::list_item(&self.format, bytes, self.encoding, self.transform)?;
                        self.objects.push_back(item);
                    }
                    self.transform = Transform::None;
                }
                let lengths = self.objects.iter().map(Bytes::len);
                self.buffer = list_head(&type_meta, &version.to_string(), "", lengths);
                let mut frame = Vec::new();
                let items: usize = self
                    .objects
                    .iter()
                    .map(|bytes| {
                        frame.clear();
                        list_item(bytes.len(), &mut frame);
                        frame.len() + bytes.len()
                    })
                    .sum();
                frame.clear();
                list_tail(&mut frame);
                self.length = Some((self.buffer.len() + items + frame.len()) as u64);
            }
        }
        Ok(())
    }

    /// Returns the next chunk; `None` at the end.
    fn next(&mut self) -> Option<Result<Bytes, Error>> {
        if self.ended {
            return None;
        }
        while self.buffer.len() < CHUNK {
            let Some(bytes) = self.objects.pop_front() else {
                self.end();
                break;
            };
            if let Err(error) = self.item(bytes) {
                self.ended = true;
                return Some(Err(error));
            }
        }
        let chunk = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK + CHUNK / 8));
        Some(Ok(chunk.into()))
    }

    fn item(&mut self, bytes: Bytes) -> Result<(), Error> {
        match self.encoding {
            Encoding::Json => {
                if !std::mem::take(&mut self.first) {
                    self.buffer.push(b',');
                }
                let bytes = view::list_item(&self.format, bytes, self.encoding, self.transform)?;
                self.buffer.extend_from_slice(&bytes);
            }
            Encoding::Protobuf => {
                list_item(bytes.len(), &mut self.buffer);
                self.buffer.extend_from_slice(&bytes);
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        self.ended = true;
        match self.encoding {
            Encoding::Json => self.buffer.extend_from_slice(b"]}\n"),
            Encoding::Protobuf => list_tail(&mut self.buffer),
        }
    }
}
