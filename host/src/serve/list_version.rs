//! The resourceVersion of a list that is forwarded unread otherwise. Clients continue from it, also after filters begin to
//! match.
//!
//! kube-apiserver writes it before the items. Memory: [`MAX_HEAD`] bytes, until the version is found.

use bytes::Bytes;
use http::{HeaderMap, header};
use weir_kube::{Encoding, ResourceRequest};
use weir_upstream::Gunzip;

use weir_wire::ObjectType;
use weir_wire::list::ListDecoder;

/// How far into a list its version is looked for.
const MAX_HEAD: usize = 4 << 10;

/// Reads the beginning of a list as it passes, once.
pub(super) struct ListVersion {
    gunzip: Option<Gunzip>,
    decoder: ListDecoder,
    read: usize,
}

impl ListVersion {
    /// `None` if the response has another form than the lists that can be read.
    pub(super) fn of(resource: &ResourceRequest, headers: &HeaderMap) -> Option<Self> {
        let encoding = Encoding::from_content_type(headers.get(header::CONTENT_TYPE)?.to_str().ok()?)?;
        let api_version = resource.api_version();
        Some(Self {
            gunzip: Gunzip::of(headers).ok()?,
            decoder: ListDecoder::new(encoding, ObjectType::of(resource), api_version, usize::MAX),
            read: 0,
        })
    }

    /// Reads the next bytes of the response, and returns the version once it has passed. `Err`: it is not where it is looked
    /// for.
    pub(super) fn pass(&mut self, bytes: Bytes) -> Result<Option<u64>, ()> {
        match &mut self.gunzip {
            None => Self::read(&mut self.decoder, &mut self.read, bytes),
            Some(gunzip) => {
                gunzip.feed(bytes);
                while let Some(chunk) = gunzip.next_chunk().map_err(|_| ())?.filter(|_| self.read < MAX_HEAD) {
                    Self::read(&mut self.decoder, &mut self.read, chunk);
                }
            }
        }
        let is_list = self.decoder.next_piece().is_ok();
        match self.decoder.meta().resource_version.as_deref() {
            Some(version) => version.parse().map(Some).map_err(|_| ()),
            None if is_list && self.read < MAX_HEAD => Ok(None),
            None => Err(()),
        }
    }

    fn read(decoder: &mut ListDecoder, read: &mut usize, bytes: Bytes) {
        let head = bytes.len().min(MAX_HEAD - *read);
        decoder.push(bytes.slice(..head));
        *read += head;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use http::{Method, Uri};
    use weir_kube::RequestInfo;

    use super::*;

    fn version(content_type: &str, gzip: bool, body: &[u8], frame: usize) -> Result<Option<u64>, ()> {
        let request = RequestInfo::parse(&Method::GET, &Uri::from_static("/api/v1/services")).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
        let mut body = body.to_vec();
        if gzip {
            headers.insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&body).unwrap();
            body = encoder.finish().unwrap();
        }
        let mut list = ListVersion::of(request.resource().unwrap(), &headers).unwrap();
        let mut frames = body.chunks(frame).map(|frame| list.pass(Bytes::copy_from_slice(frame)));
        frames.find(|found| *found != Ok(None)).unwrap_or(Ok(None))
    }

    fn json(items: usize) -> Vec<u8> {
        let items = vec![r#"{"metadata":{"name":"a"}}"#; items].join(",");
        format!(
            r#"{{"kind":"ServiceList","apiVersion":"v1","metadata":{{"resourceVersion":"5000"}},"items":[{items}]}}"#
        )
        .into_bytes()
    }

    fn protobuf(items: usize) -> Vec<u8> {
        let field = |tag: u8, content: &[u8]| {
            let length = u8::try_from(content.len()).unwrap();
            [&[tag, length], content].concat()
        };
        let list = [field(0x0a, &field(0x12, b"5000")), field(0x12, &field(0x0a, &field(0x0a, b"a"))).repeat(items)];
        let type_meta = [field(0x0a, b"v1"), field(0x12, b"ServiceList")].concat();
        [b"k8s\0".to_vec(), field(0x0a, &type_meta), field(0x12, &list.concat())].concat()
    }

    #[test]
    fn the_version_is_found_at_the_beginning_in_every_form() {
        let protobuf_type = "application/vnd.kubernetes.protobuf";
        for (content_type, body) in [
            ("application/json", json(0)),
            ("application/json", json(9000)),
            (protobuf_type, protobuf(0)),
            (protobuf_type, protobuf(9)),
        ] {
            for gzip in [false, true] {
                for frame in [1, 7, 1000, 1 << 20] {
                    let found = version(content_type, gzip, &body, frame);
                    assert_eq!(found, Ok(Some(5000)), "{content_type} {} gzip {gzip} {frame}", body.len());
                }
            }
        }
    }

    #[test]
    fn a_list_without_a_version_at_its_beginning_is_not_read_on() {
        let late = format!(r#"{{"items":["{}"],"metadata":{{"resourceVersion":"5"}}}}"#, "x".repeat(9000));
        for (gzip, body) in [(false, late.as_bytes()), (true, late.as_bytes()), (false, b"<html>")] {
            assert_eq!(version("application/json", gzip, body, 5000), Err(()));
        }
        assert_eq!(version("application/json", false, b"{", 1), Ok(None));
    }
}
