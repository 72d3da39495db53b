//! The engine: one keyspace behind one lock, and the doors that lead to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::command::Args;
use crate::config::Config;
use crate::core::Core;
use crate::door::{Connection, Subscriber};
use crate::gate::{Gate, Held};
use crate::reply::Reply;
use crate::script::{Scripts, Watchdog};
use crate::session::{Origin, Session};
use crate::turn::Turn;

/// A store in this process. Clones are handles to the same store.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    /// The store's turn: a command, a transaction or a script holds it from its beginning to its end.
    gate: Gate,
    /// The data. A script takes this lock for each command that it calls, since Lua owns the functions that need it.
    /// So it is held for one command at most, and what only looks (memory, subscriptions, the list of clients) takes
    /// it alone and gets in between the commands of a script.
    core: Arc<Mutex<Core>>,
    watchdog: Arc<Watchdog>,
    /// Threads for scripts of clients. Several, so that the next one is ready when the one before it ends.
    seats: Arc<Semaphore>,
    busy_after: Duration,
}

const SEATS: usize = 16;

impl Engine {
    pub fn new(config: Config) -> Engine {
        let busy_after = config.busy_after;
        let watchdog = Arc::new(Watchdog::new(config.max_script_instructions, config.max_script_duration));
        let (memory, most) = (config.script_memory_bytes, config.max_scripts);
        let core = Arc::new(Mutex::new(Core::new(config)));
        let gate = Gate::new(Scripts::new(Arc::clone(&core), Arc::clone(&watchdog), memory, most));
        let seats = Arc::new(Semaphore::new(SEATS));
        Engine { shared: Arc::new(Shared { gate, core, watchdog, seats, busy_after }) }
    }

    /// A handle for redis-rs. Clones may be used at the same time.
    pub fn connection(&self) -> Connection {
        Connection::new(self.clone())
    }

    /// A pub/sub connection within this process.
    pub fn subscriber(&self) -> Subscriber {
        Subscriber::new(self.clone())
    }

    /// Answers one command. It blocks the thread while another command or script runs, so tasks use a
    /// [`connection`](Engine::connection) instead.
    pub fn execute(&self, words: &[&[u8]]) -> Reply {
        self.take_blocking(&mut self.handle_session(), words)
    }

    /// Removes keys whose time is over, ten times a second, for as long as the future is polled. Without it
    /// such keys are never answered with, but hold their memory until somebody asks for them.
    pub async fn keep_swept(&self) {
        /// Few enough that nobody waits long for the lock.
        const PAGE: usize = 5_000;
        const PAGES: usize = 40;
        /// Looked at even if nothing is found: two hundred thousand keys a second.
        const ALWAYS: usize = 4;
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            for page in 1..=PAGES {
                if self.sweep(PAGE) == 0 && page >= ALWAYS {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// Removes keys whose time is over, among the next `most` that it looks at; says how many.
    pub fn sweep(&self, most: usize) -> usize {
        let Some(_held) = self.shared.gate.try_enter() else {
            return 0;
        };
        let mut core = self.shared.core.lock();
        core.begin();
        core.keys.sweep(most)
    }

    /// Bytes held by keys and values.
    pub fn memory(&self) -> usize {
        self.with_core(|core| core.keys.memory())
    }

    /// Keys held, those counted whose time is over but that were not swept yet.
    pub fn len(&self) -> usize {
        self.with_core(|core| core.keys.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn handle_session(&self) -> Session {
        Session::new(0, Origin::Handle, true, None)
    }

    pub(crate) fn with_core<R>(&self, look: impl FnOnce(&mut Core) -> R) -> R {
        look(&mut self.shared.core.lock())
    }

    /// Runs one command if the store is free, or will be in no time.
    pub(crate) fn take_at_once(&self, session: &mut Session, args: Args<'_>) -> Option<Reply> {
        let mut held = self.enter_briefly()?;
        Some(self.turn(Some(&mut *held), session).take(args))
    }

    /// Runs one command, or answers BUSY when a script holds the store for too long or until the deadline.
    pub(crate) async fn take(
        &self,
        session: &mut Session,
        args: Args<'_>,
        deadline: Option<Instant>,
    ) -> Reply {
        let mut held = self.enter(deadline).await;
        self.turn(held.as_deref_mut(), session).take(args)
    }

    /// The same for a thread that may be blocked.
    pub(crate) fn take_blocking(&self, session: &mut Session, args: Args<'_>) -> Reply {
        let mut held = loop {
            let patience = self.patience();
            let held = self.shared.gate.enter_within(patience);
            if held.is_some() || self.patience().is_zero() {
                break held;
            }
        };
        self.turn(held.as_deref_mut(), session).take(args)
    }

    /// Runs the commands of a pipeline as a transaction.
    pub(crate) async fn transact(
        &self,
        session: &mut Session,
        queue: &[Vec<&[u8]>],
        deadline: Option<Instant>,
    ) -> Reply {
        let mut held = self.enter(deadline).await;
        self.turn(held.as_deref_mut(), session).transact(queue)
    }

    /// Answers a command while a script holds the store for too long.
    pub(crate) fn refuse_as_busy(&self, session: &mut Session, args: Args<'_>) -> Reply {
        self.turn(None, session).take(args)
    }

    /// A thread for a script; `None` when another script holds the store for too long.
    pub(crate) async fn seat(&self) -> Option<OwnedSemaphorePermit> {
        let seat = Arc::clone(&self.shared.seats).acquire_owned();
        tokio::pin!(seat);
        loop {
            // Never too long a sleep: other scripts end and begin meanwhile.
            let patience = self.patience().min(Duration::from_millis(50));
            match timeout(patience, &mut seat).await {
                Ok(seat) => return seat.ok(),
                Err(_) if self.patience().is_zero() => return None,
                Err(_) => {}
            }
        }
    }

    /// Stops what clients' scripts still run, within a bounded time: even one that has written, but not one that
    /// never returns from a single call of Lua's library.
    pub(crate) async fn stop_scripts_of_clients(&self) {
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            if self.shared.seats.available_permits() == SEATS {
                return;
            }
            self.shared.watchdog.stop_script_of_client();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tracing::warn!("a client's script does not stop");
    }

    fn turn<'a>(&'a self, scripts: Option<&'a mut Scripts>, session: &'a mut Session) -> Turn<'a> {
        Turn { core: &self.shared.core, watchdog: &self.shared.watchdog, scripts, session }
    }

    fn enter_briefly(&self) -> Option<Held<'_>> {
        self.shared.gate.enter_briefly(|| self.shared.watchdog.runs_script_of_client())
    }

    async fn enter(&self, deadline: Option<Instant>) -> Option<Held<'_>> {
        if let Some(held) = self.enter_briefly() {
            return Some(held);
        }
        let patience = || {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.patience().min(left.unwrap_or(Duration::MAX))
        };
        self.shared.gate.enter(patience).await
    }

    /// How long to wait before a command is answered with BUSY.
    fn patience(&self) -> Duration {
        self.shared.watchdog.patience(self.shared.busy_after)
    }
}

impl Default for Engine {
    fn default() -> Engine {
        Engine::new(Config::default())
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}
