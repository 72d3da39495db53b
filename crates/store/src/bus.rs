//! Publish and subscribe, the same on every store.
//!
//! Messages are only notifications and are not stored. A subscriber that may have missed some, because its connection
//! was lost or because it was too slow, receives [`BusEvent::Missed`] and reads the state again.

mod queue;
mod worker;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::bus::queue::EventQueue;
use crate::bus::worker::{PubSubWorker, Request, Source};
use crate::connection::cluster::Cluster;
use crate::connection::dial::Dialer;
use crate::connection::embedded::{Embedded, EmbeddedReceiver};
use crate::connection::server::Target;
use crate::error::{Error, Result};
use crate::store::Store;

/// Maximum number of events in the queue of a subscriber. If more arrive, the subscriber receives `Missed`.
const QUEUE: usize = 1024;
/// The pause before a listener tries to subscribe again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// An event that a subscription receives.
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
    /// Messages may have been lost: read the state again.
    Missed,
}

/// The channels to subscribe to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChannelFilter {
    /// One channel.
    Channel(Bytes),
    /// All channels whose names match a glob pattern.
    Pattern(Bytes),
}

impl ChannelFilter {
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

    /// Publishes a message. Returns the number of receivers; on a Cluster, it counts only receivers on the same node.
    pub async fn publish(&self, channel: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<u64> {
        self.0.publish(channel.as_ref(), payload.as_ref()).await
    }

    /// Subscribes to channels. Every message published after this returns is received or reported as missed.
    pub async fn subscribe(&self, channels: &[ChannelFilter]) -> Result<Subscription> {
        self.0.pubsub().subscribe(channels, self.0.until()).await.map(Subscription)
    }

    /// Subscribes to channels until the listener is dropped. The listener subscribes again after every interruption.
    #[must_use]
    pub fn listen(&self, channels: Vec<ChannelFilter>) -> Listener {
        Listener { bus: self.clone(), channels, subscription: None }
    }
}

/// A subscription that is created as soon as the store answers, and created again whenever it ends.
#[derive(Debug)]
pub struct Listener {
    bus: Bus,
    channels: Vec<ChannelFilter>,
    subscription: Option<Subscription>,
}

impl Listener {
    /// The next event. The first event, and the first one after each interruption, is [`BusEvent::Missed`].
    pub async fn next(&mut self) -> BusEvent {
        loop {
            if let Some(subscription) = &mut self.subscription {
                match subscription.next().await {
                    Some(event) => return event,
                    None => self.subscription = None,
                }
            }
            match self.bus.subscribe(&self.channels).await {
                Ok(subscription) => {
                    self.subscription = Some(subscription);
                    return BusEvent::Missed;
                }
                Err(error) => {
                    tracing::debug!(%error, "failed to subscribe to a channel, retrying");
                    sleep(RETRY_AFTER).await;
                }
            }
        }
    }
}

/// Creates subscriptions. A handle and its clones share one connection, opened for the first subscription.
#[derive(Clone)]
pub(crate) enum PubSub {
    Embedded(Arc<Embedded>),
    Remote(Arc<Remote>),
}

pub(crate) struct Remote {
    source: Source,
    worker: OnceLock<WorkerHandle>,
    ids: AtomicU64,
}

/// The running worker.
struct WorkerHandle {
    requests: mpsc::UnboundedSender<Request>,
    fault: watch::Receiver<String>,
    task: AbortHandle,
}

impl PubSub {
    pub(crate) fn on_server(target: Target, dialer: Dialer) -> Self {
        Self::over(Source::server(target, dialer))
    }

    pub(crate) fn on_cluster(cluster: &Arc<Cluster>, dialer: Dialer) -> Self {
        Self::over(Source::cluster(cluster.clone(), dialer))
    }

    fn over(source: Source) -> Self {
        let remote = Remote { source, worker: OnceLock::new(), ids: AtomicU64::new(0) };
        Self::Remote(Arc::new(remote))
    }

    async fn subscribe(&self, channels: &[ChannelFilter], deadline: Instant) -> Result<Receiver> {
        match self {
            Self::Embedded(engine) => Ok(Receiver::Embedded(engine.subscribe(channels))),
            Self::Remote(remote) => remote.subscribe(channels, deadline).await,
        }
    }
}

impl Remote {
    async fn subscribe(&self, channels: &[ChannelFilter], deadline: Instant) -> Result<Receiver> {
        let worker = self.worker.get_or_init(|| WorkerHandle::open(self.source.clone()));
        let asked = Instant::now();
        let queue = Arc::new(EventQueue::new(QUEUE));
        let id = self.ids.fetch_add(1, Relaxed);
        let (ready, listening) = oneshot::channel();
        let request = Request::Subscribe { id, channels: channels.to_vec(), queue: queue.clone(), ready };
        // If the deadline passes first, dropping this withdraws the request.
        let listener = RemoteReceiver { id, queue, requests: worker.requests.clone() };
        let _ = worker.requests.send(request);
        match timeout_at(deadline, listening).await {
            Ok(Ok(())) => Ok(Receiver::Remote(listener)),
            _ => Err(Error::Unavailable { waited: asked.elapsed(), reason: worker.fault.borrow().clone() }),
        }
    }
}

impl WorkerHandle {
    fn open(source: Source) -> Self {
        let (requests, inbox) = mpsc::unbounded_channel();
        let (telling, fault) = watch::channel("not connected yet".to_owned());
        let task = tokio::spawn(PubSubWorker::new(source, inbox, telling).run()).abort_handle();
        Self { requests, fault, task }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Receives the messages of its channels. Dropping it unsubscribes.
#[derive(Debug)]
pub struct Subscription(Receiver);

#[derive(Debug)]
enum Receiver {
    Embedded(EmbeddedReceiver),
    Remote(RemoteReceiver),
}

/// One subscriber of the worker.
#[derive(Debug)]
struct RemoteReceiver {
    id: u64,
    queue: Arc<EventQueue>,
    requests: mpsc::UnboundedSender<Request>,
}

impl Subscription {
    /// The next event; `None` once the store is closed.
    pub async fn next(&mut self) -> Option<BusEvent> {
        match &mut self.0 {
            Receiver::Embedded(receiver) => receiver.next().await,
            Receiver::Remote(receiver) => receiver.queue.take().await,
        }
    }
}

impl Drop for RemoteReceiver {
    fn drop(&mut self) {
        let _ = self.requests.send(Request::Unsubscribe { id: self.id });
    }
}
