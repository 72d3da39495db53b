//! Wake-ups between the tasks of all nodes, so that they do not have to poll the database.
//!
//! A transaction that changes what a task waits for sends a [`Signal`]. After its commit, the waiting tasks of this process
//! are woken at once, and those of other nodes with NOTIFY. It is sent after the commit, once for many transactions,
//! because PostgreSQL commits transactions that contain a NOTIFY one after the other.
//!
//! A signal can be lost: its node dies after the commit, or the listening connection is lost without notice. So a task also
//! looks after [`Options::safety_poll`](crate::Options::safety_poll). When a connection listens again, all tasks of its
//! process are woken. SQLite has no notifications between processes, so tasks poll the file more often.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_units::Backoff;
use sqlx::PgPool;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// The name of something that tasks wait for, such as `outbox`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(pub &'static str);

/// Waits for a signal. It remembers a signal that arrives while the task is not waiting.
#[derive(Debug)]
pub struct Wakeups {
    receiver: watch::Receiver<()>,
    /// The longest wait on PostgreSQL; `None` on SQLite.
    safety_poll: Option<Duration>,
}

/// The channel of PostgreSQL that carries all signals.
const CHANNEL: &str = "hob";
/// The shortest time between two notifications of one process.
const SEND_PAUSE: Duration = Duration::from_millis(50);
const SEND_LIMIT: Duration = Duration::from_secs(3);
const RECONNECT: Backoff =
    Backoff::linear(Duration::from_millis(50), Duration::from_secs(2)).with_jitter(0.5..1.0);

impl Wakeups {
    /// Waits for the signal, or until it is time to look without one: after `poll` on SQLite, after
    /// [`Options::safety_poll`](crate::Options::safety_poll) on PostgreSQL.
    pub async fn wait(&mut self, poll: Duration) {
        self.wait_at_most(self.poll(poll)).await;
    }

    /// How long [`wait`](Self::wait) waits without a signal.
    pub fn poll(&self, poll: Duration) -> Duration {
        self.safety_poll.unwrap_or(poll)
    }

    /// Whether there was a signal since the last wait.
    pub fn has_signal(&self) -> bool {
        self.receiver.has_changed().unwrap_or(true)
    }

    /// Forgets the signals so far.
    pub fn reset(&mut self) {
        self.receiver.mark_unchanged();
    }

    /// Waits for the signal, or for this long.
    pub async fn wait_at_most(&mut self, limit: Duration) {
        // An error means that the database handle was dropped.
        if let Ok(Err(_)) = timeout(limit, self.receiver.changed()).await {
            sleep(limit).await;
        }
    }
}

/// The signals of one database handle.
pub(crate) struct Signals {
    /// Part of the payload of notifications, so that the handle ignores its own.
    sender: u64,
    waiting: Mutex<HashMap<String, watch::Sender<()>>>,
    outgoing: Mutex<BTreeSet<Signal>>,
    added: Notify,
}

impl Signals {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            sender: rand::random(),
            waiting: Mutex::default(),
            outgoing: Mutex::default(),
            added: Notify::new(),
        })
    }

    pub(crate) fn wakeups(&self, name: &str, safety_poll: Option<Duration>) -> Wakeups {
        let mut waiting = lock(&self.waiting);
        let receiver = waiting.entry(name.to_owned()).or_default().subscribe();
        Wakeups { receiver, safety_poll }
    }

    /// Wakes the tasks of this process.
    pub(crate) fn wake(&self, name: &str) {
        if let Some(waiting) = lock(&self.waiting).get(name) {
            waiting.send_replace(());
        }
    }

    fn wake_all(&self) {
        lock(&self.waiting).values().for_each(|waiting| waiting.send_replace(()));
    }

    /// Adds signals for other nodes, which the task of [`Exchange`] sends.
    pub(crate) fn enqueue(&self, signals: &BTreeSet<Signal>) {
        lock(&self.outgoing).extend(signals);
        self.added.notify_one();
    }

    /// Sends signals to other nodes. A failure is not reported, because the other nodes also poll.
    pub(crate) async fn send(&self, pool: &PgPool, signals: &BTreeSet<Signal>) {
        for signal in signals {
            let payload = format!("{} {}", self.sender, signal.0);
            let notify = sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(payload);
            let sent = timeout(SEND_LIMIT, notify.execute(pool)).await;
            if !matches!(sent, Ok(Ok(_))) {
                tracing::debug!(signal = signal.0, "failed to notify other nodes, they will poll");
                return;
            }
        }
    }

    pub(crate) async fn send_enqueued(&self, pool: &PgPool) {
        let enqueued = std::mem::take(&mut *lock(&self.outgoing));
        self.send(pool, &enqueued).await;
    }

    fn receive(&self, payload: &str) {
        let Some((sender, name)) = payload.split_once(' ') else { return };
        if sender.parse() != Ok(self.sender) {
            self.wake(name);
        }
    }
}

/// The tasks that exchange signals with other nodes. They end when this is dropped.
pub(crate) struct Exchange([AbortHandle; 2]);

impl Exchange {
    /// Must be called inside a tokio runtime.
    pub(crate) fn start(pool: &PgPool, signals: &Arc<Signals>) -> Self {
        let listener = tokio::spawn(listen(listener_pool(pool), Arc::clone(signals)));
        let sender = tokio::spawn(send_added(pool.clone(), Arc::clone(signals)));
        Self([listener.abort_handle(), sender.abort_handle()])
    }

    pub(crate) fn stop(&self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn send_added(pool: PgPool, signals: Arc<Signals>) {
    loop {
        signals.added.notified().await;
        signals.send_enqueued(&pool).await;
        sleep(SEND_PAUSE).await;
    }
}

/// A listening connection is never idle and never returned, so it is not taken from the pool of the database.
fn listener_pool(pool: &PgPool) -> PgPool {
    let options = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
    let options = options.acquire_timeout(pool.options().get_acquire_timeout());
    options.connect_lazy_with((*pool.connect_options()).clone())
}

/// Listens for ever.
async fn listen(pool: PgPool, signals: Arc<Signals>) {
    let mut pause = RECONNECT.clone();
    loop {
        let listening = async {
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.listen(CHANNEL).await?;
            Ok::<_, sqlx::Error>(listener)
        };
        if let Ok(mut listener) = listening.await {
            pause.reset();
            // Signals that were sent before are lost.
            signals.wake_all();
            loop {
                match listener.try_recv().await {
                    Ok(Some(notification)) => signals.receive(notification.payload()),
                    // It has connected again.
                    Ok(None) => signals.wake_all(),
                    Err(_) => break,
                }
            }
        }
        sleep(pause.next()).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").field("sender", &self.sender).finish_non_exhaustive()
    }
}
