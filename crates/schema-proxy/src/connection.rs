//! One client: forwards its commands and their replies.

use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::Mode;
use crate::checks::Writer;
use crate::framing::{Framer, Parsed, ProtocolError};
use crate::judge::{Request, is_word};
use crate::ledger::{Batch, Origin, When, count};
use crate::nodes::Node;
use crate::redirects::Redirects;
use crate::replies::{ClusterMap, Instead, MAX_WAITING, Markers, Next};
use crate::rules::{Action, Rule, SessionCommand};
use crate::session::Session;
use crate::upstream::{UpstreamStream, tune};

const READ_BYTES: usize = 16 * 1024;
/// An idle connection does not keep a larger buffer.
const MAX_IDLE_BYTES: usize = 64 * 1024;

/// Serves a client until one of both sides closes the connection.
pub(crate) async fn serve(node: &Node, mut client: TcpStream, peer: SocketAddr) -> io::Result<()> {
    tune(&client)?;
    let local = client.local_addr()?.ip();
    let upstream = match node.upstream.connect().await {
        Ok(upstream) => upstream,
        Err(error) => {
            tracing::warn!(upstream = %node.upstream.host, %error, "failed to connect to the upstream");
            count(&node.shared.ledger.counts.rejected, 1);
            return client.write_all(b"-ERR the schema proxy cannot connect to its upstream\r\n").await;
        }
    };
    let relay = Relay { node, local, markers: Mutex::new(Markers::new()), replaced: Notify::new() };
    let session = Session::new(peer);
    match upstream {
        UpstreamStream::Plain(mut upstream) => relay.run(session, client.split(), upstream.split()).await,
        UpstreamStream::Tls(upstream) => relay.run(session, client.split(), tokio::io::split(upstream)).await,
    }
}

/// What both directions share.
struct Relay<'n> {
    node: &'n Node,
    /// The address at which the client reached the proxy.
    local: IpAddr,
    markers: Mutex<Markers>,
    /// A reply to a marker was replaced.
    replaced: Notify,
}

impl Relay<'_> {
    async fn run<CR, CW, UR, UW>(
        &self,
        session: Session,
        client: (CR, CW),
        upstream: (UR, UW),
    ) -> io::Result<()>
    where
        CR: AsyncRead + Unpin,
        CW: AsyncWrite + Unpin,
        UR: AsyncRead + Unpin,
        UW: AsyncWrite + Unpin,
    {
        let requests = Requests {
            relay: self,
            session,
            client: client.0,
            upstream: upstream.1,
            buffer: BytesMut::new(),
            framer: Framer::default(),
            long: None,
        };
        let redirects = self.node.routes.is_some().then(Redirects::default);
        let replies =
            Replies { relay: self, upstream: upstream.0, client: client.1, redirects, held: Vec::new() };
        tokio::select! {
            biased;
            ended = replies.forward() => ended,
            ended = requests.forward() => ended,
        }
    }

    /// The rule for a command; `None` to forward it.
    fn rule(&self, name: &[u8]) -> Option<&Rule> {
        self.node.shared.rules.find(name)
    }

    /// Looks at a command: `None` to forward it, otherwise the command to send instead.
    fn look(&self, session: &mut Session, request: &Request<'_>, batch: &mut Batch) -> Option<Vec<u8>> {
        self.apply(self.rule(request.words.first()?)?, session, request, batch)
    }

    fn apply(
        &self,
        rule: &Rule,
        session: &mut Session,
        request: &Request<'_>,
        batch: &mut Batch,
    ) -> Option<Vec<u8>> {
        let shared = &self.node.shared;
        if let Action::Session(command) = rule.action {
            session.apply(command, request.words);
            let instead = self.map_question(command, request.words)?;
            return Some(self.markers.lock().add(instead));
        }
        batch.writes += 1;
        let verdict = shared.judge.judge(rule, request, session);
        for finding in &verdict.findings {
            shared.record(When::Before, Origin { client: &session.client, command: &rule.name }, finding);
        }
        if let (Mode::Enforce, Some(finding)) = (shared.options.mode, verdict.findings.first()) {
            count(&shared.ledger.counts.refused, 1);
            return Some(self.markers.lock().add(Instead::Text(finding.reply())));
        }
        // The connection of the proxy reads one database.
        if session.database == self.node.database {
            for key in &verdict.later {
                let writer = || Writer { client: session.client.clone(), command: rule.name.clone() };
                batch.unchecked += u64::from(!self.node.checks.add(key, writer));
            }
        }
        None
    }

    /// Waits while too many refusals have not reached the client.
    async fn wait_for_replies(&self) {
        loop {
            let replaced = self.replaced.notified();
            if self.markers.lock().len() < MAX_WAITING {
                return;
            }
            replaced.await;
        }
    }

    /// The answer to a question about the servers of a Cluster.
    fn map_question(&self, command: SessionCommand, words: &[&[u8]]) -> Option<Instead> {
        self.node.routes.as_ref().filter(|_| command == SessionCommand::Cluster)?;
        let question = words.get(1)?;
        if is_word(question, "slots") {
            return Some(Instead::Map(ClusterMap::Slots));
        }
        if is_word(question, "nodes") {
            return Some(Instead::Map(ClusterMap::Nodes));
        }
        // Clients then use CLUSTER SLOTS, as with Redis 6.
        let unknown = "-ERR unknown subcommand 'SHARDS'. Try CLUSTER HELP.\r\n";
        is_word(question, "shards").then(|| Instead::Text(unknown.to_owned()))
    }
}

