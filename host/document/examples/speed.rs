//! How fast the engine is, alone and on one core: `cargo run --release -p weir-document --example speed [WORD]`, where
//! only what has the word in its name is run.
//! Splitting, reading a column and cutting rows, on a list of Services and on one of EndpointSlices.

use bytes::Bytes;
use std::{
    error::Error,
    sync::{Arc, LazyLock},
    time::Instant,
};
use weir_document::{
    Column, Document, Path, SplitError, TypeMeta, json,
    list::{Batch, Outcome, Piece},
    protobuf::{self, Envelope},
};

fn main() -> Result<(), Box<dyn Error>> {
    for (name, list) in [("services", Bytes::from(services())), ("slices", Bytes::from(slices()))] {
        let megabytes = list.len() as f64 / 1e6;
        for size in CHUNKS {
            let what = format!("split, {} KiB chunks", size >> 10);
            report(name, &what, megabytes, || Ok(split_json(&list, size)?.len()))?;
        }
        let items = items_of(split_json(&list, CHUNK)?);
        let kind = Path::parse("spec.type")?;
        report(name, "two annotations and one path", megabytes, || {
            items.iter().try_fold(0, |sum, item| {
                let document = Document::json(item.clone());
                let known =
                    document.annotation("a/b")?.is_some() as usize + document.annotation("c")?.is_some() as usize;
                Ok(sum + known + document.text(&kind)?.is_some() as usize)
            })
        })?;
        let column = Path::parse("endpoints[*].nodeName")?;
        report(name, "column", megabytes, || {
            items.iter().try_fold(0, |sum, item| Ok(sum + Document::json(item.clone()).column(&column)?.len()))
        })?;
        let columns: Vec<_> =
            items.iter().map(|item| Document::json(item.clone()).column(&column)).collect::<Result<_, _>>()?;
        report(name, "rows cut", megabytes, || {
            items.iter().zip(&columns).try_fold(0, |sum, (item, rows)| {
                let mut document = Document::json(item.clone());
                document.retain(&column, &even(rows))?;
                Ok(sum + document.bytes().len())
            })
        })?;
        report(name, "list in, half the rows cut, list out", megabytes, || {
            let mut joiner = json::Joiner::new();
            filter(
                split_json(&list, CHUNK)?,
                &column,
                |item| Ok(Document::json(item)),
                |batch, outcomes| joiner.push(batch, outcomes),
            )
        })?;
        of_protobuf(name, &items, &column)?;
    }
    Ok(())
}

/// The same list as protobuf.
fn of_protobuf(name: &str, items: &[Bytes], column: &Path) -> Result<(), Box<dyn Error>> {
    let (api_version, kind) =
        if name == "services" { ("v1", "Service") } else { ("discovery.k8s.io/v1", "EndpointSlice") };
    let type_meta = Arc::new(TypeMeta { api_version: api_version.into(), kind: kind.into() });
    let mut list = Vec::new();
    for item in items {
        let message = protobuf::from_json(&type_meta, std::str::from_utf8(item)?)?;
        // The record of an item: its tag, its length, itself.
        list.push(0x12);
        let mut length = message.len();
        while length >= 0x80 {
            list.push(length as u8 | 0x80);
            length >>= 7;
        }
        list.push(length as u8);
        list.extend_from_slice(&message);
    }
    let of_list = TypeMeta { api_version: api_version.into(), kind: format!("{kind}List") };
    let body = Envelope::seal(&of_list, &list);
    let megabytes = body.len() as f64 / 1e6;
    let document = |item: Bytes| Document::protobuf(item, type_meta.clone()).ok_or_else(|| "no schema".into());
    for size in CHUNKS {
        let what = format!("protobuf: split, {} KiB chunks", size >> 10);
        report(name, &what, megabytes, || Ok(split_protobuf(&body, size)?.len()))?;
    }
    let items = items_of(split_protobuf(&body, CHUNK)?);
    let kind = Path::parse("spec.type")?;
    report(name, "protobuf: two annotations and one path", megabytes, || {
        items.iter().try_fold(0, |sum, item| {
            let document = document(item.clone())?;
            let known = document.annotation("a/b")?.is_some() as usize + document.annotation("c")?.is_some() as usize;
            Ok(sum + known + document.text(&kind)?.is_some() as usize)
        })
    })?;
    report(name, "protobuf: column", megabytes, || {
        items.iter().try_fold(0, |sum, item| Ok(sum + document(item.clone())?.column(column)?.len()))
    })?;
    report(name, "protobuf: list in, half cut, list out", megabytes, || {
        let mut joiner = protobuf::Joiner::new();
        filter(split_protobuf(&body, CHUNK)?, column, document, |batch, outcomes| joiner.push(batch, outcomes))
    })
}

