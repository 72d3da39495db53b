//! The engine: one keyspace behind one lock, and its interfaces.

mod busy_after;
mod core;
mod lock;
mod script_thread;
mod stats;

pub(crate) use self::core::Core;
pub(crate) use stats::CommandStats;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hob_commands::Command;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::blocked::Pending;
use crate::command::Args;
use crate::config::Config;
use crate::dispatch::CommandContext;
use crate::engine::busy_after::BusyAfter;
use crate::engine::lock::{StoreLock, StoreLockGuard};
use crate::engine::script_thread::ScriptThread;
use crate::interface::{Connection, Subscriber};
use crate::reply::{CommandResult, Reply};
use crate::script::{Scripts, Watchdog};
use crate::session::{Session, SessionOrigin};

/// A store in this process. Clones are handles to the same store.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    /// Held by a command, a transaction or a script from its beginning to its end.
    lock: StoreLock,
    /// The data. A script takes this lock for each command that it calls, because Lua owns the functions that need it.
    /// So it is held for one command at most, and code that only reads (memory, subscriptions, the list of clients)
    /// takes it alone, between the commands of a script.
    core: Arc<Mutex<Core>>,
    watchdog: Arc<Watchdog>,
    /// Started by the first script of a client.
    script_thread: OnceLock<ScriptThread>,
    busy_after: BusyAfter,
}

impl Engine {
    pub fn new(config: Config) -> Engine {
        let watchdog = Arc::new(Watchdog::new(config.max_script_instructions, config.max_script_duration));
        let (memory, max_scripts) = (config.script_memory_bytes, config.max_scripts);
        let core = Core::new(config);
        let busy_after = core.busy_after.clone();
        let core = Arc::new(Mutex::new(core));
        let lock =
            StoreLock::new(Scripts::new(Arc::clone(&core), Arc::clone(&watchdog), memory, max_scripts));
        let script_thread = OnceLock::new();
        Engine { shared: Arc::new(Shared { lock, core, watchdog, script_thread, busy_after }) }
    }

    /// A handle for redis-rs. Clones may be used concurrently.
    pub fn connection(&self) -> Connection {
        Connection::new(self.clone())
    }

    /// A pub/sub connection within this process.
    pub fn subscriber(&self) -> Subscriber {
        Subscriber::new(self.clone())
    }

    /// Runs one command. Blocks the thread while another command or script runs, so tasks use a
    /// [`connection`](Engine::connection) instead. A command that would wait for a key (`BLPOP`) replies at once, as in a
    /// transaction.
    pub fn execute(&self, words: &[&[u8]]) -> Reply {
        let mut session = self.handle_session();
        let reply = self.run_blocking(&mut session, words);
        self.pending(&mut session).map_or(reply, Pending::reply_without_wait)
    }

