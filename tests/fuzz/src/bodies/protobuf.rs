//! The properties that hold for any bytes as protobuf.

use super::{edit::Edit, partial};
use bytes::Bytes;
use serde_json::Value as Tree;
use std::{fmt::Debug, sync::Arc};
use weir_document::{
    Column, Document, Error, Path, SplitError, TypeMeta,
    list::{self, Batch, ItemOutcome, ListMeta, Piece},
    protobuf::{Envelope, Frame, FrameSplitter, Joiner, ListSplitter, event, from_json},
};

/// The kinds that filters handle, and kinds with further types of fields: bytes, times, JSON, messages inlined twice.
const KINDS: [(&str, &str); 16] = [
    ("v1", "Service"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("v1", "Endpoints"),
    ("v1", "Pod"),
    ("v1", "ConfigMap"),
    ("v1", "Node"),
    ("v1", "Secret"),
    ("v1", "Status"),
    ("v1", "Event"),
    ("v1", "PersistentVolume"),
    ("discovery.k8s.io/v1beta1", "EndpointSlice"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "ControllerRevision"),
    ("coordination.k8s.io/v1", "Lease"),
    ("certificates.k8s.io/v1", "CertificateSigningRequest"),
    ("events.k8s.io/v1", "Event"),
];

/// Input: the kind, then, as for JSON, a line with a path, a line with the bits and the kind of an edit, a line with a
/// value, then the message.
///
/// A failed edit changes nothing. An object that can be read completely is equivalent to its JSON: the JSON reads the
/// same, has the same edits, and encodes to the same object.
pub fn document(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let Some((api_version, kind)) = KINDS.get(usize::from(*kind) % KINDS.len()) else { return };
    let type_meta = Arc::new(TypeMeta { api_version: (*api_version).into(), kind: (*kind).into() });
    let Some((edit, message)) = Edit::parse(data) else { return };
    let opened = |bytes: Bytes| match Document::protobuf(bytes, type_meta.clone()) {
        Some(document) => document,
        None => panic!("{kind} is not in the schema"),
    };
    let document = opened(Bytes::copy_from_slice(message));
    let text = document.to_json();
    let said = reads(&document, &edit.path);
    assert_eq!(reads(&document, &edit.path), said);
    assert_eq!(document.bytes(), message);
    let edited = edited(&document, &edit);
    let Ok(text) = text else { return };
    assert!(serde_json::from_str::<Tree>(&text).is_ok_and(|tree| tree.is_object()), "{text}");
    if let Some(edited) = &edited {
        assert!(edited.to_json().is_ok(), "what could be read cannot be read after an edit");
    }
    // A message may contain what an object cannot: a quantity without a number, a repeated key, a zero time that is
    // present.
    let Ok(again) = from_json(&type_meta, &text) else { return };
    let again = opened(again);
    let Ok(json) = again.to_json() else { panic!("what was encoded cannot be read") };
    assert_eq!(without_nulls(&json), without_nulls(&text));
    assert_eq!(from_json(&type_meta, &json).as_ref(), Ok(again.bytes()));
    let json = Document::json(json.into());
    assert_eq!(reads(&json, &edit.path), reads(&again, &edit.path));
    // A Status has the metadata of a list.
    if type_meta.kind != "Status" {
        same_metadata(&json, &again);
    }
    same_edit(&type_meta, &json, &again, &edit);
}

fn without_nulls(json: &str) -> Tree {
    fn cut(tree: Tree) -> Tree {
        match tree {
            Tree::Object(members) => members
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name, cut(value)))
                .collect(),
            Tree::Array(elements) => elements.into_iter().map(cut).collect(),
            other => other,
        }
    }
    cut(serde_json::from_str(json).unwrap_or_default())
}