/// What happens to the rest of a long command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Long {
    Forward,
    Discard,
}

struct Requests<'r, CR, UW> {
    relay: &'r Relay<'r>,
    session: Session,
    client: CR,
    upstream: UW,
    buffer: BytesMut,
    framer: Framer,
    long: Option<Long>,
}

impl<CR: AsyncRead + Unpin, UW: AsyncWrite + Unpin> Requests<'_, CR, UW> {
    async fn forward(mut self) -> io::Result<()> {
        loop {
            if self.buffer.is_empty() && self.buffer.capacity() > MAX_IDLE_BYTES {
                self.buffer = BytesMut::new();
            }
            self.buffer.reserve(READ_BYTES);
            if self.client.read_buf(&mut self.buffer).await? == 0 {
                // The server sends the last replies and closes the connection.
                self.upstream.shutdown().await?;
                return pending().await;
            }
            if let Err(error) = self.forward_buffered().await? {
                return self.fail(error).await;
            }
        }
    }

    /// Forwards every command that has arrived, and the part of a long one. Bytes between two replaced commands are written
    /// as they are in the buffer.
    async fn forward_buffered(&mut self) -> io::Result<Result<(), ProtocolError>> {
        let (mut written, mut at) = (0, 0);
        let mut batch = Batch::default();
        let (relay, session) = (self.relay, &mut self.session);
        let ended = loop {
            let bytes = &self.buffer[at..];
            if let Some(long) = self.long {
                match self.framer.stream(bytes) {
                    Ok((taken, ended)) => {
                        if long == Long::Discard {
                            self.upstream.write_all(&self.buffer[written..at]).await?;
                            written = at + taken;
                        }
                        at += taken;
                        if !ended {
                            break Ok(());
                        }
                        self.long = None;
                        continue;
                    }
                    Err(error) => break Err(error),
                }
            }
            let parsed = match self.framer.parse(bytes) {
                Ok(Parsed::Partial) => break Ok(()),
                Ok(parsed) => parsed,
                Err(error) => break Err(error),
            };
            batch.commands += 1;
            let (length, instead) = match parsed {
                Parsed::Partial => break Ok(()),
                Parsed::Empty(length) => {
                    batch.commands -= 1;
                    (length, None)
                }
                Parsed::Request(length) => {
                    // Of most commands, only the name is needed.
                    let rule = self.framer.name(bytes).and_then(|name| relay.rule(name));
                    let instead = rule.and_then(|rule| {
                        let words = self.framer.words(bytes);
                        relay.apply(rule, session, &Request { words: &words, cut: None }, &mut batch)
                    });
                    (length, instead)
                }
                Parsed::Inline(length, words) => {
                    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                    let request = Request { words: &words, cut: None };
                    let instead = relay.look(session, &request, &mut batch);
                    // As an array, a server cannot read it in another way.
                    (length, Some(instead.unwrap_or_else(|| encode(&words))))
                }
                Parsed::Long => {
                    let words = self.framer.words(bytes);
                    let request = Request { words: &words, cut: Some(self.framer.long_word()) };
                    let instead = relay.look(session, &request, &mut batch);
                    self.long = Some(if instead.is_some() { Long::Discard } else { Long::Forward });
                    (0, instead)
                }
            };
            if let Some(instead) = instead {
                // A client that has its reply finds its command in the counts.
                relay.node.shared.ledger.counts.add(&mut batch);
                self.upstream.write_all(&self.buffer[written..at]).await?;
                self.upstream.write_all(&instead).await?;
                written = at + length;
                relay.wait_for_replies().await;
            }
            at += length;
        };
        relay.node.shared.ledger.counts.add(&mut batch);
        if written < at {
            self.upstream.write_all(&self.buffer[written..at]).await?;
        }
        // A stream that encrypts may keep what it was given.
        self.upstream.flush().await?;
        self.buffer.advance(at);
        Ok(ended)
    }

    /// A mistake in the protocol. The server reports it, unless the proxy must be sure that it sees every command.
    async fn fail(mut self, error: ProtocolError) -> io::Result<()> {
        if self.relay.node.shared.options.mode == Mode::Enforce {
            let command = self.relay.markers.lock().add(Instead::Text(format!("-{error}\r\n")));
            self.upstream.write_all(&command).await?;
            self.upstream.shutdown().await?;
            return pending().await;
        }
        loop {
            self.upstream.write_all(&self.buffer).await?;
            self.upstream.flush().await?;
            self.buffer.clear();
            if self.client.read_buf(&mut self.buffer).await? == 0 {
                self.upstream.shutdown().await?;
                return pending().await;
            }
        }
    }
}

