//! Watches a Redis: audits it again and again, and checks keys soon after they are written if the server publishes keyspace
//! notifications.

mod ledger;
mod notifications;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hob_schema::Catalog;
use hob_store::{Address, Store};
use hob_units::unix_ms;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::audit::{AuditOptions, audit};
use crate::connect::connect_resolved;
use crate::error::Error;
use crate::history::{History, HistoryEntry};
use crate::written_keys::WrittenKeys;
use ledger::Ledger;
use notifications::{Server, Switch};

/// Keys are read in turns.
const TURN: Duration = Duration::from_millis(100);
/// The pause after an audit that failed, unless audits are more frequent.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// How to watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// The time from the start of an audit to the start of the next.
    pub every: Duration,
    pub audit: AuditOptions,
    /// How long after a write a key is read.
    pub grace: Duration,
    /// Maximum number of written keys to read per second and server.
    pub reads_per_second: u32,
    /// A file to which each audit is appended.
    pub history: Option<PathBuf>,
}

/// Watches one store.
#[derive(Clone, Debug)]
pub struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    address: Address,
    catalog: Catalog,
    options: WatchOptions,
    ledger: Ledger,
}

impl Watch {
    /// Connects to a server, a Sentinel set or a Cluster.
    pub async fn connect(address: &Address, catalog: Catalog, options: WatchOptions) -> Result<Watch, Error> {
        let (store, address) = connect_resolved(address).await?;
        let ledger = Ledger::default();
        Ok(Watch { shared: Arc::new(Shared { store, address, catalog, options, ledger }) })
    }

    /// Watches until the future is dropped.
    pub async fn run(&self) {
        let shared = &self.shared;
        let mut servers = Servers::default();
        loop {
            let started = Instant::now();
            servers.follow(shared).await;
            let pause = match shared.audit().await {
                Ok(()) => shared.options.every,
                Err(error) => {
                    tracing::warn!(%error, "schema audit failed, retrying");
                    shared.ledger.failed();
                    shared.options.every.min(RETRY_AFTER)
                }
            };
            sleep_until(started + pause).await;
        }
    }

    /// The metrics in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        self.shared.ledger.metrics()
    }

    /// The last audit, as text; `None` before the first one.
    pub fn last_report(&self) -> Option<String> {
        self.shared.ledger.last_report()
    }
}

impl Shared {
    async fn audit(&self) -> Result<(), Error> {
        let report = audit(&self.store, &self.catalog, self.options.audit, &mut |_| {}).await?;
        let now_s = unix_ms() / 1_000;
        if let Some(path) = &self.options.history
            && let Err(error) = History::append(path, HistoryEntry::new(&report, now_s))
        {
            tracing::warn!(%error, "failed to write the history of audits");
        }
        self.ledger.audited(report, now_s);
        Ok(())
    }
}

/// The tasks that listen to the notifications of each server. They end with the value.
#[derive(Debug, Default)]
struct Servers {
    tasks: HashMap<String, (Switch, JoinHandle<()>)>,
}

impl Servers {
    /// Listens to the current masters. Whether a server publishes notifications is asked each time, because it may change.
    async fn follow(&mut self, shared: &Arc<Shared>) {
        let masters = match shared.store.masters().await {
            Ok(masters) => masters,
            Err(error) => {
                tracing::warn!(%error, "failed to find the servers to watch, retrying");
                return;
            }
        };
        let mut current = HashMap::new();
        for master in masters {
            let switch = notifications::read_switch(&master).await;
            let name = master.name().to_owned();
            let running =
                self.tasks.remove(&name).filter(|(before, task)| *before == switch && !task.is_finished());
            let running = match running {
                Some(running) => running,
                None => {
                    switch.log(&name);
                    (switch, tokio::spawn(listen(Arc::clone(shared), master, switch)))
                }
            };
            current.insert(name, running);
        }
        shared.ledger.set_listening(current.values().filter(|(switch, _)| switch.notifies()).count());
        let gone = std::mem::replace(&mut self.tasks, current);
        Servers { tasks: gone }.stop();
    }

    fn stop(&self) {
        for (_, task) in self.tasks.values() {
            task.abort();
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Collects the keys that a server says were written, and reads them.
async fn listen(shared: Arc<Shared>, master: Store, switch: Switch) {
    if !switch.may_notify() {
        return;
    }
    let server = match Server::open(&shared.address, &master) {
        Ok(server) => server,
        Err(error) => {
            tracing::warn!(%error, "failed to subscribe to keyspace notifications");
            return;
        }
    };
    let written = WrittenKeys::new(shared.options.grace);
    let receive = server.receive(switch, |event| match event {
        Some(key) if written.add(&key, || ()) => {}
        Some(_) => shared.ledger.unchecked(1),
        None => shared.ledger.missed(),
    });
    tokio::join!(receive, read_keys(&shared, &server, &written));
}

async fn read_keys(shared: &Shared, server: &Server, written: &WrittenKeys<()>) {
    let checker = server.checker().await;
    let per_turn = (shared.options.reads_per_second / 10).max(1) as usize;
    loop {
        let started = Instant::now();
        match written.turn(&checker, &shared.catalog, per_turn).await {
            Ok(turn) => {
                shared.ledger.checked(turn.checked as u64);
                for (key, ()) in turn.mismatched {
                    shared.ledger.found(&shared.catalog, &key);
                }
            }
            Err(failed) => {
                tracing::warn!(error = %failed.error, "failed to read keys after a write");
                shared.ledger.unchecked(failed.unchecked as u64);
                sleep(Duration::from_secs(1)).await;
            }
        }
        sleep_until(started + TURN).await;
    }
}
