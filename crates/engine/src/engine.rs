//! The engine: one keyspace behind one lock, and the doors that lead to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::command::{Args, Flags, lookup, resolve};
use crate::config::Config;
use crate::core::Core;
use crate::door::{Connection, Subscriber};
use crate::reply::{Failure, Outcome, Reply};
use crate::script::{Scripts, Watchdog};
use crate::session::{Origin, Session};
use crate::turn::Turn;

/// A store in this process. Clones are handles to the same store.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Outside the lock, since they are asked for while a script holds it.
    core: Arc<Mutex<Core>>,
    watchdog: Arc<Watchdog>,
    busy_after: Duration,
}

/// What the lock guards. `core` has a lock of its own only so that a script's callbacks, which Lua owns,
/// can reach it; whoever holds the state's lock finds it free.
pub(crate) struct State {
    pub(crate) core: Arc<Mutex<Core>>,
    pub(crate) scripts: Scripts,
    pub(crate) watchdog: Arc<Watchdog>,
}

impl Engine {
    pub fn new(config: Config) -> Engine {
        let busy_after = config.busy_after;
        let watchdog = Arc::new(Watchdog::new(config.max_script_instructions));
        let (memory, most) = (config.script_memory_bytes, config.max_scripts);
        let core = Arc::new(Mutex::new(Core::new(config)));
        let scripts = Scripts::new(Arc::clone(&core), Arc::clone(&watchdog), memory, most);
        let state = State { core: Arc::clone(&core), scripts, watchdog: Arc::clone(&watchdog) };
        Engine { shared: Arc::new(Shared { state: Mutex::new(state), core, watchdog, busy_after }) }
    }

    /// A handle for redis-rs. Clones may be used at the same time.
    pub fn connection(&self) -> Connection {
        Connection::new(self.clone())
    }

    /// A pub/sub connection within this process.
    pub fn subscriber(&self) -> Subscriber {
        Subscriber::new(self.clone())
    }

    /// Answers one command as a client of its own would be answered.
    pub fn execute(&self, words: &[&[u8]]) -> Reply {
        self.take(&mut self.handle_session(), words)
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
        let Some(_state) = self.shared.state.try_lock() else {
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

    /// Takes a command's turn: waits for the lock, or answers BUSY when a script holds it for too long.
    pub(crate) fn take(&self, session: &mut Session, args: Args<'_>) -> Reply {
        match self.lock() {
            Some(mut state) => Turn::new(&mut state, session).take(args),
            None => self.answer_while_busy(session, args).unwrap_or_else(Reply::from),
        }
    }

    /// Runs commands under one hold of the lock, as a transaction.
    pub(crate) fn transact<T>(
        &self,
        session: &mut Session,
        run: impl FnOnce(&mut Turn<'_>) -> T,
    ) -> Outcome<T> {
        let mut state = self.lock().ok_or(BUSY)?;
        Ok(run(&mut Turn::new(&mut state, session)))
    }

    /// Waits for the lock; `None` when a script has held it for too long.
    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        loop {
            let patience = self.shared.watchdog.patience(self.shared.busy_after);
            if let Some(state) = self.shared.state.try_lock_for(patience) {
                return Some(state);
            }
            if self.shared.watchdog.patience(self.shared.busy_after).is_zero() {
                return None;
            }
        }
    }

    /// What may be said while a script holds the lock: SCRIPT KILL, and BUSY to all others.
    fn answer_while_busy(&self, session: &Session, args: Args<'_>) -> Outcome {
        let kills = lookup(args[0]).is_some() && resolve(args)?.flags.has(Flags::ALLOW_BUSY);
        if kills && session.authenticated { self.shared.watchdog.kill() } else { Err(BUSY) }
    }
}

const BUSY: Failure =
    Failure::new("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");

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
