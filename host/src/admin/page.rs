//! `/`: the status page. One file without external assets; it reads `/status` every few seconds.
//!
//! Names in `/status` come from the cluster, from modules and from clients. The page puts them into text nodes only, and the
//! Content-Security-Policy allows its own inline script and style, by their hashes, and nothing else.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_FRAME_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use sha2::{Digest as _, Sha256};

use super::port::with;

const PAGE: &str = include_str!("page.html");

static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = |element: &str| {
        let text = content(PAGE, element).unwrap_or_default();
        format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
    };
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash("script"),
        hash("style")
    );
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// Returns the page.
pub(super) fn page() -> Response<Full<Bytes>> {
    let mut response = with(StatusCode::OK, "text/html; charset=utf-8", PAGE);
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// The text of the first element of this name.
fn content<'a>(page: &'a str, element: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("<{element}>"))?;
    Some(rest.split_once(&format!("</{element}>"))?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_no_external_assets_and_is_small() {
        assert!(PAGE.len() < 100 << 10, "{} bytes", PAGE.len());
        for element in ["script", "style"] {
            assert_eq!(PAGE.matches(&format!("<{element}")).count(), 1, "the hash is of the first one");
            assert!(content(PAGE, element).is_some_and(|text| !text.is_empty()));
        }
        for external in ["http:", "https:", "src=", "@import", "url(", "style=", "onclick"] {
            assert!(!PAGE.contains(external), "{external}");
        }
    }

    #[test]
    fn the_page_makes_no_html_of_data() {
        for dangerous in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser"] {
            assert!(!PAGE.contains(dangerous), "{dangerous}");
        }
    }

    #[test]
    fn the_policy_allows_only_the_inline_script_and_style() {
        let response = page();
        let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert_eq!(policy.matches("'sha256-").count(), 2, "{policy}");
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    }
}
