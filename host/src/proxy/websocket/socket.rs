//! The WebSocket of a watch while it is open.
//!
//! Weir sends events, answers pings, and ignores all else that the client sends. The watch ends when the client closes or is gone, and
//! the client gets a close frame when the watch ends: 1000, as from kube-apiserver, so that it continues from its last
//! version. An event leaves from where the watch has it; only small ones are copied, to leave together.
//!
//! Memory: [`BATCH`] bytes of small events, and of the client's frames a control frame at most: the bytes of others are dropped as
//! they arrive. A client that does not take a close frame within [`LINGER`] is left.

use std::io;
use std::time::Duration;

use bytes::buf::Chain;
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::time::timeout;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

use super::events::{Events, Framing, TooLarge};
use crate::serve::body::ResponseBody;

/// The size up to which small events leave together.
const BATCH: usize = 16 << 10;
/// An event of this size leaves from where it is.
const LARGE: usize = 2 << 10;
/// How long a client has to take the close frame and to close.
const LINGER: Duration = Duration::from_secs(1);
/// The largest payload of a control frame.
const CONTROL: u64 = 125;

/// The WebSocket of a watch.
pub(super) struct EventSocket<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    events: Events,
    client: ClientFrames,
    /// The answer to the client's last ping.
    pong: Option<Bytes>,
}

/// Complete frames that are being written.
type Frames = Chain<Bytes, Bytes>;

/// What a client sends, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
enum ClientFrame {
    /// Wants its payload back.
    Ping(Bytes),
    /// The client closes.
    Close,
    /// No frame of a client.
    Invalid,
}

/// The frames that a client sends.
#[derive(Debug, Default)]
struct ClientFrames {
    buffer: BytesMut,
    /// How much of the payload of a data frame is still to come.
    ignored: u64,
}

impl<S: AsyncRead + AsyncWrite> EventSocket<S> {
    pub(super) fn new(stream: S, events: Events) -> Self {
        let (reader, writer) = split(stream);
        Self { reader, writer, events, client: ClientFrames::default(), pong: None }
    }

    /// Sends the events of a body until it ends or the client does, and closes. Drops the body first. Not cancel-safe.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) async fn send(mut self, mut body: ResponseBody) -> io::Result<()> {
        let mut frames = Bytes::new().chain(Bytes::new());
        let mut has_ended = false;
        let code = loop {
            if !frames.has_remaining() {
                match self.next_frames() {
                    Ok(next) => frames = next,
                    Err(error) => {
                        tracing::warn!(%error, "watch over a WebSocket ended");
                        break CloseCode::Normal;
                    }
                }
            }
            let is_written = !frames.has_remaining();
            if is_written && has_ended {
                break CloseCode::Normal;
            }
            tokio::select! {
                received = self.client.receive(&mut self.reader) => match received? {
                    ClientFrame::Ping(payload) => self.pong = Some(payload),
                    ClientFrame::Close => break CloseCode::Normal,
                    ClientFrame::Invalid => break CloseCode::Protocol,
                },
                written = write(&mut self.writer, &mut frames), if !is_written => written?,
                part = body.frame(), if is_written => match part {
                    Some(Ok(part)) => self.events.push(part.into_data().unwrap_or_default()),
                    Some(Err(error)) => {
                        tracing::debug!(%error, "watch over a WebSocket ended");
                        has_ended = true;
                    }
                    None => {
                        has_ended = true;
                        if let Some(rest) = self.events.finish() {
                            frames = frame(OpCode::Data(Data::Text), rest);
                        }
                    }
                },
            }
        };
        drop(body);
        // A client that is too slow for it has the end of the connection as the end of the watch.
        timeout(LINGER, self.close(frames, code)).await.unwrap_or(Ok(()))
    }

    /// Returns the frames that leave next, large events one by one.
    fn next_frames(&mut self) -> Result<Frames, TooLarge> {
        let opcode = OpCode::Data(match self.events.framing() {
            Framing::Lines => Data::Text,
            Framing::Lengths => Data::Binary,
        });
        let mut small = Vec::new();
        if let Some(payload) = self.pong.take() {
            write_header(&mut small, OpCode::Control(Control::Pong), payload.len());
            small.extend_from_slice(&payload);
        }
        while small.len() < BATCH {
            let Some(event) = self.events.next()? else { break };
            write_header(&mut small, opcode, event.len());
            if event.len() >= LARGE {
                return Ok(Bytes::from(small).chain(event));
            }
            small.extend_from_slice(&event);
        }
        Ok(Bytes::from(small).chain(Bytes::new()))
    }

    /// Finishes the frames that have begun, and closes. Not cancel-safe.
    async fn close(mut self, mut frames: Frames, code: CloseCode) -> io::Result<()> {
        write(&mut self.writer, &mut frames).await?;
        let code = Bytes::copy_from_slice(&u16::from(code).to_be_bytes());
        write(&mut self.writer, &mut frame(OpCode::Control(Control::Close), code)).await?;
        self.writer.shutdown().await?;
        // With bytes of the client unread, the connection would be reset, and the last frames with it.
        let mut dropped = [0; 512];
        while self.reader.read(&mut dropped).await? > 0 {}
        Ok(())
    }
}

impl ClientFrames {
    /// Returns the next frame that matters. Cancel-safe.
    ///
    /// # Errors
    /// The client is gone.
    async fn receive(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> io::Result<ClientFrame> {
        loop {
            if let Some(frame) = self.next() {
                return Ok(frame);
            }
            if reader.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Returns the next frame that matters of what has arrived.
    fn next(&mut self) -> Option<ClientFrame> {
        loop {
            let ignored = usize::try_from(self.ignored).unwrap_or(usize::MAX).min(self.buffer.len());
            self.buffer.advance(ignored);
            self.ignored -= ignored as u64;
            let mut cursor = io::Cursor::new(&self.buffer);
            let Ok(parsed) = FrameHeader::parse(&mut cursor) else { return Some(ClientFrame::Invalid) };
            let (header, length) = parsed?;
            let at = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
            let is_extended = header.rsv1 || header.rsv2 || header.rsv3;
            let Some(mask) = header.mask.filter(|_| !is_extended) else { return Some(ClientFrame::Invalid) };
            let OpCode::Control(control) = header.opcode else {
                self.buffer.advance(at);
                self.ignored = length;
                continue;
            };
            if length > CONTROL || !header.is_final {
                return Some(ClientFrame::Invalid);
            }
            let end = at + usize::try_from(length).unwrap_or(usize::MAX);
            let masked = self.buffer.get(at..end)?;
            let payload = masked.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            self.buffer.advance(end);
            match control {
                Control::Ping => return Some(ClientFrame::Ping(payload)),
                Control::Close => return Some(ClientFrame::Close),
                Control::Pong | Control::Reserved(_) => {}
            }
        }
    }
}

/// Writes all of the frames. Cancel-safe: the next call goes on.
async fn write(writer: &mut (impl AsyncWrite + Unpin), frames: &mut Frames) -> io::Result<()> {
    writer.write_all_buf(frames).await?;
    writer.flush().await
}

fn frame(opcode: OpCode, payload: Bytes) -> Frames {
    let mut header = Vec::new();
    write_header(&mut header, opcode, payload.len());
    Bytes::from(header).chain(payload)
}

fn write_header(to: &mut Vec<u8>, opcode: OpCode, length: usize) {
    // Writing to memory cannot fail.
    let _ = FrameHeader { opcode, ..FrameHeader::default() }.format(length as u64, to);
}

#[cfg(test)]
mod tests;