    /// Removes expired keys ten times a second, for as long as the future is polled. Without it, expired keys are never
    /// returned, but keep their memory until they are accessed.
    pub async fn keep_swept(&self) {
        /// Few enough that the lock is held briefly.
        const PAGE: usize = 5_000;
        const PAGES: usize = 40;
        /// Checked even if no key has expired: 200,000 keys a second.
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

    /// Removes the expired ones among the next `max_keys` keys; returns how many.
    pub fn sweep(&self, max_keys: usize) -> usize {
        let Some(_guard) = self.shared.lock.try_lock() else {
            return 0;
        };
        let mut core = self.shared.core.lock();
        core.begin();
        let removed = core.keys.sweep(max_keys);
        core.publish_events();
        removed
    }

    /// Replaces the password of the listener. If it differs, all clients are disconnected, and none of them can run another
    /// command with the old password.
    pub fn set_password(&self, password: Option<String>) {
        self.with_core(|core| core.set_password(password));
    }

    /// Memory used by keys and values and by messages that subscribers have not read yet, in bytes.
    pub fn memory(&self) -> usize {
        self.with_core(|core| core.memory())
    }

    /// Number of keys, including expired ones that were not removed yet.
    pub fn len(&self) -> usize {
        self.with_core(|core| core.keys.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn handle_session(&self) -> Session {
        Session::new(0, SessionOrigin::Handle, true, None)
    }

    pub(crate) fn with_core<R>(&self, access: impl FnOnce(&mut Core) -> R) -> R {
        access(&mut self.shared.core.lock())
    }

    /// The session's command that waits for its reply, if there is one.
    pub(crate) fn pending(&self, session: &mut Session) -> Option<Pending> {
        session.blocked.take().and_then(|ticket| Pending::new(&self.shared.core, ticket))
    }

    /// Runs one command if the lock is free or becomes free within a moment.
    pub(crate) fn try_run(&self, session: &mut Session, args: Args<'_>) -> Option<Reply> {
        let mut guard = self.lock_briefly()?;
        Some(self.context(Some(&mut *guard), session).execute(args))
    }

    /// The store's lock for several commands, if it is free or becomes free within a moment.
    pub(crate) fn try_lock(&self) -> Option<LockedEngine<'_>> {
        self.lock_briefly().map(|guard| LockedEngine { engine: self, guard })
    }

    /// Runs one command, or returns BUSY when a script holds the lock for too long or until the deadline.
    pub(crate) async fn run(
        &self,
        session: &mut Session,
        args: Args<'_>,
        deadline: Option<Instant>,
    ) -> Reply {
        let mut guard = self.lock(deadline).await;
        self.context(guard.as_deref_mut(), session).execute(args)
    }

    /// Like `run`, for a thread that may be blocked.
    pub(crate) fn run_blocking(&self, session: &mut Session, args: Args<'_>) -> Reply {
        self.shared.lock.yield_to_tasks();
        let mut guard = loop {
            let time_until_busy = self.time_until_busy();
            let guard = self.shared.lock.lock_within(time_until_busy);
            if guard.is_some() || self.time_until_busy().is_zero() {
                break guard;
            }
        };
        self.context(guard.as_deref_mut(), session).execute(args)
    }

    /// Runs the commands of a pipeline as a transaction.
    pub(crate) async fn run_transaction(
        &self,
        session: &mut Session,
        queue: &[Vec<&[u8]>],
        deadline: Option<Instant>,
    ) -> Reply {
        let mut guard = self.lock(deadline).await;
        self.context(guard.as_deref_mut(), session).transact(queue)
    }

    /// Runs a command while a script keeps the store busy; most commands are refused.
    pub(crate) fn refuse_as_busy(&self, session: &mut Session, args: Args<'_>) -> Reply {
        self.context(None, session).execute(args)
    }

    /// Runs the scripts of a client on their thread.
    pub(crate) async fn on_script_thread<T: Send + 'static>(
        &self,
        client: T,
        run: fn(&mut T),
    ) -> ScriptRun<T> {
        let mut submitted = self.shared.script_thread.get_or_init(ScriptThread::start).submit(client, run);
        loop {
            // A short timeout, because other scripts end and start meanwhile.
            let time_until_busy = self.time_until_busy().min(Duration::from_millis(50));
            match timeout(time_until_busy, &mut submitted.done).await {
                Ok(Ok(client)) => return ScriptRun::Done(client),
                Ok(Err(_)) => return ScriptRun::Panicked,
                Err(_) if !self.time_until_busy().is_zero() => {}
                Err(_) => match submitted.withdraw() {
                    Some(client) => return ScriptRun::Busy(client),
                    // This client's own script keeps the store busy.
                    None => return (&mut submitted.done).await.map_or(ScriptRun::Panicked, ScriptRun::Done),
                },
            }
        }
    }

    /// Stops the scripts of clients within a bounded time, even one that has written, but not one that never returns
    /// from a single call of Lua's library.
    pub(crate) async fn stop_client_scripts(&self) {
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            if self.shared.script_thread.get().is_none_or(ScriptThread::is_idle) {
                return;
            }
            self.shared.watchdog.stop_client_script();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tracing::warn!("script of a Redis client is still running at shutdown");
    }

    fn context<'a>(
        &'a self,
        scripts: Option<&'a mut Scripts>,
        session: &'a mut Session,
    ) -> CommandContext<'a> {
        CommandContext { core: &self.shared.core, watchdog: &self.shared.watchdog, scripts, session }
    }

    fn lock_briefly(&self) -> Option<StoreLockGuard<'_>> {
        self.shared.lock.lock_briefly(|| self.shared.watchdog.runs_client_script())
    }

    async fn lock(&self, deadline: Option<Instant>) -> Option<StoreLockGuard<'_>> {
        if let Some(guard) = self.lock_briefly() {
            return Some(guard);
        }
        let time_until_busy = || {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.time_until_busy().min(left.unwrap_or(Duration::MAX))
        };
        self.shared.lock.lock(time_until_busy).await
    }

    /// How long a command waits before it gets a BUSY error.
    fn time_until_busy(&self) -> Duration {
        self.shared.watchdog.time_until_busy(self.shared.busy_after.get())
    }
}

/// What became of a client whose next request is a script.
pub(crate) enum ScriptRun<T> {
    Done(T),
    /// Nothing was run, because another script has kept the store busy for too long.
    Busy(T),
    /// The client is lost.
    Panicked,
}

/// Holds the store's lock for some commands of a pipeline, which is cheaper than locking it for each of them.
pub(crate) struct LockedEngine<'a> {
    engine: &'a Engine,
    guard: StoreLockGuard<'a>,
}

impl LockedEngine<'_> {
    pub(crate) fn execute(
        &mut self,
        session: &mut Session,
        resolved: CommandResult<&'static Command>,
        args: Args<'_>,
    ) -> Reply {
        self.engine.context(Some(&mut *self.guard), session).execute_resolved(resolved, args)
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
