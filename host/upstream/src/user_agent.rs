//! The User-Agent of the requests that the daemon makes itself.

use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue, header};

/// `weir/VERSION (OS/ARCHITECTURE)`.
static USER_AGENT: LazyLock<HeaderValue> = LazyLock::new(|| {
    let text = format!("weir/{} ({}/{})", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("weir"))
});

/// Sets the daemon's User-Agent, and replaces an existing one.
pub fn set_user_agent(headers: &mut HeaderMap) {
    headers.insert(header::USER_AGENT, USER_AGENT.clone());
}
