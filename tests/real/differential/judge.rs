//! What Weir makes of an input, in the words of the original, and whether that is the same.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::ready;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, Request, Response, Version};
use http_body_util::Empty;
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use weir_kube::{
    Credential, FieldSelector, FieldSupport, Impersonation, LabelSelector, ListOptions, OptionsErrorKind, RequestInfo,
    Verb,
};

/// The differences that are kept.
const KEPT: usize = 10;

/// What a question is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// Bytes of a request: its credential, and the user that it impersonates.
    Credential,
    /// Bytes of a request: what is authorized, and its options.
    Resource,
    /// A label selector.
    Labels,
    /// A field selector.
    Fields,
}

/// What Weir makes of an input.
#[derive(Debug, Clone, Default)]
pub(super) struct Answer {
    /// In the words of the original; `None` if Weir refuses the request with 400.
    text: Option<String>,
    /// Whether only the first line of the text can be compared.
    is_partial: bool,
    /// The request as it would be forwarded.
    forwarded: Vec<u8>,
}

/// Counts what became of the inputs.
#[derive(Debug)]
pub(super) struct Judge {
    pub(super) kind: Kind,
    /// Both sides understand the same.
    same: u64,
    /// Of these: with a token, with options, or a selector that can be parsed.
    full: u64,
    /// Weir refuses it.
    refused_here: u64,
    /// net/http refuses it, Weir does not.
    refused_there: u64,
    /// Inputs that the two understand otherwise.
    pub(super) differences: Vec<String>,
}

impl Kind {
    pub(super) fn letter(self) -> u8 {
        match self {
            Self::Credential => b'c',
            Self::Resource => b'r',
            Self::Labels => b'l',
            Self::Fields => b'f',
        }
    }

    pub(super) fn answer(self, input: &[u8]) -> Answer {
        let selector = |parsed: Option<String>| Answer {
            text: Some(parsed.map_or("error".to_owned(), |text| format!("ok {text}"))),
            ..Answer::default()
        };
        match self {
            Self::Credential => received(input, |request| Answer {
                text: Some(credential(request.headers())),
                forwarded: forwarded(request, "/"),
                ..Answer::default()
            }),
            Self::Resource => received(input, resource),
            Self::Labels => selector(LabelSelector::parse(text(input)).ok().map(|selector| selector.to_string())),
            Self::Fields => selector(FieldSelector::parse(text(input)).ok().map(|selector| selector.to_string())),
        }
    }
}

impl Judge {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, same: 0, full: 0, refused_here: 0, refused_there: 0, differences: Vec::new() }
    }

    /// Compares two answers. Returns the request as Weir forwards it, if that is to be compared, too.
    pub(super) fn compare(&mut self, input: &[u8], own: &Answer, original: &[u8]) -> Option<Vec<u8>> {
        let Some(text) = &own.text else {
            self.refused_here += 1;
            return None;
        };
        // Where a target has a fragment, hyper drops it. net/http takes it for a part of the path, but does not get it.
        let is_fragment = matches!(self.kind, Kind::Resource) && first_line(input).contains(&b'#');
        if original.is_empty() || is_fragment {
            self.refused_there += 1;
        } else if own.agrees(original) {
            self.same += 1;
            self.full += u64::from(["token", "ok"].iter().any(|word| text.starts_with(word)) || text.contains("\n200"));
        } else {
            self.note(input, text, original);
        }
        (matches!(self.kind, Kind::Resource) || original.is_empty()).then(|| own.forwarded.clone())
    }

    /// Compares what the API server makes of the request that Weir forwards. It may refuse it.
    pub(super) fn compare_forwarded(&mut self, input: &[u8], own: &Answer, original: &[u8]) {
        if !original.is_empty() && !own.agrees(original) {
            self.note(input, own.text.as_deref().unwrap_or_default(), original);
        }
    }

    pub(super) fn joined(mut self, other: Self) -> Self {
        self.same += other.same;
        self.full += other.full;
        self.refused_here += other.refused_here;
        self.refused_there += other.refused_there;
        self.differences.extend(other.differences);
        self
    }

    /// Inputs that both sides refuse compare nothing.
    pub(super) fn assert_meaningful(&self) {
        assert!(self.same > self.refused_here + self.refused_there, "{self:?}");
        assert!(self.full > self.same / 10, "{self:?}");
    }

    fn note(&mut self, input: &[u8], own: &str, original: &[u8]) {
        if self.differences.len() < KEPT {
            let (input, original) = (input.escape_ascii(), original.escape_ascii());
            let own = own.as_bytes().escape_ascii();
            self.differences.push(format!("{:?}: {input}\nWeir: {own}\nAPI server: {original}", self.kind));
        }
    }
}

impl Answer {
    fn agrees(&self, original: &[u8]) -> bool {
        let own = self.text.as_deref().unwrap_or_default().as_bytes();
        // A resource that does not exist has no options.
        match self.is_partial || original.ends_with(b"\n404") {
            true => first_line(original) == first_line(own),
            false => original == own,
        }
    }
}