/// The median and the best of several runs.
fn report(
    list: &str,
    what: &str,
    megabytes: f64,
    mut run: impl FnMut() -> Result<usize, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if !format!("{list} {what}").contains(&wanted) {
        return Ok(());
    }
    let mut times = Vec::new();
    let mut result = 0;
    for _ in 0..9 {
        // Long enough for a clock that moves by the millisecond.
        let rounds = (600.0 / megabytes).ceil();
        let start = clock();
        for _ in 0..rounds as usize {
            result = run()?;
        }
        times.push((clock() - start) / rounds);
    }
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let best = times.first().copied().unwrap_or_default();
    let (median, best) = (megabytes / median, megabytes / best);
    println!("{list:9} {what:40} {median:6.0} MB/s, best {best:6.0}  ({megabytes:.1} MB, {result})");
    Ok(())
}

/// Seconds that this thread has run, so that a busy machine does not count; where that is not told, wall time.
fn clock() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let wall = START.elapsed().as_secs_f64();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split(' ').next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).map_or(wall, |ran| ran / 1e9)
}

fn split_json(list: &Bytes, size: usize) -> Result<Vec<Piece>, SplitError> {
    let mut splitter = json::ListSplitter::new();
    let mut pieces = Vec::new();
    for chunk in list.chunks(size) {
        splitter.push(list.slice_ref(chunk));
        while let Some(piece) = splitter.next()? {
            pieces.push(piece);
        }
    }
    splitter.finish();
    while let Some(piece) = splitter.next()? {
        pieces.push(piece);
    }
    Ok(pieces)
}

fn split_protobuf(list: &Bytes, size: usize) -> Result<Vec<Piece>, SplitError> {
    let mut splitter = protobuf::ListSplitter::new();
    let mut pieces = Vec::new();
    for chunk in list.chunks(size) {
        splitter.push(list.slice_ref(chunk));
        while let Some(piece) = splitter.next()? {
            pieces.push(piece);
        }
    }
    splitter.finish();
    while let Some(piece) = splitter.next()? {
        pieces.push(piece);
    }
    Ok(pieces)
}

fn items_of(pieces: Vec<Piece>) -> Vec<Bytes> {
    let batches = pieces.iter().filter_map(|piece| match piece {
        Piece::Batch(batch) => Some(batch),
        _ => None,
    });
    batches.flat_map(|batch| (0..batch.items.len()).filter_map(|i| batch.item(i))).collect()
}

/// What a topology filter does: a column, a bitmap, a cut. Returns the bytes that leave.
fn filter(
    pieces: Vec<Piece>,
    column: &Path,
    document: impl Fn(Bytes) -> Result<Document, Box<dyn Error>>,
    mut join: impl FnMut(&Batch, Vec<Outcome>) -> Result<Vec<Bytes>, SplitError>,
) -> Result<usize, Box<dyn Error>> {
    let mut size = 0;
    for piece in pieces {
        match piece {
            Piece::Head { bytes } | Piece::Tail { bytes } => size += bytes.len(),
            Piece::Batch(batch) => {
                let mut outcomes = Vec::with_capacity(batch.items.len());
                for i in 0..batch.items.len() {
                    let mut document = document(batch.item(i).ok_or("no item")?)?;
                    let rows = document.column(column)?;
                    document.retain(column, &even(&rows))?;
                    let edited = document.is_edited();
                    outcomes.push(if edited { Outcome::Edit(document.bytes().clone()) } else { Outcome::Keep });
                }
                size += join(&batch, outcomes)?.iter().map(Bytes::len).sum::<usize>();
            }
        }
    }
    Ok(size)
}

