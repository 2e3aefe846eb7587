//! Measures the CPU time of a watch event, a slice of 100 endpoints. Events sent back to back show the cost of the
//! daemon's own work. Events sent one by one mostly show the cost of the system, such as thread wake-ups, reads and
//! writes. nginx serves as the baseline.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use weir_apiserver::{Action, ResponseBodyError};
use weir_document::json::{self, EventType};
use weir_document::protobuf::{self, Envelope};

use crate::beside;
use crate::fetch::fetch;
use crate::list::{Encoding, Kind};
use crate::nginx::Nginx;
use crate::table::{Goal, Table};
use crate::usage::processor;

/// The number of distinct events, which are repeated.
const EVENTS: usize = 100;

/// Measures CPU time per event, in JSON and protobuf.
pub(crate) async fn cost(table: &mut Table) {
    table.heading(
        "Watch: CPU time per event of a 100-endpoint slice, tuned nginx passing it on and Weir with two filters",
    );
    table.columns("", &["nginx µs", "Weir µs"]);
    let server = beside::server().await;
    let daemon = beside::daemon(&server).await;
    let nginx = Nginx::start(&server.address().to_string(), true);
    for encoding in Encoding::BOTH {
        let events: Vec<Bytes> = (0..EVENTS).map(|n| event(encoding, n)).collect();
        for (what, count, every) in
            [("back to back", 40_000, None), ("one by one, 1,000 a second", 5000, Some(Duration::from_millis(1)))]
        {
            let served = events.clone();
            server.on_request(move |request| match request.target().contains("slices?watch=true") {
                true => Action::Stream(stream(encoding, served.clone(), count, every)),
                false => Action::Serve,
            });
            let address = daemon.url().trim_start_matches("http://").to_owned();
            let weir = each(address, daemon.id(), encoding, count).await;
            let passed = match &nginx {
                Some(nginx) => Some(each(nginx.address(), nginx.id(), encoding, count).await),
                None => None,
            };
            table.cells(&format!("{}, {what}", encoding.name()), &[passed, Some(weir)]);
            if every.is_none() {
                table.keep(&format!("a watch event in {}, {what}", encoding.name()), weir, "µs", Goal::Under(25.0));
            }
        }
    }
}

/// Returns the CPU microseconds of a process per event.
async fn each(address: String, pid: u32, encoding: Encoding, count: usize) -> f64 {
    let path = format!("{}?watch=true", Kind::Slices.path());
    let before = processor(pid);
    tokio::task::spawn_blocking(move || fetch(&address, &path, encoding)).await.unwrap();
    (processor(pid) - before) * 1e6 / count as f64
}

/// Returns an encoded event.
fn event(encoding: Encoding, n: usize) -> Bytes {
    let object = Kind::Slices.object(n).to_string();
    match encoding {
        Encoding::Json => json::event(EventType::Modified, object.as_bytes()),
        Encoding::Protobuf => {
            let type_meta = Kind::Slices.type_meta();
            let message = protobuf::from_json(&type_meta, &object).unwrap();
            protobuf::event(EventType::Modified, &Envelope::seal(&type_meta, &message)).unwrap()
        }
    }
}

/// Returns a watch that ends after this number of events.
fn stream(
    encoding: Encoding,
    events: Vec<Bytes>,
    count: usize,
    every: Option<Duration>,
) -> Response<weir_apiserver::Body> {
    let mut ticks = every.map(tokio::time::interval);
    let frames = futures_util::stream::iter((0..count).map(move |n| events[n % events.len()].clone()));
    let frames = futures_util::stream::unfold((frames, ticks.take()), |(mut frames, mut ticks)| async move {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        let frame = frames.next().await?;
        Some((Ok::<_, ResponseBodyError>(Frame::data(frame)), (frames, ticks)))
    });
    let body = StreamBody::new(frames).boxed_unsync();
    Response::builder().header(header::CONTENT_TYPE, encoding.watch_media()).body(body).unwrap()
}
