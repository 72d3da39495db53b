//! The door for every other client: RESP2 and RESP3 over TCP or a Unix socket.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::encode::encode;
use super::member::Member;
use super::request::RequestParser;
use crate::engine::Engine;
use crate::hub::{Delivery, Inbox, mailbox};
use crate::reply::Reply;
use crate::session::{Client, Protocol, Session, SessionOrigin};

/// Replies are sent once they are this long, so that a long pipeline's do not pile up.
const FLUSH_AT: usize = 64 * 1024;
const READ_AT_ONCE: usize = 16 * 1024;

/// Accepts clients of an engine.
#[derive(Debug)]
pub struct Listener {
    engine: Engine,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens on a TCP address. One that others can reach is refused while there is no password.
    pub async fn bind(engine: Engine, address: SocketAddr) -> io::Result<Listener> {
        let open = engine.with_core(|core| core.settings.password.is_none());
        if open && !address.ip().is_loopback() {
            let text = format!(
                "{address} can be reached from elsewhere: set a password, or bind a loopback address"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let socket = Socket::Tcp(TcpListener::bind(address).await?);
        Ok(Listener { engine, socket })
    }

    pub fn bind_unix(engine: Engine, path: &Path) -> io::Result<Listener> {
        let socket = Socket::Unix(UnixListener::bind(path)?);
        Ok(Listener { engine, socket })
    }

    /// Where it listens, if that is a TCP address.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// Serves clients until `shutdown` is done; then all connections are closed and their scripts stopped.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        tokio::pin!(shutdown);
        let mut clients = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                Some(_) = clients.join_next() => continue,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok(client) => drop(clients.spawn(client)),
                Err(error) => {
                    // Out of file handles, most likely: give those that are open time to close.
                    tracing::warn!(%error, "could not accept a client");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        clients.shutdown().await;
        self.engine.stop_client_scripts().await;
    }

    /// Waits for the next client; what serves it.
    async fn accept(&self) -> io::Result<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let engine = self.engine.clone();
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let local = stream.local_addr()?.to_string();
                Ok(Box::pin(serve_client(engine, stream, peer.to_string(), local)))
            }
            Socket::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let local = listener.local_addr()?;
                let path = local.as_pathname().map_or("unix".into(), |path| path.display().to_string());
                Ok(Box::pin(serve_client(engine, stream, format!("{path}:0"), path)))
            }
        }
    }
}

async fn serve_client<S>(engine: Engine, mut stream: S, address: String, local_address: String)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let kill = Arc::new(Notify::new());
    let Some((session, inbox)) = register(&engine, &kill, address, local_address) else {
        let _ = stream.write_all(b"-ERR max number of clients reached\r\n").await;
        return;
    };
    let parser = engine
        .with_core(|core| RequestParser::new(core.settings.max_value_bytes, core.settings.max_command_bytes));
    let member = Member { engine, session };
    let mut client =
        Conversation { stream, member, inbox, parser, input: BytesMut::new(), output: Vec::new() };
    tokio::select! {
        () = kill.notified() => {}
        ended = client.run() => if let Err(error) = ended {
            tracing::debug!(%error, "a client is gone");
        },
    }
}

fn register(
    engine: &Engine,
    kill: &Arc<Notify>,
    address: String,
    local_address: String,
) -> Option<(Session, Inbox)> {
    engine.with_core(|core| {
        if core.clients.connected.len() >= core.settings.max_clients {
            core.clients.rejected += 1;
            return None;
        }
        let now_us = core.settings.clock.now_us();
        let id = core.clients.next_id();
        let client = Client {
            address,
            local_address,
            name: String::new(),
            since_us: now_us,
            active_us: now_us,
            last_command: "NULL",
            subscribed: false,
            kill: Arc::clone(kill),
        };
        core.clients.join(id, client);
        let (mailbox, inbox) = mailbox(core.settings.subscriber_queue, Some(Arc::clone(kill)));
        let open = core.settings.password.is_none();
        Some((Session::new(id, SessionOrigin::Socket, open, Some(mailbox)), inbox))
    })
}

struct Conversation<S> {
    stream: S,
    member: Member,
    inbox: Inbox,
    parser: RequestParser,
    input: BytesMut,
    output: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            self.answer_all().await?;
            self.flush().await?;
            if self.member.session.closing {
                return self.close().await;
            }
            if self.input.is_empty() && self.input.capacity() > FLUSH_AT {
                // A client that once sent something large must not hold that memory while it is idle.
                self.input = BytesMut::new();
            }
            self.input.reserve(READ_AT_ONCE);
            tokio::select! {
                read = self.stream.read_buf(&mut self.input) => if read? == 0 { return Ok(()) },
                delivery = self.inbox.receiver.recv() => match delivery {
                    Some(delivery) => self.pass_on(delivery),
                    None => return Ok(()),
                },
            }
        }
    }

    /// Answers every whole request that has arrived.
    async fn answer_all(&mut self) -> io::Result<()> {
        while !self.member.session.closing {
            self.parser.set_trusted(self.member.session.authenticated);
            let length = match self.parser.parse(&self.input) {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(error) => {
                    encode(&Reply::Error(error.to_string().into()), Protocol::Resp2, &mut self.output);
                    self.member.session.closing = true;
                    break;
                }
            };
            let words = self.parser.words(&self.input);
            if !words.is_empty() {
                let reply = self.member.answer(&words).await;
                let reply = reply.ok_or_else(|| io::Error::other("the command panicked"))?;
                encode(&reply, self.member.session.protocol, &mut self.output);
            }
            self.parser.done();
            self.input.advance(length);
            if self.output.len() >= FLUSH_AT {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Leaves the store first: a client that sees its connection closed finds itself gone from there.
    async fn close(&mut self) -> io::Result<()> {
        self.member.leave();
        self.stream.shutdown().await
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).await?;
            self.output.clear();
            self.output.shrink_to(FLUSH_AT);
        }
        Ok(())
    }

    fn pass_on(&mut self, delivery: Delivery) {
        let mut next = Some(delivery);
        while let Some(delivery) = next {
            let reply = match delivery {
                Delivery::Message { channel, pattern: None, payload } => {
                    push([b"message".as_slice(), &channel, &payload])
                }
                Delivery::Message { channel, pattern: Some(pattern), payload } => {
                    push([b"pmessage".as_slice(), &pattern, &channel, &payload])
                }
                Delivery::Line(line) => Reply::Simple(String::from_utf8_lossy(&line).into_owned().into()),
            };
            encode(&reply, self.member.session.protocol, &mut self.output);
            next = if self.output.len() < FLUSH_AT { self.inbox.receiver.try_recv().ok() } else { None };
        }
        // As in Redis, a subscriber that cannot keep up is let go: it learns of its loss by that.
        self.member.session.closing |= self.inbox.missed.load(Ordering::Relaxed) > 0;
    }
}

fn push<const N: usize>(parts: [&[u8]; N]) -> Reply {
    Reply::Push(parts.map(Reply::bulk).into())
}