/// The rows that end in an even digit, as a bitmap.
fn even(rows: &Column) -> Vec<u8> {
    let mut keep = vec![0u8; rows.len().div_ceil(8)];
    for (row, node) in rows.iter().enumerate() {
        if let (Some(byte), Some(node)) = (keep.get_mut(row / 8), node) {
            *byte |= u8::from(node.ends_with(['0', '2', '4', '6', '8'])) << (row % 8);
        }
    }
    keep
}

/// As they come from a socket, and as they come to a fast reader.
const CHUNKS: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];

const CHUNK: usize = 256 << 10;

const MANAGED: &str = r#""managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2025-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:a/b":{}},"f:labels":{".":{},"f:app":{},"f:app.kubernetes.io/managed-by":{}}},"f:spec":{"f:allocateLoadBalancerNodePorts":{},"f:externalTrafficPolicy":{},"f:internalTrafficPolicy":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}}]"#;

/// 5,000 of about 1.7 KB.
fn services() -> Vec<u8> {
    let one = |i: usize| {
        format!(
            r#"{{"metadata":{{"name":"service-{i}","namespace":"namespace-{}","uid":"6b8a1c00-0000-4000-8000-{i:012}","resourceVersion":"{i}","creationTimestamp":"2025-01-01T00:00:00Z","labels":{{"app":"service-{i}","app.kubernetes.io/managed-by":"Helm"}},"annotations":{{"a/b":"value","kubectl.kubernetes.io/last-applied-configuration":"{{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{{\"name\":\"service-{i}\"}},\"spec\":{{\"ports\":[{{\"port\":80}}],\"selector\":{{\"app\":\"service-{i}\"}}}}}}\n"}},{MANAGED}}},"spec":{{"ports":[{{"name":"http","protocol":"TCP","port":80,"targetPort":8080,"nodePort":30080}},{{"name":"https","protocol":"TCP","port":443,"targetPort":8443,"nodePort":30443}}],"selector":{{"app":"service-{i}"}},"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"type":"LoadBalancer","sessionAffinity":"None","externalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","allocateLoadBalancerNodePorts":true,"internalTrafficPolicy":"Cluster"}},"status":{{"loadBalancer":{{"ingress":[{{"ip":"192.0.2.1","ipMode":"VIP"}}]}}}}}}"#,
            i % 50
        )
    };
    list("ServiceList", "v1", (0..5000).map(one))
}

/// 1,000 of 100 endpoints, about 30 KB.
fn slices() -> Vec<u8> {
    let endpoint = |i: usize| {
        format!(
            r#"{{"addresses":["10.1.{}.{i}"],"conditions":{{"ready":true,"serving":true,"terminating":false}},"targetRef":{{"kind":"Pod","namespace":"namespace-1","name":"deployment-5d8f9c7b6-x{i:04}","uid":"0d0b4f1e-0000-4000-8000-{i:012}"}},"nodeName":"node-{i}","zone":"zone-{}"}}"#,
            i / 7,
            i % 3
        )
    };
    let one = |i: usize| {
        let endpoints: Vec<_> = (0..100).map(endpoint).collect();
        format!(
            r#"{{"metadata":{{"name":"slice-{i}","namespace":"namespace-1","resourceVersion":"{i}","labels":{{"kubernetes.io/service-name":"service-{i}"}},{MANAGED}}},"addressType":"IPv4","endpoints":[{}],"ports":[{{"name":"http","port":8080,"protocol":"TCP"}}]}}"#,
            endpoints.join(",")
        )
    };
    list("EndpointSliceList", "discovery.k8s.io/v1", (0..1000).map(one))
}

fn list(kind: &str, version: &str, items: impl Iterator<Item = String>) -> Vec<u8> {
    let items: Vec<_> = items.collect();
    format!(
        "{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{{\"resourceVersion\":\"7\"}},\"items\":[{}]}}\n",
        items.join(",")
    )
    .into_bytes()
}
