//! The members of all rooms: connections that listen, and one in each room that talks.

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

use crate::dialect::{Dialect, Heard};
use crate::seat::Seat;
use crate::tally::Tally;

/// How many come in at a time.
const AT_ONCE: usize = 64;
/// How long a disconnected client stays offline.
const AWAY: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(60);

/// How often each room's talker sends; `None`: not at all.
type Pace = Option<Duration>;

/// All clients.
pub(crate) struct Crowd {
    pub(crate) tally: Arc<Tally>,
    pace: watch::Sender<Pace>,
    /// Cuts a member off, by seat.
    cuts: Vec<(Seat, Arc<Notify>)>,
    _members: JoinSet<()>,
}

#[derive(Clone)]
struct Member {
    dialect: Dialect,
    server: SocketAddr,
    seat: Seat,
    tally: Arc<Tally>,
    pace: watch::Receiver<Pace>,
    cut: Arc<Notify>,
}

impl Crowd {
    /// Fills all rooms, and waits until all clients have joined.
    pub(crate) async fn gather(
        dialect: Dialect,
        server: SocketAddr,
        rooms: usize,
        members: usize,
    ) -> Result<Self> {
        let tally = Arc::new(Tally::new(rooms, members));
        let (pace, listen) = watch::channel(None);
        let seats: Vec<Seat> =
            (0..members).flat_map(|number| (0..rooms).map(move |room| Seat { room, number })).collect();
        let (mut cuts, mut tasks) = (Vec::new(), JoinSet::new());
        for (at, seat) in seats.iter().enumerate() {
            wait_until(|| tally.lock().joined + AT_ONCE > at).await.context("they are not let in")?;
            let cut = Arc::new(Notify::new());
            cuts.push((*seat, Arc::clone(&cut)));
            let (tally, pace) = (Arc::clone(&tally), listen.clone());
            let member = Member { dialect, server, seat: *seat, tally, pace, cut };
            tasks.spawn(member.stay());
        }
        wait_until(|| tally.lock().joined == seats.len()).await.context("not all clients could join")?;
        Ok(Self { tally, pace, cuts, _members: tasks })
    }

    pub(crate) fn talk(&self, every: Pace) {
        let _ = self.pace.send(every);
    }

    /// Cuts one listener off, who comes back after a moment.
    pub(crate) fn cut(&self, which: usize) {
        let listeners: Vec<_> = self.cuts.iter().filter(|(seat, _)| !seat.talks()).collect();
        listeners[which % listeners.len()].1.notify_one();
    }

    /// Waits until everything that was acknowledged has come, or nothing more does.
    pub(crate) async fn settle(&self) {
        let (mut before, mut since) = (0, Instant::now());
        while since.elapsed() < Duration::from_secs(3) {
            let (came, due) = self.tally.lock().delivered();
            if came == due {
                return;
            }
            if came > before {
                (before, since) = (came, Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Member {
    /// Stays in the room, and comes back when the connection is gone.
    async fn stay(mut self) {
        let mut seen = 0;
        loop {
            if self.visit(&mut seen).await.is_err() {
                self.tally.lock().refused += 1;
            }
            tokio::time::sleep(AWAY).await;
        }
    }

    async fn visit(&mut self, seen: &mut u64) -> Result<()> {
        let mut socket = connect(self.server, self.dialect.path()).await?;
        socket.send(Message::text(self.dialect.hello(self.seat, *seen))).await?;
        let mut inside = false;
        let mut next = None;
        loop {
            let pace = *self.pace.borrow();
            let due = match (pace, next) {
                (Some(every), None) if self.seat.talks() && inside => {
                    *next.insert(Instant::now() + every.mul_f64(self.seat.room as f64 * 0.618 % 1.0))
                }
                (Some(_), Some(due)) => due,
                _ => {
                    next = None;
                    Instant::now() + PATIENCE
                }
            };
            tokio::select! {
                frame = socket.next() => {
                    let text = frame.context("closed")??;
                    if let Message::Text(text) = &text {
                        inside |= self.hear(&mut socket, text, seen).await?;
                    }
                }
                () = tokio::time::sleep_until(due.into()), if next.is_some() => {
                    let (number, content) = self.tally.next(self.seat.room);
                    socket.send(Message::text(self.dialect.send(self.seat, number, &content))).await?;
                    next = next.zip(pace).map(|(due, every)| due + every);
                }
                () = self.cut.notified() => break,
                changed = self.pace.changed(), if self.seat.talks() => changed?,
            }
        }
        self.tally.lock().joined -= usize::from(inside);
        Ok(())
    }

    /// Whether this was the answer that lets one in.
    async fn hear(
        &self,
        socket: &mut WebSocketStream<TcpStream>,
        frame: &str,
        seen: &mut u64,
    ) -> Result<bool> {
        let mut joined = false;
        for part in self.dialect.read(frame) {
            let text = match part {
                Heard::Text(text) => text,
                Heard::Joined(text) => {
                    joined = true;
                    self.tally.lock().joined += 1;
                    *seen = (*seen).max(self.dialect.entrance(text));
                    text
                }
                Heard::Acknowledged(number) => {
                    self.tally.lock().acknowledge(self.seat.room, number);
                    continue;
                }
                Heard::Ping(pong) => {
                    socket.send(Message::text(pong)).await?;
                    continue;
                }
                Heard::Refused => bail!("refused: {frame}"),
            };
            if let Some(place) = self.tally.see(self.seat, text, |rest| self.dialect.place(rest)) {
                *seen = place;
            }
        }
        Ok(joined)
    }
}

async fn connect(server: SocketAddr, path: &str) -> Result<WebSocketStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    let stream = socket.connect(server).await?;
    stream.set_nodelay(true)?;
    // Small: there are many, and what they cost is paid by the generator.
    let config = WebSocketConfig::default().read_buffer_size(4096);
    let url = format!("ws://{server}{path}");
    Ok(tokio_tungstenite::client_async_with_config(url, stream, Some(config)).await?.0)
}

async fn wait_until(mut done: impl FnMut() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > PATIENCE {
            bail!("it took too long");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}