/// A command as an array of bulk strings.
fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

struct Replies<'r, UR, CW> {
    relay: &'r Relay<'r>,
    upstream: UR,
    client: CW,
    /// Only with a Cluster.
    redirects: Option<Redirects>,
    /// The end of what has arrived, if it may be the start of a reply to a marker.
    held: Vec<u8>,
}

impl<UR: AsyncRead + Unpin, CW: AsyncWrite + Unpin> Replies<'_, UR, CW> {
    async fn forward(mut self) -> io::Result<()> {
        let mut buffer = BytesMut::with_capacity(READ_BYTES);
        loop {
            buffer.clear();
            if self.upstream.read_buf(&mut buffer).await? == 0 {
                self.client.write_all(&self.held).await?;
                return self.client.shutdown().await;
            }
            if self.redirects.is_none() && self.held.is_empty() && self.relay.markers.lock().len() == 0 {
                self.client.write_all(&buffer).await?;
                continue;
            }
            self.held.extend_from_slice(&buffer);
            let out = self.replace().await;
            self.client.write_all(&out).await?;
        }
    }

    /// What can be sent to the client now.
    async fn replace(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.held.len());
        loop {
            let next = {
                let mut markers = self.relay.markers.lock();
                if markers.len() == 0 { Next::Forward(self.held.len()) } else { markers.find(&self.held) }
            };
            match next {
                Next::Forward(sure) => {
                    self.emit(sure, &mut out);
                    self.held.drain(..sure);
                    return out;
                }
                Next::Replace(start, end, instead) => {
                    self.emit(start, &mut out);
                    self.held.drain(..end);
                    let text = match instead {
                        Instead::Text(text) => text,
                        Instead::Map(map) => self.relay.node.cluster_map(map, self.relay.local).await,
                    };
                    out.extend_from_slice(text.as_bytes());
                    self.relay.replaced.notify_one();
                }
            }
        }
    }

    fn emit(&mut self, length: usize, out: &mut Vec<u8>) {
        let bytes = &self.held[..length];
        match &mut self.redirects {
            None => out.extend_from_slice(bytes),
            Some(redirects) => {
                redirects.rewrite(bytes, out, |host| self.relay.node.route(host, self.relay.local));
            }
        }
    }
}
