//! The properties that hold for any bytes. A target panics if one does not.

#[path = "bodies/edit.rs"]
mod edit;
#[path = "bodies/protobuf.rs"]
pub mod protobuf;

use bytes::Bytes;
use edit::Edit;
use serde_json::{Map, Value as Tree};
use weir_document::{
    Document, Path, SplitError, TypeMeta, Value,
    json::{FrameSplitter, Joiner, ListSplitter},
    list::{ItemOutcome, Piece, split},
};
use weir_kube::{LabelSelector, PodStatus, StatusPatch};

/// A target: its name, which is also the folder of its corpus, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, except the one of the block scanner, which is not public: `scan.rs`.
pub const TARGETS: [Target; 8] = [
    ("document", document),
    ("list", list),
    ("frame", frame),
    ("path", path),
    ("protobuf-document", protobuf::document),
    ("protobuf-list", protobuf::list),
    ("protobuf-frame", protobuf::frame),
    ("status-patch", status_patch),
];

/// Input: a line with a path, a line with the bits and the kind of an edit, a line with a value, then the object.
///
/// Reads and edits end with an error or agree with a plain parser. A successful edit of valid JSON gives valid JSON,
/// and a failed edit changes nothing.
pub fn document(data: &[u8]) {
    let Some((edit, object)) = Edit::parse(data) else { return };
    let path = &edit.path;
    let mut document = Document::json(Bytes::copy_from_slice(object));
    let oracle = serde_json::from_slice::<Tree>(object).ok().filter(Tree::is_object);
    let column = document.column(path);
    let fingerprint = document.fingerprint(path);
    let cells: Vec<Option<String>> = match &column {
        Ok(column) => column.iter().map(|cell| cell.map(str::to_owned)).collect(),
        Err(_) => Vec::new(),
    };
    let _ = (document.get(path), document.text(path), document.keys(path), document.lengths(path));
    let _ = (document.name(), document.label("a"), document.annotation("a"), document.kind());
    assert_eq!(document.column(path), column);
    assert_eq!(document.fingerprint(path), fingerprint);
    assert_eq!(document.bytes(), object);
    if let (Some(oracle), Ok(part)) = (&oracle, document.only_metadata(&partial())) {
        let part: Tree = serde_json::from_slice(&part).unwrap_or_default();
        assert_eq!(part.get("metadata"), Some(oracle.get("metadata").unwrap_or(&Tree::Object(Map::new()))));
    }
    let before = document.checkpoint();
    let done = edit.run(&mut document);
    if done.is_err() || !document.is_edited() {
        assert_eq!(document.bytes(), object);
        return;
    }
    // Valid JSON stays valid, unless it is nested deeper than the plain parser supports.
    if oracle.is_some() && depth(document.bytes()) < 100 {
        assert!(serde_json::from_slice::<Tree>(document.bytes()).is_ok(), "{:?}", document.bytes());
    }
    if edit.sets() && oracle.is_some() {
        let text = match &edit.value {
            Value::Text(text) | Value::Number(text) => Some(text.as_str()),
            _ => None,
        };
        let after: Vec<Option<String>> = match document.column(path) {
            Ok(column) => column.iter().map(|cell| cell.map(str::to_owned)).collect(),
            Err(error) => panic!("a document that was edited cannot be read: {error}"),
        };
        assert_eq!(after.len(), cells.len());
        assert!(text.is_none() || after.iter().zip(&cells).all(|(cell, old)| cell.as_deref() == text || cell == old));
    }
    document.restore(before);
    assert_eq!(document.bytes(), object);
}

/// Returns the type of objects that were requested as metadata only.
fn partial() -> TypeMeta {
    TypeMeta { api_version: "meta.k8s.io/v1".into(), kind: "PartialObjectMetadata".into() }
}

/// Input: the size of the chunks, the outcomes, then the body, which is a list or a Table.
pub fn list(data: &[u8]) {
    let [chunk, fates, body @ ..] = data else { return };
    list_of("items", || ListSplitter::with_limit(1 << 20), *chunk, *fates, body);
    list_of("rows", || ListSplitter::rows_with_limit(1 << 20), *chunk, *fates, body);
}

