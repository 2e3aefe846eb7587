use futures_util::stream;
use http_body::Frame as BodyFrame;
use http_body_util::StreamBody;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;

use super::*;
use crate::serve::body::AbortError;

const TEXT: OpCode = OpCode::Data(Data::Text);
const PONG: OpCode = OpCode::Control(Control::Pong);
const CLOSE: OpCode = OpCode::Control(Control::Close);
const NORMAL: &[u8] = &1000_u16.to_be_bytes();
const MASK: [u8; 4] = [1, 2, 3, 4];

/// A watch whose body the test sends. The body is dropped when the receiver of its chunks is.
fn open(buffer: usize) -> (mpsc::Sender<&'static [u8]>, DuplexStream, impl Future<Output = io::Result<()>>) {
    let (chunks, received) = mpsc::channel::<&'static [u8]>(1);
    let (client, server) = duplex(buffer);
    let frames = stream::unfold(received, |mut received| async move {
        let chunk = received.recv().await?;
        Some((Ok::<_, AbortError>(BodyFrame::data(Bytes::from_static(chunk))), received))
    });
    let socket = EventSocket::new(server, Events::new(Framing::Lines));
    (chunks, client, socket.send(StreamBody::new(frames).boxed_unsync()))
}

/// A frame as a client sends it.
fn masked(opcode: OpCode, is_final: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = FrameHeader { opcode, is_final, mask: Some(MASK), ..FrameHeader::default() };
    header.format(payload.len() as u64, &mut bytes).unwrap();
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The next frame that the client gets.
async fn next(client: &mut DuplexStream) -> (OpCode, Vec<u8>) {
    let mut head = Vec::new();
    loop {
        head.push(client.read_u8().await.unwrap());
        if let Some((header, length)) = FrameHeader::parse(&mut io::Cursor::new(&head)).unwrap() {
            assert!(header.is_final && header.mask.is_none());
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            client.read_exact(&mut payload).await.unwrap();
            return (header.opcode, payload);
        }
    }
}

async fn ends(mut client: DuplexStream) {
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn each_event_is_one_frame_and_the_end_a_close_frame() {
    let (chunks, mut client, sent) = open(64);
    let large: &[u8] = Box::leak([vec![b'x'; 100_000], vec![b'\n']].concat().into());
    let read = async move {
        chunks.send(b"{1}\n{2}\n{").await.unwrap();
        assert_eq!(next(&mut client).await, (TEXT, b"{1}\n".into()));
        assert_eq!(next(&mut client).await, (TEXT, b"{2}\n".into()));
        chunks.send(b"3}\n").await.unwrap();
        assert_eq!(next(&mut client).await, (TEXT, b"{3}\n".into()));
        chunks.send(large).await.unwrap();
        assert_eq!(next(&mut client).await, (TEXT, large.into()));
        chunks.send(b"{4}").await.unwrap();
        drop(chunks);
        assert_eq!(next(&mut client).await, (TEXT, b"{4}".into()), "the last line may lack its end");
        assert_eq!(next(&mut client).await, (CLOSE, NORMAL.into()));
        ends(client).await;
    };
    let (sent, ()) = tokio::join!(sent, read);
    sent.unwrap();
}

#[tokio::test]
async fn pings_are_answered_and_other_frames_ignored_whatever_their_size() {
    let (chunks, mut client, sent) = open(1024);
    let read = async move {
        client.write_all(&masked(OpCode::Control(Control::Ping), true, b"")).await.unwrap();
        assert_eq!(next(&mut client).await, (PONG, vec![]));
        client.write_all(&masked(OpCode::Data(Data::Binary), false, &vec![1; 100_000])).await.unwrap();
        client.write_all(&masked(OpCode::Data(Data::Continue), true, b"rest")).await.unwrap();
        client.write_all(&masked(PONG, true, b"unasked")).await.unwrap();
        client.write_all(&masked(OpCode::Control(Control::Ping), true, &[7; 125])).await.unwrap();
        assert_eq!(next(&mut client).await, (PONG, vec![7; 125]));
        chunks.send(b"{}\n").await.unwrap();
        assert_eq!(next(&mut client).await, (TEXT, b"{}\n".into()));
        drop(client);
        chunks.closed().await;
    };
    let (sent, ()) = tokio::join!(sent, read);
    assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_client_that_closes_ends_the_watch_and_gets_a_close_frame() {
    for (bytes, code) in [
        (masked(CLOSE, true, NORMAL), CloseCode::Normal),
        (masked(CLOSE, true, b""), CloseCode::Normal),
        (b"\x81\x00".to_vec(), CloseCode::Protocol),
        (masked(OpCode::Control(Control::Ping), false, b""), CloseCode::Protocol),
        (masked(OpCode::Control(Control::Ping), true, &[0; 126]), CloseCode::Protocol),
        (b"\x83\x80\x01\x02\x03\x04".to_vec(), CloseCode::Protocol),
        (b"\xc1\x80\x01\x02\x03\x04".to_vec(), CloseCode::Protocol),
    ] {
        let (chunks, mut client, sent) = open(1024);
        let read = async {
            client.write_all(&bytes).await.unwrap();
            chunks.closed().await;
            assert_eq!(next(&mut client).await, (CLOSE, u16::from(code).to_be_bytes().into()), "{bytes:x?}");
            ends(client).await;
        };
        let (sent, ()) = tokio::join!(sent, read);
        sent.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_stops_the_body_and_is_not_waited_for() {
    let (chunks, mut client, sent) = open(64);
    let large: &[u8] = Box::leak([vec![b'x'; 10_000], vec![b'\n']].concat().into());
    let read = async move {
        chunks.send(large).await.unwrap();
        // The second one fills the channel, and is not taken from there.
        chunks.send(b"{}\n").await.unwrap();
        let more = timeout(Duration::from_secs(60), chunks.send(b"{}\n")).await;
        assert!(more.is_err(), "nothing more is read from the body");
        client.write_all(&masked(CLOSE, true, b"")).await.unwrap();
        chunks.closed().await;
        client
    };
    let (sent, _client) = tokio::join!(sent, read);
    sent.unwrap();
}

#[test]
fn frames_of_a_client_are_found_byte_by_byte() {
    let mut frames = ClientFrames::default();
    let mut found = Vec::new();
    let sent = [
        masked(OpCode::Data(Data::Text), true, &[b'x'; 300]),
        masked(OpCode::Control(Control::Ping), true, b"abcde"),
        masked(CLOSE, true, b""),
    ];
    for byte in sent.concat() {
        frames.buffer.extend_from_slice(&[byte]);
        assert!(frames.buffer.len() < 140, "a control frame at most");
        found.extend(frames.next());
    }
    assert_eq!(found, [ClientFrame::Ping(Bytes::from_static(b"abcde")), ClientFrame::Close]);
}
