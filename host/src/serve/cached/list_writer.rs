//! Writes a list chunk by chunk.
//!
//! Memory: pointers to the objects, and one chunk of output. A list that is kept stays in memory as a whole.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use weir_document::protobuf::{list_head, list_item, list_tail};
use weir_document::{Error, TypeMeta};
use weir_kube::{Encoding, Transform};
use weir_store::cache::ObjectFormat;

use super::list_memory::{EncodedList, ListKey, ListMemory, Segment, begins_segment};
use crate::serve::memory_budget::MemoryLease;
use weir_view::ViewSnapshot;
use weir_wire::partial_list;

/// The size of a chunk of output.
const CHUNK: usize = 128 << 10;

/// Writes a list.
pub(super) struct ListWriter {
    format: ObjectFormat,
    encoding: Encoding,
    transform: Transform,
    objects: VecDeque<Bytes>,
    /// What is not in a chunk yet.
    buffer: Vec<u8>,
    chunks: VecDeque<Bytes>,
    /// The length of the body, where it is known before it is written.
    length: Option<u64>,
    first: bool,
    ended: bool,
    /// An earlier list, whose segments are reused.
    recalled: Option<Arc<EncodedList>>,
    kept: Option<KeptList>,
}

/// A list that later lists reuse once it has been written.
pub(super) struct KeptList {
    memory: Arc<ListMemory>,
    key: ListKey,
    snapshot: Arc<ViewSnapshot>,
    lease: MemoryLease,
    segments: Vec<Segment>,
}

impl KeptList {
    pub(super) fn new(memory: Arc<ListMemory>, key: ListKey, snapshot: Arc<ViewSnapshot>, lease: MemoryLease) -> Self {
        Self { memory, key, snapshot, lease, segments: Vec::new() }
    }

    fn keep(self) {
        self.memory.keep(&self.key, EncodedList::new(self.snapshot, self.segments, self.lease));
    }
}

impl ListWriter {
    /// Creates a writer of these objects.
    ///
    /// # Errors
    /// An object is malformed.
    pub(super) fn new(
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
            buffer: Vec::new(),
            chunks: VecDeque::new(),
            length: None,
            first: true,
            ended: false,
            recalled: None,
            kept: None,
        };
        writer.start(snapshot.version)?;
        Ok(writer)
    }

    /// Writes in segments, and reuses those of an earlier list.
    pub(super) fn in_segments(self, recalled: Option<Arc<EncodedList>>, kept: Option<KeptList>) -> Self {
        Self { recalled, kept, ..self }
    }

    /// The length of the body, where it is known before it is written.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns the next chunk; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Result<Bytes, Error>> {
        loop {
            if let Some(chunk) = self.chunks.pop_front() {
                return Some(Ok(chunk));
            }
            if self.ended {
                return None;
            }
            if let Err(error) = self.write() {
                (self.ended, self.kept) = (true, None);
                return Some(Err(error));
            }
        }
    }

    /// Writes some objects, or the end.
    fn write(&mut self) -> Result<(), Error> {
        if self.objects.is_empty() {
            self.end();
        } else if self.recalled.is_some() || self.kept.is_some() {
            self.segment()?;
        } else {
            self.chunk()?;
        }
        if self.buffer.len() >= CHUNK {
            self.flush();
        }
        Ok(())
    }

    /// Writes objects until a chunk is full.
    fn chunk(&mut self) -> Result<(), Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.reserve(CHUNK + CHUNK / 8);
        while let Some(object) = self.objects.pop_front_if(|_| buffer.len() < CHUNK) {
            self.item(&object, !self.first, &mut buffer)?;
            self.first = false;
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Writes the next segment.
    fn segment(&mut self) -> Result<(), Error> {
        let mut objects = Vec::new();
        while let Some(object) = self.objects.pop_front_if(|next| objects.is_empty() || !begins_segment(next)) {
            objects.push(object);
        }
        let segment = match self.recalled.as_ref().and_then(|list| list.find(&objects)) {
            Some(segment) => segment.clone(),
            None => {
                let mut encoded = Vec::with_capacity(objects.iter().map(Bytes::len).sum());
                for object in &objects {
                    self.item(object, true, &mut encoded)?;
                }
                encoded.shrink_to_fit();
                Segment::new(objects, encoded.into())
            }
        };
        self.flush();
        let comma = usize::from(self.encoding == Encoding::Json && std::mem::take(&mut self.first));
        self.chunks.push_back(segment.encoded.slice(comma..));
        if let Some(kept) = &mut self.kept {
            kept.segments.push(segment);
        }
        Ok(())
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
                        let item = weir_view::list_item(&self.format, bytes, self.encoding, self.transform)?;
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

    fn item(&self, object: &Bytes, comma: bool, out: &mut Vec<u8>) -> Result<(), Error> {
        match self.encoding {
            Encoding::Json => {
                if comma {
                    out.push(b',');
                }
                let item = weir_view::list_item(&self.format, object.clone(), self.encoding, self.transform)?;
                out.extend_from_slice(&item);
            }
            Encoding::Protobuf => {
                list_item(object.len(), out);
                out.extend_from_slice(object);
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
        self.flush();
        if let Some(kept) = self.kept.take() {
            kept.keep();
        }
    }

    /// Makes a chunk of the buffer.
    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.chunks.push_back(std::mem::take(&mut self.buffer).into());
        }
    }
}
