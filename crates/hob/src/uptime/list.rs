//! `hob uptime list`: monitors from the database, with their states from the store.
#![expect(clippy::print_stdout, reason = "output of a command")]

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hob_database::Database;
use hob_schema::Layout;
use hob_service::keys::Keys;
use hob_service::nodes;
use hob_store::{Access, Address, Host, Secret, Store};
use hob_uptime::Schedule;
use hob_uptime::database::{incidents, monitors};
use hob_uptime::incident::Incident;
use hob_uptime::monitor::{Monitor, MonitorSpec};
use hob_uptime::schedule::snapshot::Snapshot;
use hob_uptime::schedule::state::MonitorState;
use hob_web::Time;

use crate::config::{self, Config};
use crate::database;
use crate::exit::Exit;

/// How long to wait for the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Exits with 4 if a monitor is down.
pub(crate) fn run(file: Option<&Path>) -> Result<Exit> {
    let config = config::load(file)?.config;
    let runtime = tokio::runtime::Runtime::new().context("could not start the runtime")?;
    runtime.block_on(async {
        let database = database::open_existing(&config.database).await?;
        let monitors = monitors::all(&database).await?;
        let open = incidents::all_open(&database).await?;
        let answer = tokio::time::timeout(STORE_TIMEOUT, snapshot(&config, &database)).await;
        let snapshot =
            snapshot_or_warn(answer.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer from the store"))));
        println!("{:10}  {:24}  {:24}  {:11}  {:12}  target", "state", "id", "name", "kind", "every");
        let mut exit = Exit::Clean;
        for monitor in &monitors {
            let outage = open.iter().find(|incident| incident.monitor_id == monitor.id);
            let state = state(monitor, outage, snapshot.as_ref());
            if outage.is_some() || state == Some(MonitorState::Down) {
                exit = Exit::Errors;
            }
            println!("{}", line(monitor, state, outage));
        }
        database.close().await;
        Ok(exit)
    })
}

/// The states in the store: Redis, or the embedded engine of a server on this machine.
async fn snapshot(config: &Config, database: &Database) -> Result<Snapshot> {
    let address = match config.redis.address()? {
        Address::Embedded => embedded(config)?,
        address => address,
    };
    let layout = if address.is_cluster() { Layout::Tagged } else { Layout::Plain };
    let store = Store::connect(&address).await.with_context(|| address.to_string())?;
    let keys = Keys::from_env(layout, &|name| std::env::var(name).ok()).context("HOB_KEY_PREFIX")?;
    match nodes::holder(&store, &keys).await? {
        Some(holder) if holder == database.id().to_string() => {}
        Some(_) => bail!(
            "the Redis at {address} belongs to another Hob database; check HOB_DATABASE_URL and HOB_REDIS_URL"
        ),
        None => bail!("no Hob server uses {address}; start `hob serve`, or check HOB_REDIS_URL"),
    }
    Ok(Schedule::new(&store, layout)?.snapshot().await?)
}

/// The address of the embedded engine of a server, with its password.
fn embedded(config: &Config) -> Result<Address> {
    let listen = config.redis.embedded_listen;
    let host = Host { name: listen.ip().to_string(), port: listen.port() };
    let password = config.server.admin()?.map(|password| Secret::new(password.reveal()));
    Ok(Address::Server { host, db: 0, access: Access { password, ..Access::default() } })
}

#[expect(clippy::print_stderr, reason = "warning beside the output")]
fn snapshot_or_warn(snapshot: Result<Snapshot>) -> Option<Snapshot> {
    match snapshot {
        Ok(snapshot) => Some(snapshot),
        Err(error) => {
            eprintln!("hob: cannot read the states from the store, showing only open incidents: {error:#}");
            None
        }
    }
}

/// `None` if the state is unknown.
fn state(monitor: &Monitor, outage: Option<&Incident>, snapshot: Option<&Snapshot>) -> Option<MonitorState> {
    match (snapshot, outage) {
        (Some(snapshot), _) => Some(snapshot.state(monitor)),
        (None, _) if monitor.spec.paused => Some(MonitorState::Paused),
        (None, Some(_)) => Some(MonitorState::Down),
        (None, None) => None,
    }
}

/// How often a monitor is checked, or its job calls.
fn every(spec: &MonitorSpec) -> String {
    let cron = spec.heartbeat.as_ref().and_then(|heartbeat| heartbeat.cron.as_ref());
    cron.map_or_else(|| format!("{} s", spec.interval_s), Clone::clone)
}

fn line(monitor: &Monitor, state: Option<MonitorState>, outage: Option<&Incident>) -> String {
    let spec = &monitor.spec;
    let (state, every) = (state.map_or("?", MonitorState::label), every(spec));
    let (id, kind, target) = (monitor.id.as_str(), spec.kind.as_str(), &spec.target);
    let line = format!("{state:10}  {id:24}  {:24}  {kind:11}  {every:12}  {target}", spec.name);
    match outage {
        Some(incident) => {
            format!("{line}  down since {}: {}", Time(incident.opened_at), incident.message)
        }
        None => line,
    }
}
