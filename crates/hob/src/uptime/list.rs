//! `hob uptime list`: monitors from the database, with their states from the store; or both from a server.
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
use hob_uptime::monitor::Monitor;
use hob_uptime::monitor::check::MonitorKind;
use hob_uptime::schedule::snapshot::Snapshot;
use hob_uptime::schedule::state::MonitorState;
use hob_web::Time;
use serde::Deserialize;

use crate::cli::ServerArgs;
use crate::config::{self, Config};
use crate::database;
use crate::exit::Exit;
use crate::remote::{self, Remote};

/// How long to wait for the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Exits with 4 if a monitor is down.
pub(crate) fn run(server: &ServerArgs, file: Option<&Path>) -> Result<Exit> {
    let rows = match Remote::chosen(server)? {
        Some(server) => remote::wait(of_server(&server))?,
        None => remote::wait(of_database(&config::load(file)?.config))?,
    };
    println!("{:10}  {:24}  {:24}  {:11}  {:12}  target", "state", "id", "name", "kind", "every");
    let mut exit = Exit::Clean;
    for row in &rows {
        if row.outage.is_some() || row.state == Some(MonitorState::Down) {
            exit = Exit::Errors;
        }
        println!("{}", row.line());
    }
    Ok(exit)
}

/// A monitor in the list.
struct Row {
    /// `None` if it is not known.
    state: Option<MonitorState>,
    id: String,
    name: String,
    kind: MonitorKind,
    /// How often the monitor is checked, or its job calls.
    every: String,
    target: String,
    outage: Option<Outage>,
}

/// Since when a monitor is down, and why.
struct Outage {
    since: Time,
    message: String,
}

impl Row {
    fn line(&self) -> String {
        let Row { id, name, kind, every, target, outage, .. } = self;
        let state = self.state.map_or("?", MonitorState::label);
        let kind = kind.as_str();
        let line = format!("{state:10}  {id:24}  {name:24}  {kind:11}  {every:12}  {target}");
        match outage {
            Some(Outage { since, message }) => format!("{line}  down since {since}: {message}"),
            None => line,
        }
    }
}

/// A monitor as the API returns it.
#[derive(Deserialize)]
struct ListedMonitor {
    id: String,
    state: MonitorState,
    name: String,
    kind: MonitorKind,
    target: String,
    interval_s: u32,
    #[serde(default)]
    heartbeat: Option<ListedHeartbeat>,
}

#[derive(Deserialize)]
struct ListedHeartbeat {
    #[serde(default)]
    cron: Option<String>,
}

/// An open incident as the API returns it.
#[derive(Deserialize)]
struct ListedIncident {
    monitor: String,
    opened_at: Time,
    message: String,
}

async fn of_server(server: &Remote) -> Result<Vec<Row>> {
    let monitors: Vec<ListedMonitor> = server.list(server.url(&["uptime", "monitors"])).await?;
    let mut open = server.url(&["uptime", "incidents"]);
    open.query_pairs_mut().append_pair("open", "true");
    let open: Vec<ListedIncident> = server.list(open).await?;
    let row = |monitor: ListedMonitor| {
        let incident = open.iter().find(|incident| incident.monitor == monitor.id);
        Row {
            state: Some(monitor.state),
            outage: incident.map(|of| Outage { since: of.opened_at, message: of.message.clone() }),
            every: every(monitor.interval_s, monitor.heartbeat.and_then(|heartbeat| heartbeat.cron)),
            id: monitor.id,
            name: monitor.name,
            kind: monitor.kind,
            target: monitor.target,
        }
    };
    // As in the database.
    let mut rows: Vec<Row> = monitors.into_iter().map(row).collect();
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(rows)
}

async fn of_database(config: &Config) -> Result<Vec<Row>> {
    let database = database::open_existing(&config.database).await?;
    let monitors = monitors::all(&database).await?;
    let open = incidents::all_open(&database).await?;
    let answer = tokio::time::timeout(STORE_TIMEOUT, snapshot(config, &database)).await;
    let snapshot =
        snapshot_or_warn(answer.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer from the store"))));
    database.close().await;
    let row = |monitor: &Monitor| {
        let outage = open.iter().find(|incident| incident.monitor_id == monitor.id);
        let spec = &monitor.spec;
        let cron = spec.heartbeat.as_ref().and_then(|heartbeat| heartbeat.cron.clone());
        Row {
            state: state(monitor, outage, snapshot.as_ref()),
            id: monitor.id.to_string(),
            name: spec.name.clone(),
            kind: spec.kind,
            every: every(spec.interval_s, cron),
            target: spec.target.clone(),
            outage: outage.map(|of| Outage { since: Time(of.opened_at), message: of.message.clone() }),
        }
    };
    Ok(monitors.iter().map(row).collect())
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

fn every(interval_s: u32, cron: Option<String>) -> String {
    cron.unwrap_or_else(|| format!("{interval_s} s"))
}
