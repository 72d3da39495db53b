//! The bus: plain publish and subscribe, the same on every store.
//!
//! Messages are hints: nobody keeps them. A subscriber that may have missed some, because its
//! connection was cut or because it was too slow, is told so, and reads the truth again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hob_engine::{Engine, Event, Subscriber};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::cluster::Cluster;
use crate::dial::Dialer;
use crate::error::{Error, Result};
use crate::link::Target;
use crate::mailbox::Mailbox;
use crate::store::Store;
use crate::switchboard::{Order, Source, Switchboard};

/// How many events wait for a subscriber before it is told that it missed some.
const QUEUE: usize = 1024;

/// Something that a subscriber hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusEvent {
    /// A message on a channel.
    Message {
        /// The channel that it was published on.
        channel: Bytes,
        /// The pattern that matched, if it was subscribed by one.
        pattern: Option<Bytes>,
        /// What was published.
        payload: Bytes,
    },
    /// Messages may have been lost here: read again what they would have told.
    Missed,
}

/// What to listen to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// One channel.
    Channel(Bytes),
    /// All channels whose names match a glob pattern.
    Pattern(Bytes),
}

impl Topic {
    /// One channel.
    pub fn channel(name: impl AsRef<[u8]>) -> Self {
        Self::Channel(Bytes::copy_from_slice(name.as_ref()))
    }

    /// All channels that match a glob pattern.
    pub fn pattern(pattern: impl AsRef<[u8]>) -> Self {
        Self::Pattern(Bytes::copy_from_slice(pattern.as_ref()))
    }
}

/// Publishes and subscribes, within the deadline of the handle that it came from.
#[derive(Clone, Debug)]
pub struct Bus(Store);

impl Bus {
    pub(crate) fn of(store: &Store) -> Self {
        Self(store.clone())
    }

    /// Publishes a message; returns how many heard it, on a Cluster how many on the node that took it.
    pub async fn publish(&self, channel: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<u64> {
        self.0.publish(channel.as_ref(), payload.as_ref()).await
    }

    /// Listens to topics. Once this returns, every message published later is heard or reported missed.
    pub async fn subscribe(&self, topics: &[Topic]) -> Result<Subscription> {
        self.0.lines().subscribe(topics, self.0.until()).await.map(Subscription)
    }
}

/// Makes subscriptions. All of one handle and its clones share one connection, opened with the first.
#[derive(Clone)]
pub(crate) enum Lines {
    Embedded(Engine),
    Remote(Arc<Remote>),
}

pub(crate) struct Remote {
    source: Source,
    line: OnceLock<Line>,
    ids: AtomicU64,
}

/// The running switchboard.
struct Line {
    orders: mpsc::UnboundedSender<Order>,
    trouble: watch::Receiver<String>,
    task: AbortHandle,
}

impl Lines {
    pub(crate) fn on_engine(engine: Engine) -> Self {
        Self::Embedded(engine)
    }

    pub(crate) fn on_server(target: Target, dialer: Dialer) -> Self {
        Self::over(Source::server(target, dialer))
    }

    pub(crate) fn on_cluster(cluster: &Arc<Cluster>, dialer: Dialer) -> Self {
        Self::over(Source::cluster(cluster.clone(), dialer))
    }

    fn over(source: Source) -> Self {
        let remote = Remote { source, line: OnceLock::new(), ids: AtomicU64::new(0) };
        Self::Remote(Arc::new(remote))
    }

    async fn subscribe(&self, topics: &[Topic], deadline: Instant) -> Result<Ear> {
        match self {
            Self::Embedded(engine) => Ok(listen_to(engine, topics)),
            Self::Remote(remote) => remote.subscribe(topics, deadline).await,
        }
    }
}

fn listen_to(engine: &Engine, topics: &[Topic]) -> Ear {
    let mut subscriber = engine.subscriber();
    for topic in topics {
        match topic {
            Topic::Channel(name) => subscriber.subscribe(name),
            Topic::Pattern(pattern) => subscriber.psubscribe(pattern),
        }
    }
    Ear::Embedded(Box::new(subscriber))
}

impl Remote {
    async fn subscribe(&self, topics: &[Topic], deadline: Instant) -> Result<Ear> {
        let line = self.line.get_or_init(|| Line::open(self.source.clone()));
        let asked = Instant::now();
        let mailbox = Arc::new(Mailbox::new(QUEUE));
        let id = self.ids.fetch_add(1, Relaxed);
        let (ready, listening) = oneshot::channel();
        let order = Order::Subscribe { id, topics: topics.to_vec(), mailbox: mailbox.clone(), ready };
        // Dropped when the deadline passes first, and then takes its order back.
        let wire = Wire { id, mailbox, orders: line.orders.clone() };
        let _ = line.orders.send(order);
        match timeout_at(deadline, listening).await {
            Ok(Ok(())) => Ok(Ear::Remote(wire)),
            _ => Err(Error::Unavailable { waited: asked.elapsed(), reason: line.trouble.borrow().clone() }),
        }
    }
}

impl Line {
    fn open(source: Source) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (telling, trouble) = watch::channel("not connected yet".to_owned());
        let task = tokio::spawn(Switchboard::new(source, inbox, telling).run()).abort_handle();
        Self { orders, trouble, task }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Hears the messages of its topics; dropping it unsubscribes.
#[derive(Debug)]
pub struct Subscription(Ear);

#[derive(Debug)]
enum Ear {
    Embedded(Box<Subscriber>),
    Remote(Wire),
}

/// One subscriber's end of the switchboard.
#[derive(Debug)]
struct Wire {
    id: u64,
    mailbox: Arc<Mailbox>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Subscription {
    /// The next event; `None` once the store's handle is gone.
    pub async fn next(&mut self) -> Option<BusEvent> {
        match &mut self.0 {
            Ear::Embedded(subscriber) => subscriber.next().await.map(BusEvent::from),
            Ear::Remote(wire) => wire.mailbox.take().await,
        }
    }
}

impl From<Event> for BusEvent {
    fn from(event: Event) -> Self {
        match event {
            Event::Message { channel, pattern, payload } => Self::Message { channel, pattern, payload },
            Event::Missed(_) => Self::Missed,
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Unsubscribe { id: self.id });
    }
}