fn first_line(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

fn text(input: &[u8]) -> &str {
    std::str::from_utf8(input).unwrap()
}

/// What a handler behind hyper makes of the first request in these bytes; nothing if hyper refuses it.
fn received<B: Fn(&Request<()>) -> Answer>(input: &[u8], handle: B) -> Answer {
    let answer = RefCell::new(None);
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        answer.borrow_mut().get_or_insert_with(|| handle(&request.map(drop)));
        ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
    });
    // The connection never waits, and how it ends does not matter.
    let _ = http1::Builder::new().serve_connection(Wire(input), service).now_or_never();
    answer.into_inner().unwrap_or_default()
}

/// A connection that carries these bytes.
struct Wire<'a>(&'a [u8]);

impl hyper::rt::Read for Wire<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let (now, later) = self.0.split_at(self.0.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.0 = later;
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Wire<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A request as hyper writes it. A body does not matter, and neither does where it ends.
fn forwarded(request: &Request<()>, path: &str) -> Vec<u8> {
    let mut bytes = format!("{} {path} HTTP/1.1\r\n", request.method()).into_bytes();
    if request.version() != Version::HTTP_11 && !request.headers().contains_key("host") {
        bytes.extend(b"host: x\r\n");
    }
    for (name, value) in request.headers() {
        if !matches!(name.as_str(), "content-length" | "transfer-encoding") {
            bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
    }
    bytes.extend(b"\r\n");
    bytes
}

fn credential(headers: &HeaderMap) -> String {
    let token = match Credential::of(headers) {
        Credential::None => "anonymous".to_owned(),
        Credential::Malformed(_) => "malformed".to_owned(),
        Credential::Token(token) => format!("token {}", hex(token.as_bytes())),
        Credential::Either { bearer, websocket } => {
            format!("token {} {}", hex(bearer.as_bytes()), hex(websocket.as_bytes()))
        }
    };
    let Ok(impersonation) = Impersonation::of(headers) else { return token + "; error" };
    let Impersonation { user, uid, groups, extra } = impersonation.unwrap_or_default();
    let mut extra: Vec<_> = extra
        .iter()
        .flat_map(|(key, values)| values.iter().map(|value| format!("{}={}", hex(key), hex(value))))
        .collect();
    extra.sort_unstable();
    let groups: Vec<_> = groups.iter().map(|group| hex(group)).collect();
    let (user, uid) = (hex(&user), hex(&uid.unwrap_or_default()));
    format!("{token}; user {user}; uid {uid}; groups {}; extra {}", groups.join(" "), extra.join(" "))
}

fn resource(request: &Request<()>) -> Answer {
    let Ok(parsed) = RequestInfo::parse(request.method(), request.uri()) else { return Answer::default() };
    let forwarded = forwarded(request, parsed.forward.as_str());
    let Some(resource) = parsed.resource() else {
        return Answer { text: Some("none".to_owned()), forwarded, ..Answer::default() };
    };
    let parts = [
        resource.verb.name(),
        Some(resource.resource.group.as_str()),
        Some(resource.version.as_str()),
        resource.namespace.as_deref(),
        Some(resource.resource.resource.as_str()),
        resource.subresource.as_deref(),
        resource.authorized_name(),
        resource.field_selector(),
        resource.label_selector(),
    ];
    let parts = parts.map(|part| hex(part.unwrap_or_default().as_bytes()));
    let mut text = parts.join(" ");
    if !matches!(resource.verb, Verb::List | Verb::Watch) || resource.subresource.is_some() {
        return Answer { text: Some(text), forwarded, ..Answer::default() };
    }
    let options = match &resource.options {
        // Some fields have another name in storage, and some do not exist.
        Ok(options) => match options.fields.support(&resource.resource, resource.is_namespaced()) {
            FieldSupport::Evaluated => Some(options_text(options)),
            FieldSupport::Upstream(_) | FieldSupport::Refused(_) => None,
        },
        // Storage parses the version, which is not asked.
        Err(error) if error.parameter == "resourceVersion" => None,
        Err(error) => match error.kind {
            OptionsErrorKind::Malformed => Some("400".to_owned()),
            OptionsErrorKind::Contradiction => Some("422".to_owned()),
            OptionsErrorKind::Unserved | OptionsErrorKind::Unknown => None,
        },
    };
    let is_partial = options.is_none();
    if let Some(options) = options {
        let _ = write!(text, "\n{options}");
    }
    Answer { text: Some(text), is_partial, forwarded }
}

fn options_text(options: &ListOptions) -> String {
    let (mut initial, mut version_match) = (options.send_initial_events, options.resource_version_match.as_str());
    // `SetListOptionsDefaults`
    let is_legacy = matches!(options.resource_version.as_str(), "" | "0");
    if options.watch && is_legacy && (initial, version_match) == (None, "") {
        (initial, version_match) = (Some(true), "NotOlderThan");
    }
    let none = || "-".to_owned();
    format!(
        "200 {}\n{}\n{} {} {} {} {} {} {} {}",
        options.labels,
        options.fields,
        options.watch,
        options.allow_watch_bookmarks,
        options.timeout_seconds.map_or_else(none, |seconds| seconds.to_string()),
        initial.map_or_else(none, |initial| initial.to_string()),
        options.limit,
        hex(options.resource_version.as_bytes()),
        hex(version_match.as_bytes()),
        hex(options.continue_token.as_bytes()),
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
