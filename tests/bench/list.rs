//! Lists as the API server writes them, in both encodings.
//!
//! Memory: at most [`BLOCK`] distinct objects. A longer list repeats them and shares their bytes.

use bytes::Bytes;
use serde_json::{Value, json};
use weir_document::TypeMeta;
use weir_document::protobuf::{self, Envelope};

use crate::data;

/// The number of distinct objects in a list.
pub(crate) const BLOCK: usize = 1000;

/// The encoding of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encoding {
    Json,
    Protobuf,
}

/// The kind of a list's objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Services of about 2 KB.
    Services,
    /// EndpointSlices of 100 endpoints. The ten of one pool remain after filtering.
    Slices,
}

/// A list of any length.
pub(crate) struct List {
    pub(crate) kind: Kind,
    pub(crate) encoding: Encoding,
    /// The number of objects.
    pub(crate) count: usize,
    parts: Vec<Bytes>,
}

// === impl Encoding ===

impl Encoding {
    pub(crate) const BOTH: [Self; 2] = [Self::Json, Self::Protobuf];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Protobuf => "protobuf",
        }
    }

    pub(crate) fn media(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    pub(crate) fn watch_media(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

// === impl Kind ===

impl Kind {
    pub(crate) const BOTH: [Self; 2] = [Self::Services, Self::Slices];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Services => "Services of 2 KB",
            Self::Slices => "EndpointSlices of 100 endpoints",
        }
    }

    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::Slices => "endpointslices",
        }
    }

    /// Returns the path of the list. The daemon's own lookups use other paths.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Services => "/api/v1/namespaces/team/services",
            Self::Slices => "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices",
        }
    }

    /// Returns the two bundled filters for kube-proxy's reads of this kind. The engine tables use the first one.
    pub(crate) fn filters(self) -> [&'static str; 2] {
        match self {
            Self::Services => ["nodeportisolation", "discardcloudservice"],
            Self::Slices => ["servicetopology", "forwardkubesvctraffic"],
        }
    }

    pub(crate) fn type_meta(self) -> TypeMeta {
        let (api_version, kind) = match self {
            Self::Services => ("v1", "Service"),
            Self::Slices => ("discovery.k8s.io/v1", "EndpointSlice"),
        };
        TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() }
    }

    pub(crate) fn object(self, n: usize) -> Value {
        match self {
            Self::Services => data::service(n),
            Self::Slices => data::slice(n, 100),
        }
    }

    /// Returns an item of a list, without apiVersion and kind.
    fn item(self, n: usize) -> String {
        let mut item = self.object(n);
        let members = item.as_object_mut().unwrap();
        members.remove("apiVersion");
        members.remove("kind");
        item.to_string()
    }

    /// Returns a list of this number of objects.
    pub(crate) fn list(self, encoding: Encoding, count: usize) -> List {
        let whole = count / BLOCK;
        let blocks = [(BLOCK, whole), (count % BLOCK, 1)];
        let blocks = blocks.into_iter().filter(|(items, times)| items * times > 0);
        let parts = match encoding {
            Encoding::Json => self.json(blocks),
            Encoding::Protobuf => self.protobuf(blocks),
        };
        List { kind: self, encoding, count, parts }
    }

    /// Encodes a list from blocks of items, each repeated the given number of times.
    fn json(self, blocks: impl Iterator<Item = (usize, usize)>) -> Vec<Bytes> {
        let TypeMeta { api_version, kind } = self.type_meta();
        let head = json!({"kind": format!("{kind}List"), "apiVersion": api_version, "metadata": {"resourceVersion": "900000"}});
        let head = head.to_string();
        let mut parts = vec![Bytes::from(format!("{},\"items\":[", head.strip_suffix('}').unwrap()))];
        for (items, times) in blocks {
            let items: Vec<_> = (0..items).map(|n| self.item(n)).collect();
            let block = Bytes::from(format!("{},", items.join(",")));
            parts.extend(std::iter::repeat_n(block, times));
        }
        if let Some(last) = parts.last_mut() {
            last.truncate(last.len() - 1);
        }
        parts.push("]}\n".into());
        parts
    }

    fn protobuf(self, blocks: impl Iterator<Item = (usize, usize)>) -> Vec<Bytes> {
        let type_meta = self.type_meta();
        // metadata {2 resourceVersion}
        let mut metadata = vec![0x0a, 8, 0x12, 6];
        metadata.extend_from_slice(b"900000");
        let mut parts = vec![Bytes::new(), metadata.into()];
        for (items, times) in blocks {
            let mut block = Vec::new();
            for n in 0..items {
                let message = protobuf::from_json(&type_meta, &self.item(n)).unwrap();
                record(0x12, message.len(), &mut block);
                block.extend_from_slice(&message);
            }
            parts.extend(std::iter::repeat_n(Bytes::from(block), times));
        }
        // The envelope of an empty list, split where the list belongs.
        let of_list = TypeMeta { kind: format!("{}List", type_meta.kind), ..type_meta };
        let envelope = Envelope::seal(&of_list, b"");
        let (before, after) = envelope.split_at(envelope.len() - 6);
        assert_eq!(after, [0x12, 0, 0x1a, 0, 0x22, 0], "raw, contentEncoding, contentType");
        let mut head = before.to_vec();
        record(0x12, parts.iter().map(Bytes::len).sum(), &mut head);
        parts[0] = head.into();
        parts.push(Bytes::copy_from_slice(&after[2..]));
        parts
    }
}

// === impl List ===

impl List {
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    pub(crate) fn megabytes(&self) -> f64 {
        self.bytes() as f64 / 1e6
    }

    /// Returns the list in chunks of at most this size.
    pub(crate) fn chunks(&self, size: usize) -> impl Iterator<Item = Bytes> {
        self.parts.iter().flat_map(move |part| part.chunks(size).map(|chunk| part.slice_ref(chunk)))
    }

    /// Returns the list in one piece.
    pub(crate) fn whole(&self) -> Bytes {
        self.parts.concat().into()
    }

    /// `1,000 Services of 2 KB in JSON`
    pub(crate) fn name(&self) -> String {
        format!("{} {} in {}", thousands(self.count), self.kind.name(), self.encoding.name())
    }
}

/// `10,000`
fn thousands(count: usize) -> String {
    match count {
        0..1000 => count.to_string(),
        _ => format!("{},{:03}", count / 1000, count % 1000),
    }
}

/// Writes the tag and the length of a record.
fn record(tag: u8, mut length: usize, out: &mut Vec<u8>) {
    out.push(tag);
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}
