//! `weir status`: what a running daemon does, from its admin port.

mod summary;
mod table;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::summary::summary;
use super::CommandError;
use super::workbench::block_on;
use crate::config::operator::{OutputFormat, StatusFlags};

/// How long the daemon may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer.
const MAX_ANSWER: usize = 16 << 20;

/// Prints the state of a daemon, and returns whether it is well.
///
/// # Errors
/// No daemon answers on the admin port.
pub fn status(flags: &StatusFlags) -> Result<bool, CommandError> {
    let address = flags.admin.address();
    let text = block_on(async {
        let late = || CommandError::AdminPort { address, source: format!("no answer within {TIMEOUT:?}").into() };
        timeout(TIMEOUT, get(address)).await.unwrap_or_else(|_| Err(late()))
    })?;
    let status: Value =
        serde_json::from_str(&text).map_err(|error| CommandError::AdminPort { address, source: Box::new(error) })?;
    match flags.output {
        OutputFormat::Json => say!("{}", text.trim_end()),
        OutputFormat::Text => say!("{}", summary(&status).trim_end()),
    }
    Ok(status.get("verdict").and_then(Value::as_str) == Some("ready"))
}

/// Reads `/status`. Cancel-safe: it only reads.
async fn get(address: SocketAddr) -> Result<String, CommandError> {
    let failed = |source| CommandError::AdminPort { address, source };
    let stream = TcpStream::connect(address).await.map_err(|error| failed(error.into()))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(error.into()))?;
    let request = Request::get("/status")
        .header(header::HOST, address.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(|error| failed(error.into()))?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| failed(error.into()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(failed)?;
        let text = String::from_utf8(body.to_bytes().into()).map_err(|error| failed(error.into()))?;
        match status {
            StatusCode::OK => Ok(text),
            status => Err(failed(format!("{status}: {}", table::printable(text.trim_end())).into())),
        }
    };
    tokio::pin!(connection);
    tokio::select! {
        biased;
        answer = answer => answer,
        ended = &mut connection => Err(failed(match ended {
            Ok(()) => "the connection was closed".into(),
            Err(error) => error.into(),
        })),
    }
}
