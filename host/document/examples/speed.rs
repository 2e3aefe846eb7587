//! Measures the engine alone, on one core: `cargo run --release -p weir-document --example speed [WORD]`. With a word,
//! only the measurements whose name contains it run. They split lists, read a column and remove rows, on a list of
//! Services and one of EndpointSlices.

use bytes::Bytes;
use std::{
    error::Error,
    sync::{Arc, LazyLock},
    time::Instant,
};
use weir_document::{
    Document, TypeMeta, json,
    list::{ItemOutcome, Piece, split},
    path,
    protobuf::{self, Envelope},
};

fn main() -> Result<(), Box<dyn Error>> {
    for (name, api_version, kind, list) in [
        ("services", "v1", "Service", Bytes::from(services())),
        ("slices", "discovery.k8s.io/v1", "EndpointSlice", Bytes::from(slices())),
    ] {
        run(name, &Form::Json, &list)?;
        let type_meta = Arc::new(TypeMeta { api_version: api_version.into(), kind: kind.into() });
        let list = encoded(&type_meta, &Form::Json.items(&list)?)?;
        run(&format!("{name}, protobuf"), &Form::Protobuf(type_meta), &list)?;
    }
    Ok(())
}

fn run(name: &str, form: &Form, list: &Bytes) -> Result<(), Box<dyn Error>> {
    let megabytes = list.len() as f64 / 1e6;
    for size in CHUNKS {
        let what = format!("split, {} KiB chunks", size >> 10);
        report(name, &what, megabytes, || Ok(form.pieces(list, size)?.len()))?;
    }
    let items = form.items(list)?;
    let (kind, ports) = (path!("spec.type"), path!("spec.ports[*].nodePort"));
    let column = path!("endpoints[*].nodeName");
    let two = |document: &Document| -> Result<usize, weir_document::Error> {
        let known = document.annotation("a/b")?.is_some() as usize + document.annotation("c")?.is_some() as usize;
        Ok(known + document.text(&kind)?.is_some() as usize)
    };
    let sum = |read: &dyn Fn(&Document) -> Result<usize, weir_document::Error>| {
        items.iter().try_fold(0, |sum, item| Ok(sum + read(&form.document(item.clone())?)?))
    };
    report(name, "two annotations and one path", megabytes, || sum(&two))?;
    report(name, "column", megabytes, || sum(&|document| Ok(document.column(&column)?.len())))?;
    report(name, "list in, two reads, list out", megabytes, || form.filter(list, |document| two(document).map(drop)))?;
    report(name, "list in, port fields removed, list out", megabytes, || {
        form.filter(list, |document| {
            two(document)?;
            document.remove(&ports).map(drop)
        })
    })?;
    report(name, "list in, half the rows cut, list out", megabytes, || {
        form.filter(list, |document| {
            let rows = document.column(&column)?;
            document
                .retain(&column, &rows.rows(|node| node.is_some_and(|node| node.ends_with(['0', '2', '4', '6', '8']))))
        })
    })
}

/// Encodes a list of these objects as protobuf.
fn encoded(type_meta: &TypeMeta, items: &[Bytes]) -> Result<Bytes, Box<dyn Error>> {
    let mut list = Vec::new();
    for item in items {
        let message = protobuf::from_json(type_meta, std::str::from_utf8(item)?)?;
        // The record of an item: its tag, its length, its bytes.
        list.push(0x12);
        let mut length = message.len();
        while length >= 0x80 {
            list.push(length as u8 | 0x80);
            length >>= 7;
        }
        list.push(length as u8);
        list.extend_from_slice(&message);
    }
    let of_list = TypeMeta { kind: format!("{}List", type_meta.kind), ..type_meta.clone() };
    Ok(Envelope::seal(&of_list, &list))
}

/// Prints the median and the best of several runs.
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
        // Long enough for a clock with millisecond resolution.
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
    println!("{list:18} {what:40} {median:6.0} MB/s, best {best:6.0}  ({megabytes:.1} MB, {result})");
    Ok(())
}

/// Returns the CPU seconds of this thread, so that other processes do not count, or wall time if these are not
/// available.
fn clock() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let wall = START.elapsed().as_secs_f64();
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    schedstat.split(' ').next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).map_or(wall, |ran| ran / 1e9)
}

/// The encoding of a list.
enum Form {
    Json,
    Protobuf(Arc<TypeMeta>),
}

impl Form {
    fn document(&self, item: Bytes) -> Result<Document, Box<dyn Error>> {
        match self {
            Form::Json => Ok(Document::json(item)),
            Form::Protobuf(type_meta) => Document::protobuf(item, type_meta.clone()).ok_or_else(|| "no schema".into()),
        }
    }

