//! One client: its commands go to the engine, except those of the namespace `HOB` and those that a fault affects.
//!
//! Replies must keep their order in a pipeline. For a command that the proxy answers itself, it sends an `ECHO` with a
//! unique text to the engine, and replaces the reply to it. The proxy acts when that reply arrives, after all earlier
//! commands, and forwards the next command only then.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use hob_engine::RequestParser;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::control::{Control, Fault, error};

const READ_BYTES: usize = 16 * 1024;
const MAX_WORD_BYTES: usize = 64 << 20;
const MAX_REQUEST_BYTES: usize = 128 << 20;

/// Commands after which a connection receives messages: the proxy only forwards from then on.
const SUBSCRIBES: [&str; 4] = ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR"];

/// A reply of the engine that the proxy replaces.
struct Marker {
    reply: Vec<u8>,
    /// Asks for the text to send instead, and returns when it is known.
    reached: oneshot::Sender<()>,
    instead: oneshot::Receiver<Vec<u8>>,
}

pub(super) async fn serve(control: &Control, client: TcpStream, engine: SocketAddr) -> io::Result<()> {
    let engine = TcpStream::connect(engine).await?;
    client.set_nodelay(true)?;
    engine.set_nodelay(true)?;
    let (client_in, client_out) = client.into_split();
    let (engine_in, engine_out) = engine.into_split();
    let (markers, expected) = mpsc::channel(1);
    let requests = Requests { control, client: client_in, engine: engine_out, markers, state: State::Usual };
    tokio::select! {
        result = requests.forward() => result,
        result = forward_replies(engine_in, client_out, expected) => result,
    }
}

/// What the proxy may do with the next command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Usual,
    /// In a transaction every reply is `QUEUED`.
    Transaction,
    Subscribed,
}

/// What to do with a command.
enum Step {
    Forward,
    Wait(std::time::Duration),
    Answer(Answer),
    Disconnect,
}

enum Answer {
    Error(&'static str),
    Run(Vec<Vec<u8>>),
}

struct Requests<'c> {
    control: &'c Control,
    client: OwnedReadHalf,
    engine: OwnedWriteHalf,
    markers: mpsc::Sender<Marker>,
    state: State,
}

impl Requests<'_> {
    async fn forward(mut self) -> io::Result<()> {
        let mut parser = RequestParser::new(MAX_WORD_BYTES, MAX_REQUEST_BYTES);
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            match parser.parse(&buffer) {
                Ok(Some(length)) => {
                    let step = self.step(&parser.words(&buffer));
                    let request: Vec<u8> = buffer.drain(..length).collect();
                    parser.done();
                    match step {
                        Step::Disconnect => return Ok(()),
                        Step::Answer(answer) => self.answer(answer).await?,
                        Step::Wait(latency) => {
                            tokio::time::sleep(latency).await;
                            self.engine.write_all(&request).await?;
                        }
                        Step::Forward => self.engine.write_all(&request).await?,
                    }
                }
                Ok(None) => {
                    let mut chunk = vec![0; READ_BYTES];
                    let read = self.client.read(&mut chunk).await?;
                    if read == 0 {
                        // The engine sends the last replies and closes the connection.
                        self.engine.shutdown().await?;
                        return std::future::pending().await;
                    }
                    buffer.extend_from_slice(&chunk[..read]);
                }
                // The engine finds the same error, reports it and closes the connection.
                Err(_) => {
                    self.engine.write_all(&buffer).await?;
                    return std::future::pending().await;
                }
            }
        }
    }

    fn step(&mut self, words: &[&[u8]]) -> Step {
        let Some(name) = words.first().map(|name| name.to_ascii_uppercase()) else { return Step::Forward };
        match (self.state, name.as_slice()) {
            (State::Subscribed, _) => return Step::Forward,
            (State::Transaction, b"EXEC" | b"DISCARD" | b"RESET") => {
                self.state = State::Usual;
                return Step::Forward;
            }
            (State::Transaction, _) => return Step::Forward,
            (State::Usual, b"HOB") => {
                return Step::Answer(Answer::Run(words.iter().map(|word| word.to_vec()).collect()));
            }
            (State::Usual, _) => {}
        }
        match self.control.fault(words) {
            Some(Fault::Disconnect) => return Step::Disconnect,
            Some(Fault::Refuse(text)) => return Step::Answer(Answer::Error(text)),
            Some(Fault::Wait(latency)) => {
                self.note(&name);
                return Step::Wait(latency);
            }
            None => {}
        }
        self.note(&name);
        Step::Forward
    }

    /// A forwarded command may change how later ones are answered.
    fn note(&mut self, name: &[u8]) {
        if name == b"MULTI" {
            self.state = State::Transaction;
        } else if SUBSCRIBES.iter().any(|subscribes| subscribes.as_bytes() == name) {
            self.state = State::Subscribed;
        }
    }

    /// Answers a command after the replies to all earlier ones.
    async fn answer(&mut self, answer: Answer) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let text = format!("hob-test-redis-{:08x}-{number:016x}", std::process::id());
        let bulk = format!("${}\r\n{text}\r\n", text.len());
        let (reached, arrived) = oneshot::channel();
        let (send_instead, instead) = oneshot::channel();
        let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        let marker = Marker { reply: bulk.clone().into_bytes(), reached, instead };
        self.markers.send(marker).await.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        self.engine.write_all(format!("*2\r\n$4\r\nECHO\r\n{bulk}").as_bytes()).await?;
        arrived.await.map_err(closed)?;
        let reply = match answer {
            Answer::Error(text) => error(text),
            Answer::Run(words) => self.control.run(&words),
        };
        send_instead.send(reply).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

async fn forward_replies(
    mut engine: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    mut markers: mpsc::Receiver<Marker>,
) -> io::Result<()> {
    let mut buffer: Vec<u8> = Vec::new();
    let mut awaited: Option<Marker> = None;
    let mut chunk = vec![0; READ_BYTES];
    loop {
        let read = engine.read(&mut chunk).await?;
        if read == 0 {
            return client.write_all(&buffer).await;
        }
        buffer.extend_from_slice(&chunk[..read]);
        // A marker is sent before its ECHO, so it is here before its reply.
        awaited = awaited.or_else(|| markers.try_recv().ok());
        let Some(marker) = awaited.take() else {
            client.write_all(&buffer).await?;
            buffer.clear();
            continue;
        };
        let Some(at) = buffer.windows(marker.reply.len()).position(|window| window == marker.reply) else {
            // The end may be the start of the marker.
            let sure = buffer.len().saturating_sub(marker.reply.len() - 1);
            client.write_all(&buffer[..sure]).await?;
            buffer.drain(..sure);
            awaited = Some(marker);
            continue;
        };
        client.write_all(&buffer[..at]).await?;
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        marker.reached.send(()).map_err(|()| closed())?;
        client.write_all(&marker.instead.await.map_err(|_| closed())?).await?;
        buffer.drain(..at + marker.reply.len());
        client.write_all(&buffer).await?;
        buffer.clear();
    }
}
