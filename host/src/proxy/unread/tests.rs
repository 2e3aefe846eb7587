//! Answers that are read, slowly read and not read.

use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use http_body_util::StreamBody;

use super::*;
use weir_front::{Connection, Connections};

const TENANT: ConnectionPeer = ConnectionPeer::Local(Some(1000));
const ROOT: ConnectionPeer = ConnectionPeer::Local(Some(0));

struct Port {
    answers: Arc<UnreadAnswers>,
    connections: Arc<Connections>,
}

impl Port {
    fn new() -> Self {
        Self { answers: UnreadAnswers::new(), connections: Connections::new(4096) }
    }

    /// An answer without an end, of which a client has read the first bytes.
    async fn endless(&self, peer: ConnectionPeer) -> (ResponseBody, Connection) {
        self.answer(peer, stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(b"line"))))).await
    }

    /// An answer over HTTP/2 of which a client has read the first bytes.
    async fn answer(
        &self,
        peer: ConnectionPeer,
        frames: impl Stream<Item = Result<Frame<Bytes>, AbortError>> + Send + 'static,
    ) -> (ResponseBody, Connection) {
        let answer = Response::new(StreamBody::new(frames).boxed_unsync());
        self.send(peer, answer).await
    }

    async fn send(&self, peer: ConnectionPeer, answer: Response<ResponseBody>) -> (ResponseBody, Connection) {
        let connection = self.connections.admit(peer).unwrap();
        let mut body = self.answers.watch(answer, Version::HTTP_2, connection.begin()).into_body();
        assert!(body.frame().await.unwrap().is_ok());
        (body, connection)
    }
}

async fn is_given_up(body: &mut ResponseBody) -> bool {
    matches!(body.frame().await, Some(Err(AbortError::NotRead)))
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_loses_its_answer_and_later_its_connection() {
    let port = Port::new();
    let ((mut read, _open), (mut unread, connection)) = (port.endless(TENANT).await, port.endless(TENANT).await);
    let checked = port.answers.give_up(|| (usize::MAX, false));
    tokio::pin!(checked);
    for _ in 0..PATIENCE.as_secs() + 1 {
        assert!(futures_util::poll!(checked.as_mut()).is_pending());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!is_given_up(&mut read).await);
    }
    assert!(!connection.close().is_cancelled());
    for _ in 0..=CLOSE.as_secs() {
        assert!(futures_util::poll!(checked.as_mut()).is_pending());
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert!(futures_util::poll!(checked.as_mut()).is_pending());
    assert!(connection.close().is_cancelled() && is_given_up(&mut unread).await && !is_given_up(&mut read).await);
}

#[tokio::test(start_paused = true)]
async fn when_memory_is_short_the_peer_that_holds_most_loses_its_oldest_answers() {
    let port = Port::new();
    let (mut of_root, _first) = port.endless(ROOT).await;
    let mut of_tenant = Vec::new();
    for _ in 0..4 {
        tokio::time::advance(Duration::from_secs(1)).await;
        of_tenant.push(port.endless(TENANT).await);
    }
    port.answers.check((0, false));
    assert!(!is_given_up(&mut of_tenant[3].0).await, "it is new, and its client may be reading");
    tokio::time::advance(Duration::from_secs(1)).await;
    let mut of_tenant = Vec::new();
    for _ in 0..4 {
        tokio::time::advance(Duration::from_secs(1)).await;
        of_tenant.push(port.endless(TENANT).await);
    }
    assert!(is_given_up(&mut of_root).await, "there was no memory at all");
    let (mut of_root, _second) = port.endless(ROOT).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    port.answers.check((2 * HELD, false));
    let mut given_up = Vec::new();
    for (body, _) in &mut of_tenant {
        given_up.push(is_given_up(body).await);
    }
    assert_eq!(given_up, [true, true, true, false]);
    assert!(!is_given_up(&mut of_root).await);
}

fn line(line: &'static str) -> Result<Frame<Bytes>, AbortError> {
    Ok(Frame::data(Bytes::from_static(line.as_bytes())))
}

#[tokio::test(start_paused = true)]
async fn slow_watches_that_hold_nothing_are_not_given_up_for_those_that_do() {
    let port = Port::new();
    let mut watches = Vec::new();
    for _ in 0..600 {
        watches.push(port.answer(TENANT, stream::iter([line("event")]).chain(stream::pending())).await);
    }
    // Of the same client, and newer.
    let (mut log, _open) = port.endless(TENANT).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    port.answers.check((2 * HELD, false));
    for (watch, _) in &mut watches {
        assert!(watch.frame().now_or_never().is_none(), "it goes on waiting for events");
    }
    assert!(!is_given_up(&mut log).await);
    tokio::time::advance(Duration::from_secs(1)).await;
    port.answers.check((HELD - 1, false));
    assert!(is_given_up(&mut log).await, "only it holds a window");
    assert!(watches[0].0.frame().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_was_read_ahead_arrives_in_order_and_then_the_rest() {
    let port = Port::new();
    for peer in [TENANT, ROOT] {
        let last: Vec<_> = match peer {
            TENANT => vec![line("c")],
            _ => vec![line("c"), Err(AbortError::Stopping)],
        };
        let frames = stream::iter([line("a"), line("b")]).chain(stream::iter(last));
        let (mut body, _open) = port.answer(peer, frames).await;
        tokio::time::advance(Duration::from_secs(1)).await;
        // Twice: what was read stays.
        for _ in 0..2 {
            port.answers.check((6, false));
        }
        assert!(!body.is_end_stream());
        for expected in ["b", "c"] {
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), expected);
        }
        match peer {
            TENANT => assert!(body.frame().await.is_none()),
            _ => assert!(matches!(body.frame().await, Some(Err(AbortError::Stopping)))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_an_answer_waits_for_memory_the_peer_that_holds_most_of_it_loses_half_at_each_check() {
    let port = Port::new();
    let leased = async |peer| {
        let frames = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(b"part"))));
        let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
        answer.extensions_mut().insert(Leased);
        port.send(peer, answer).await
    };
    let (mut of_root, _first) = leased(ROOT).await;
    let mut of_tenant = Vec::new();
    for _ in 0..7 {
        of_tenant.push(leased(TENANT).await);
    }
    let (mut log, _second) = port.endless(TENANT).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    port.answers.check((usize::MAX, false));
    port.answers.check((usize::MAX, true));
    let mut lost = 0;
    for (body, _) in &mut of_tenant {
        lost += usize::from(is_given_up(body).await);
    }
    assert_eq!((lost, is_given_up(&mut of_root).await, is_given_up(&mut log).await), (4, false, false));
}