fn list_of(array: &str, splitter: impl Fn() -> ListSplitter, chunk: u8, fates: u8, body: &[u8]) {
    let whole = pieces(splitter(), body, body.len().max(1));
    let cut = pieces(splitter(), body, usize::from(chunk).max(1));
    assert_eq!(whole.is_ok(), cut.is_ok(), "{whole:?} {cut:?}");
    let (Ok(whole), Ok(cut)) = (whole, cut) else { return };
    let items = |pieces: &[Piece]| -> Vec<Bytes> {
        let batches = pieces.iter().filter_map(|piece| match piece {
            Piece::Batch(batch) => Some(batch),
            _ => None,
        });
        batches.flat_map(|batch| (0..batch.items.len()).filter_map(|i| batch.item(i))).collect()
    };
    assert_eq!(items(&whole), items(&cut));
    assert_eq!(join(&cut, 0), body);
    let oracle = serde_json::from_slice::<Tree>(body);
    if let Ok(oracle) = &oracle {
        let parsed: Vec<Tree> = items(&cut).iter().filter_map(|item| serde_json::from_slice(item).ok()).collect();
        assert_eq!(oracle[array].as_array().cloned().unwrap_or_default(), parsed);
        assert!(serde_json::from_slice::<Tree>(&join(&cut, fates)).is_ok());
    }
}

fn pieces(splitter: ListSplitter, body: &[u8], chunk: usize) -> Result<Vec<Piece>, SplitError> {
    let mut pieces = Vec::new();
    split(splitter, body.chunks(chunk).map(Bytes::copy_from_slice), |piece| {
        pieces.push(piece);
        Ok::<_, SplitError>(())
    })?;
    Ok(pieces)
}

/// Joins the pieces. Each bit of `fates` is the outcome of every eighth item.
fn join(pieces: &[Piece], fates: u8) -> Vec<u8> {
    let mut joiner = Joiner::new();
    let mut out = Vec::new();
    let mut number = 0u32;
    for piece in pieces {
        match piece {
            Piece::Head { bytes } | Piece::Tail { bytes } => out.extend_from_slice(bytes),
            Piece::Batch(batch) => {
                let outcomes = batch.items.iter().map(|_| {
                    number += 1;
                    match fates >> (number % 8) & 1 {
                        0 => ItemOutcome::Keep,
                        _ if number.is_multiple_of(3) => ItemOutcome::Edit(Bytes::from_static(b"{}")),
                        _ => ItemOutcome::Drop,
                    }
                });
                match joiner.push(batch, outcomes) {
                    Ok(parts) => parts.iter().for_each(|part| out.extend_from_slice(part)),
                    Err(error) => panic!("as many outcomes as items: {error}"),
                }
            }
        }
    }
    out
}

/// Input: the size of the chunks, then the stream.
pub fn frame(data: &[u8]) {
    let [chunk, body @ ..] = data else { return };
    let frames = |chunk: usize| {
        let mut splitter = FrameSplitter::with_limit(1 << 20);
        let mut frames = Vec::new();
        let mut all = || -> Result<(), SplitError> {
            for chunk in body.chunks(chunk.max(1)) {
                splitter.push(Bytes::copy_from_slice(chunk));
                while let Some(frame) = splitter.next()? {
                    frames.push((frame.event, frame.object_bytes()));
                }
            }
            splitter.finish();
            assert!(splitter.next()?.is_none());
            Ok(())
        };
        let ended = all().is_ok();
        (frames, ended)
    };
    assert_eq!(frames(body.len()), frames(usize::from(*chunk)));
}

/// A path or a label selector, which is parsed or refused.
pub fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Path::parse(text) {
        Ok(path) => assert_eq!(path.text(), text),
        Err(error) => assert!(error.position <= text.len() && text.is_char_boundary(error.position)),
    }
    match LabelSelector::parse(text) {
        Ok(selector) => drop(selector.matches(|key| (key.len() % 2 == 0).then_some("a"))),
        Err(error) => assert!(error.position <= text.len()),
    }
}

/// A patch of a pod's status. It is refused, or leaves a status of the usual size. When it is repeated, nothing changes.
pub fn status_patch(data: &[u8]) {
    const BASE: &str = r#"{"addresses":["10.0.0.1","fd00::1"],"phase":"Running","conditions":[
        {"type":"Initialized","status":"True"},{"type":"Ready","status":"False","reason":"x"}]}"#;
    let (Ok(patch), Ok(base)) = (StatusPatch::parse(data), serde_json::from_str::<PodStatus>(BASE)) else { return };
    let _ = patch.uid();
    let Ok(once) = base.patched(&patch) else { return };
    assert!(once.addresses.len() <= 16 && once.conditions.len() <= 64);
    assert_eq!(once.patched(&patch).ok().as_ref(), Some(&once));
}

fn depth(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| matches!(byte, b'{' | b'[')).count()
}
