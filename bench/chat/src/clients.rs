//! The clients in all rooms. In each room, one client sends messages, and all clients receive them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::member::MemberId;
use crate::protocol::{Event, Protocol};
use crate::stats::Stats;

/// The maximum number of clients that connect at the same time.
const MAX_CONNECTING: usize = 64;
/// How long a disconnected client stays offline.
const RECONNECT_DELAY: Duration = Duration::from_millis(300);
const TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between messages in each room; `None` sends no messages.
type SendInterval = Option<Duration>;

/// All clients.
pub(crate) struct Clients {
    pub(crate) stats: Arc<Stats>,
    interval: watch::Sender<SendInterval>,
    /// Disconnects a client, by member.
    disconnects: Vec<(MemberId, Arc<Notify>)>,
    _tasks: JoinSet<()>,
}

#[derive(Clone)]
struct Client {
    protocol: Protocol,
    server: SocketAddr,
    member: MemberId,
    stats: Arc<Stats>,
    interval: watch::Receiver<SendInterval>,
    disconnect: Arc<Notify>,
}

impl Clients {
    /// Connects all clients and waits until each has joined its room.
    pub(crate) async fn connect(
        protocol: Protocol,
        server: SocketAddr,
        rooms: usize,
        members: usize,
    ) -> Result<Self> {
        let stats = Arc::new(Stats::new(rooms, members));
        let (interval, receiver) = watch::channel(None);
        let ids: Vec<MemberId> =
            (0..members).flat_map(|number| (0..rooms).map(move |room| MemberId { room, number })).collect();
        let (mut disconnects, mut tasks) = (Vec::new(), JoinSet::new());
        for (at, member) in ids.iter().enumerate() {
            wait_until(|| stats.lock().joined + MAX_CONNECTING > at)
                .await
                .context("clients could not join")?;
            let disconnect = Arc::new(Notify::new());
            disconnects.push((*member, Arc::clone(&disconnect)));
            let (stats, interval) = (Arc::clone(&stats), receiver.clone());
            let client = Client { protocol, server, member: *member, stats, interval, disconnect };
            tasks.spawn(client.run());
        }
        wait_until(|| stats.lock().joined == ids.len()).await.context("not all clients could join")?;
        Ok(Self { stats, interval, disconnects, _tasks: tasks })
    }

    pub(crate) fn set_interval(&self, interval: SendInterval) {
        let _ = self.interval.send(interval);
    }

    /// Disconnects one of the clients that only receive; it reconnects after a short delay.
    pub(crate) fn disconnect(&self, which: usize) {
        let receivers: Vec<_> = self.disconnects.iter().filter(|(member, _)| !member.is_sender()).collect();
        receivers[which % receivers.len()].1.notify_one();
    }

    /// Waits until every acknowledged message is delivered, or until no message arrives for three seconds.
    pub(crate) async fn wait_for_deliveries(&self) {
        let (mut before, mut since) = (0, Instant::now());
        while since.elapsed() < Duration::from_secs(3) {
            let (delivered, expected) = self.stats.lock().delivered();
            if delivered == expected {
                return;
            }
            if delivered > before {
                (before, since) = (delivered, Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Client {
    /// Stays in the room and reconnects after a disconnect.
    async fn run(mut self) {
        let mut seen = 0;
        loop {
            if self.run_connection(&mut seen).await.is_err() {
                self.stats.lock().rejected += 1;
            }
            tokio::time::sleep(RECONNECT_DELAY).await;
        }
    }

    async fn run_connection(&mut self, seen: &mut u64) -> Result<()> {
        let mut socket = connect(self.server, self.protocol.path()).await?;
        socket.send(Message::text(self.protocol.join(self.member, *seen))).await?;
        let mut joined = false;
        let mut next = None;
        loop {
            let interval = *self.interval.borrow();
            let due = match (interval, next) {
                (Some(interval), None) if self.member.is_sender() && joined => {
                    *next.insert(Instant::now() + interval.mul_f64(self.member.room as f64 * 0.618 % 1.0))
                }
                (Some(_), Some(due)) => due,
                _ => {
                    next = None;
                    Instant::now() + TIMEOUT
                }
            };
            tokio::select! {
                frame = socket.next() => {
                    let text = frame.context("closed")??;
                    if let Message::Text(text) = &text {
                        joined |= self.handle(&mut socket, text, seen).await?;
                    }
                }
                () = tokio::time::sleep_until(due.into()), if next.is_some() => {
                    let (number, content) = self.stats.next(self.member.room);
                    socket.send(Message::text(self.protocol.send(self.member, number, &content))).await?;
                    next = next.zip(interval).map(|(due, interval)| due + interval);
                }
                () = self.disconnect.notified() => break,
                changed = self.interval.changed(), if self.member.is_sender() => changed?,
            }
        }
        self.stats.lock().joined -= usize::from(joined);
        Ok(())
    }

    /// Handles a frame; returns whether it confirmed the subscription.
    async fn handle(
        &self,
        socket: &mut WebSocketStream<TcpStream>,
        frame: &str,
        seen: &mut u64,
    ) -> Result<bool> {
        let mut joined = false;
        for event in self.protocol.read(frame) {
            let text = match event {
                Event::Text(text) => text,
                Event::Joined(text) => {
                    joined = true;
                    self.stats.lock().joined += 1;
                    *seen = (*seen).max(self.protocol.start_offset(text));
                    text
                }
                Event::Acknowledged(number) => {
                    self.stats.lock().acknowledge(self.member.room, number);
                    continue;
                }
                Event::Ping(pong) => {
                    socket.send(Message::text(pong)).await?;
                    continue;
                }
                Event::Rejected => bail!("rejected: {frame}"),
            };
            if let Some(offset) = self.stats.record(self.member, text, |rest| self.protocol.offset(rest)) {
                *seen = offset;
            }
        }
        Ok(joined)
    }
}

pub(crate) async fn connect(server: SocketAddr, path: &str) -> Result<WebSocketStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    let stream = socket.connect(server).await?;
    stream.set_nodelay(true)?;
    // Small, because the generator holds a buffer for each of many connections.
    let config = WebSocketConfig::default().read_buffer_size(4096);
    let url = format!("ws://{server}{path}");
    Ok(tokio_tungstenite::client_async_with_config(url, stream, Some(config)).await?.0)
}

async fn wait_until(mut done: impl FnMut() -> bool) -> Result<()> {
    let started = Instant::now();
    while !done() {
        if started.elapsed() > TIMEOUT {
            bail!("timeout");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}