/// Returns all reads at a path as text. Errors have no positions, and member names are sorted.
fn reads(document: &Document, path: &Path) -> [String; 8] {
    fn result<T: Debug>(read: Result<T, Error>) -> String {
        read.map_or_else(|_| "an error".to_owned(), |value| format!("{value:?}"))
    }
    let cells = |column: Column| column.iter().map(|cell| cell.map(str::to_owned)).collect::<Vec<_>>();
    let mut keys = document.keys(path);
    if let Ok(keys) = &mut keys {
        keys.sort();
    }
    [
        result(document.column(path).map(cells)),
        result(document.lengths(path)),
        result(keys),
        result(document.fingerprint(path)),
        result(document.get(path)),
        result(document.text(path)),
        result(document.name().and_then(|name| Ok((name, document.namespace()?, document.kind()?)))),
        result(document.label("a").and_then(|label| Ok((label, document.annotation("a")?)))),
    ]
}

/// Compares the objects reduced to their metadata.
fn same_metadata(json: &Document, protobuf: &Document) {
    let type_meta = partial();
    let message =
        protobuf.only_metadata(&type_meta).map(|bytes| Document::protobuf(bytes, Arc::new(type_meta.clone())));
    let (Ok(Some(message)), Ok(text)) = (message, json.only_metadata(&type_meta)) else {
        panic!("the metadata of what can be read cannot be cut out");
    };
    let tree = |text: &[u8]| serde_json::from_slice::<Tree>(text).unwrap_or_default();
    assert_eq!(message.to_json().map(|text| tree(text.as_bytes())), Ok(tree(&text)));
}

/// Returns the document after a successful edit. A failed edit, or one without effect, keeps every byte.
fn edited(document: &Document, edit: &Edit) -> Option<Document> {
    let mut next = document.clone();
    let done = edit.run(&mut next);
    if done.is_err() || !next.is_edited() {
        assert_eq!(next.bytes(), document.bytes());
    }
    done.is_ok().then_some(next)
}

/// If the edit fails in JSON, it fails in protobuf. If both succeed, the results are the same. Protobuf may refuse what
/// it cannot encode.
fn same_edit(type_meta: &TypeMeta, json: &Document, protobuf: &Document, edit: &Edit) {
    let (json, protobuf) = (edited(json, edit), edited(protobuf, edit));
    let Some(protobuf) = protobuf else { return };
    let Some(json) = json else { panic!("protobuf does what JSON refuses") };
    let text = json.to_json().and_then(|text| from_json(type_meta, &text));
    let Ok(message) = text else { panic!("protobuf accepts what it cannot encode: {text:?} {:?}", json.bytes()) };
    let Some(message) = Document::protobuf(message, Arc::new(type_meta.clone())) else { return };
    assert_eq!(message.to_json(), protobuf.to_json());
}

/// Input: the size of the chunks, the outcomes, then the body.
///
/// For all chunk boundaries, the pieces and the errors are the same. Joined, the pieces are the body, or a list of the
/// outcomes.
pub fn list(data: &[u8]) {
    let [chunk, fates, body @ ..] = data else { return };
    let whole = split(body, body.len().max(1));
    let cut = split(body, usize::from(*chunk).max(1));
    let (whole, cut) = match (whole, cut) {
        (Ok(whole), Ok(cut)) => (whole, cut),
        (whole, cut) => return assert_eq!(whole.err(), cut.err()),
    };
    assert_eq!(whole.items(), cut.items());
    assert_eq!(whole.meta, cut.meta);
    assert_eq!(cut.joined(|_| ItemOutcome::Keep, None), body);
    let fate = |number: usize| match fates >> (number % 8) & 1 {
        0 => ItemOutcome::Keep,
        _ if number.is_multiple_of(3) => ItemOutcome::Edit(Bytes::from(vec![7; usize::from(*fates)])),
        _ => ItemOutcome::Drop,
    };
    let left = cut.items().into_iter().enumerate().filter_map(|(number, item)| match fate(number) {
        ItemOutcome::Keep => Some(item),
        ItemOutcome::Edit(bytes) => Some(bytes),
        ItemOutcome::Drop => None,
    });
    let expected: Vec<Bytes> = left.collect();
    let other = partial();
    for type_meta in [None, Some(&other)] {
        let joined = cut.joined(fate, type_meta);
        let again = match split(&joined, joined.len()) {
            Ok(again) => again,
            Err(error) => panic!("what was joined cannot be split: {error}"),
        };
        assert_eq!(again.items(), expected);
        let mut meta = cut.meta.clone();
        if let Some(TypeMeta { api_version, kind }) = type_meta.cloned() {
            (meta.api_version, meta.kind) = (Some(api_version), Some(kind));
        }
        assert_eq!(again.meta, meta);
    }
}

