//! The end of connections when the daemon stops.

use std::pin::Pin;
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
use tokio::sync::watch;

use crate::connections::Connection;
use crate::head_guard::OwnAnswers;

/// How long an idle connection waits for a request on its way when the daemon stops.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// Resolves when a connection has neither a request nor something to send for longer than [`shut_down`] waits for one: the parser
/// waits for the rest of a head as long as the client likes.
pub(crate) async fn quiet(connection: &Connection, answers: &OwnAnswers) {
    loop {
        connection.idle(2 * LINGER).await;
        if !answers.are_unread() {
            return;
        }
    }
}

/// Ends a connection without losing a request.
///
/// An idle HTTP/1.1 client may be sending its next request just now. So an idle connection waits for [`LINGER`]. The
/// response to such a request has `Connection: close`. HTTP/2 needs no wait: GOAWAY names the last request.
pub(crate) async fn shut_down<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    busy: &mut watch::Receiver<usize>,
) -> C::Output {
    let last = async {
        // Without a sender the connection has ended, and the other branch of the select returns.
        let waited = async { busy.wait_for(|active| *active > 0).await.is_ok() };
        if tokio::time::timeout(LINGER, waited).await == Ok(false) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = last => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}