    fn split(
        &self,
        chunks: impl IntoIterator<Item = Bytes>,
        piece: impl FnMut(Piece) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        match self {
            Form::Json => split(json::ListSplitter::new(), chunks, piece).map(drop),
            Form::Protobuf(_) => split(protobuf::ListSplitter::new(), chunks, piece).map(drop),
        }
    }

    fn pieces(&self, list: &Bytes, size: usize) -> Result<Vec<Piece>, Box<dyn Error>> {
        let mut pieces = Vec::new();
        self.split(list.chunks(size).map(|chunk| list.slice_ref(chunk)), |piece| {
            pieces.push(piece);
            Ok(())
        })?;
        Ok(pieces)
    }

    fn items(&self, list: &Bytes) -> Result<Vec<Bytes>, Box<dyn Error>> {
        let pieces = self.pieces(list, CHUNK)?;
        let batches = pieces.iter().filter_map(|piece| match piece {
            Piece::Batch(batch) => Some(batch),
            _ => None,
        });
        Ok(batches.flat_map(|batch| (0..batch.items.len()).filter_map(|i| batch.item(i))).collect())
    }

    /// Filters a list. Each chunk is copied first, as from a socket with a warm cache. Returns the number of written
    /// bytes.
    fn filter(
        &self,
        list: &Bytes,
        change: impl Fn(&mut Document) -> Result<(), weir_document::Error>,
    ) -> Result<usize, Box<dyn Error>> {
        let (mut as_json, mut as_protobuf) = (json::Joiner::new(), protobuf::Joiner::new());
        let mut size = 0;
        self.split(list.chunks(CHUNK).map(Bytes::copy_from_slice), |piece| {
            let batch = match piece {
                Piece::Head { bytes } | Piece::Tail { bytes } => {
                    size += bytes.len();
                    return Ok(());
                }
                Piece::Batch(batch) => batch,
            };
            let mut outcomes = Vec::with_capacity(batch.items.len());
            for i in 0..batch.items.len() {
                let mut document = self.document(batch.item(i).ok_or("no item")?)?;
                change(&mut document)?;
                let edited = document.is_edited();
                outcomes.push(if edited { ItemOutcome::Edit(document.bytes().clone()) } else { ItemOutcome::Keep });
            }
            let parts = match self {
                Form::Json => as_json.push(&batch, outcomes)?,
                Form::Protobuf(_) => as_protobuf.push(&batch, outcomes)?,
            };
            size += parts.iter().map(Bytes::len).sum::<usize>();
            Ok(())
        })?;
        Ok(size)
    }
}

/// Chunks as from a socket, and as a fast reader gets them.
const CHUNKS: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];

const CHUNK: usize = 128 << 10;

const MANAGED: &str = r#""managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2025-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:a/b":{}},"f:labels":{".":{},"f:app":{},"f:app.kubernetes.io/managed-by":{}}},"f:spec":{"f:allocateLoadBalancerNodePorts":{},"f:externalTrafficPolicy":{},"f:internalTrafficPolicy":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}}]"#;

/// 5,000 Services of about 1.7 KB.
fn services() -> Vec<u8> {
    let one = |i: usize| {
        format!(
            r#"{{"metadata":{{"name":"service-{i}","namespace":"namespace-{}","uid":"6b8a1c00-0000-4000-8000-{i:012}","resourceVersion":"{i}","creationTimestamp":"2025-01-01T00:00:00Z","labels":{{"app":"service-{i}","app.kubernetes.io/managed-by":"Helm"}},"annotations":{{"a/b":"value","kubectl.kubernetes.io/last-applied-configuration":"{{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{{\"name\":\"service-{i}\"}},\"spec\":{{\"ports\":[{{\"port\":80}}],\"selector\":{{\"app\":\"service-{i}\"}}}}}}\n"}},{MANAGED}}},"spec":{{"ports":[{{"name":"http","protocol":"TCP","port":80,"targetPort":8080,"nodePort":30080}},{{"name":"https","protocol":"TCP","port":443,"targetPort":8443,"nodePort":30443}}],"selector":{{"app":"service-{i}"}},"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"type":"LoadBalancer","sessionAffinity":"None","externalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","allocateLoadBalancerNodePorts":true,"internalTrafficPolicy":"Cluster"}},"status":{{"loadBalancer":{{"ingress":[{{"ip":"192.0.2.1","ipMode":"VIP"}}]}}}}}}"#,
            i % 50
        )
    };
    list("ServiceList", "v1", (0..5000).map(one))
}

/// 1,000 slices of 100 endpoints, about 30 KB each.
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