/// A list in pieces.
#[derive(Debug)]
struct SplitList {
    pieces: Vec<Piece>,
    meta: ListMeta,
}

fn split(body: &[u8], chunk: usize) -> Result<SplitList, SplitError> {
    let mut pieces = Vec::new();
    let chunks = body.chunks(chunk).map(Bytes::copy_from_slice);
    let splitter = list::split(ListSplitter::with_limit(1 << 20), chunks, |piece| {
        pieces.push(piece);
        Ok::<_, SplitError>(())
    })?;
    Ok(SplitList { pieces, meta: splitter.meta().clone() })
}

impl SplitList {
    fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Batch(batch) => Some(batch),
            _ => None,
        })
    }

    fn items(&self) -> Vec<Bytes> {
        self.batches().flat_map(|batch| (0..batch.items.len()).filter_map(|i| batch.item(i))).collect()
    }

    /// Joins the outcomes of the items, by their index, optionally as a list of another type.
    fn joined(&self, fate: impl Fn(usize) -> ItemOutcome, type_meta: Option<&TypeMeta>) -> Vec<u8> {
        let mut joiner = Joiner::new();
        let (mut head, mut rest, mut number) = (Bytes::new(), Vec::new(), 0);
        for piece in &self.pieces {
            match piece {
                Piece::Head { bytes } => head = bytes.clone(),
                Piece::Tail { bytes } => rest.extend_from_slice(bytes),
                Piece::Batch(batch) => {
                    let outcomes: Vec<_> = (number..).map(&fate).take(batch.items.len()).collect();
                    number += outcomes.len();
                    match joiner.push(batch, outcomes) {
                        Ok(parts) => parts.iter().for_each(|part| rest.extend_from_slice(part)),
                        Err(error) => panic!("as many outcomes as items: {error}"),
                    }
                }
            }
        }
        match joiner.head(&head, type_meta) {
            Ok(head) => [&*head, &rest].concat(),
            Err(error) => panic!("a head that was read: {error}"),
        }
    }
}

/// Input: the size of the chunks, then the stream.
///
/// For all chunk boundaries, the frames are the same, and are the stream up to its first error. Their objects can be
/// encoded as events again, and an envelope can hold another object.
pub fn frame(data: &[u8]) {
    let [chunk, body @ ..] = data else { return };
    let (frames, ended) = frames(body, body.len().max(1));
    assert_eq!(self::frames(body, usize::from(*chunk).max(1)), (frames.clone(), ended.clone()));
    let mut rest = body;
    for frame in &frames {
        let Some(left) = rest.strip_prefix(&*frame.bytes) else { panic!("a frame is not what came") };
        rest = left;
        let object = frame.object_bytes();
        let Ok(written) = event(frame.event, &object) else { panic!("a frame that was read cannot be written") };
        let (again, _) = self::frames(&written, written.len());
        assert!(again.iter().map(|again| (again.event, again.object_bytes())).eq([(frame.event, object.clone())]));
        let Ok(envelope) = Envelope::open(object) else { continue };
        match envelope.with(b"other").and_then(Envelope::open) {
            Ok(other) => assert_eq!((&*other.object(), other.type_meta()), (&b"other"[..], envelope.type_meta())),
            Err(error) => panic!("an envelope that was opened cannot be closed: {error}"),
        }
    }
    assert_eq!(ended.is_ok(), rest.is_empty());
}

/// Returns the frames of a stream and its end.
fn frames(body: &[u8], chunk: usize) -> (Vec<Frame>, Result<(), SplitError>) {
    let mut splitter = FrameSplitter::with_limit(1 << 20);
    let mut frames = Vec::new();
    let mut all = || -> Result<(), SplitError> {
        for chunk in body.chunks(chunk) {
            splitter.push(Bytes::copy_from_slice(chunk));
            while let Some(frame) = splitter.next()? {
                frames.push(frame);
            }
        }
        splitter.finish();
        assert!(splitter.next()?.is_none());
        Ok(())
    };
    let ended = all();
    (frames, ended)
}
