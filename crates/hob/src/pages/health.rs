//! `/health`: the state of Redis, the database, the nodes and their tasks.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::State;
use hob_database::outbox::{self, Backlog};
use hob_service::keys::Keys;
use hob_service::nodes::{self, NodeInfo};
use hob_service::{ServiceContext, TaskState};
use hob_store::{Degradation, Health, Store, Summary, cmd};
use hob_web::components::{Badge, Facts, Markup, Quantity, RelativeTime, Tone, Unit};
use hob_web::{CardProblem, Console, MemoryUsage, Page, Problem};
use tokio::time::timeout;

use crate::serve::http::Endpoints;
use crate::services::Services;

/// A part that does not respond in time is shown as unavailable.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A task with more lag than `LAG_WARNING` gets a warning on this page; with more than `LAG_PROBLEM`, also on the
/// Overview.
const LAG_WARNING: Duration = Duration::from_secs(10);
const LAG_PROBLEM: Duration = Duration::from_secs(60);

/// If more events than this are waiting, the relay does not keep up.
const BACKLOG_WARNING: u64 = 1_000;

/// The state of the page.
#[derive(Clone, Debug)]
pub(crate) struct HealthState {
    pub(crate) context: ServiceContext,
    pub(crate) keys: Keys,
    pub(crate) endpoints: Endpoints,
    pub(crate) services: Services,
}

/// The result of all checks at one moment.
#[derive(Debug)]
pub(crate) struct HealthCheck {
    store: Health,
    layout: hob_schema::Layout,
    servers: Result<Vec<Server>, String>,
    database: DatabaseCheck,
    tasks: Vec<TaskState>,
    /// Memory of this process, if known.
    resident: Option<u64>,
}

/// A Redis server.
#[derive(Debug)]
struct Server {
    name: String,
    answered_in: Duration,
    keys: u64,
    used: u64,
    /// 0: no limit.
    most: u64,
}

#[derive(Debug)]
struct DatabaseCheck {
    address: String,
    answered_in: Result<Duration, String>,
    backlog: Option<Backlog>,
}

impl HealthCheck {
    pub(crate) async fn of(context: &ServiceContext) -> Self {
        let (servers, database) =
            tokio::join!(timeout(TIMEOUT, servers(&context.store)), DatabaseCheck::of(context));
        let servers = match servers {
            Ok(answered) => answered.map_err(|error| error.to_string()),
            Err(_) => Err("timeout".to_owned()),
        };
        let tasks = context.tasks.states();
        Self {
            store: context.store.health(),
            layout: context.layout,
            servers,
            database,
            tasks,
            resident: resident(),
        }
    }

    /// The problems of this node.
    pub(crate) fn problems(&self) -> Vec<CardProblem> {
        let trouble =
            |tone, text: String, since_ms| CardProblem { tone, text, href: "/health".to_owned(), since_ms };
        let mut problems = Vec::new();
        if let Err(reason) = &self.servers {
            let since_ms = (!self.store.is_healthy()).then_some(self.store.since_unix_ms);
            problems.push(trouble(Tone::Bad, format!("Redis does not answer: {reason}"), since_ms));
        }
        if let Some(own) = self.degradation("hob") {
            problems.push(degraded_problem("This node", own));
        }
        if let Err(reason) = &self.database.answered_in {
            problems.push(trouble(Tone::Bad, format!("The database does not answer: {reason}"), None));
        }
        for task in self.tasks.iter().filter(|task| task.lag > LAG_PROBLEM) {
            let behind = Quantity::duration(task.lag);
            problems.push(trouble(Tone::Warn, format!("Task “{}” is {behind} behind", task.name), None));
        }
        problems
    }

    /// Why the store refuses calls of a system.
    pub(crate) fn degradation(&self, system: &str) -> Option<&Degradation> {
        self.store.degraded.iter().find(|degraded| degraded.system == system)
    }

    fn store_badge(&self) -> Badge {
        match self.store.state {
            hob_store::State::Connected if self.servers.is_err() => Tone::Bad.badge("no answer"),
            hob_store::State::Connected if !self.store.degraded.is_empty() => Tone::Warn.badge("degraded"),
            hob_store::State::Connected => Tone::Good.badge("connected"),
            hob_store::State::Partial { up, of } => Tone::Warn.badge(format!("{up} of {of} masters")),
            hob_store::State::Reconnecting => Tone::Bad.badge("reconnecting"),
        }
    }

    fn store_facts(&self) -> Facts {
        let Health { store, server, connection, operations, since_unix_ms, degraded, .. } = &self.store;
        let server = match server {
            Some(server) => format!("{} {}", server.kind, server.version),
            None => "unknown".to_owned(),
        };
        let mut facts = Facts::new()
            .markup("State", self.store_badge())
            .code("Address", store)
            .text("Server", server)
            .text("Key layout", format!("{:?}", self.layout).to_lowercase());
        for Degradation { system, fault, since_unix_ms } in degraded {
            let (reason, since) = (fault.reason(), RelativeTime::at(*since_unix_ms));
            facts = facts.markup("Degraded", Markup::trusted(format!("{system}: {reason}, {since}")));
        }
        if connection.attempts > 0 {
            facts = facts.markup("Since", RelativeTime::at(*since_unix_ms)).text(
                "Connections",
                format!("{} attempts, {} failed", connection.attempts, connection.failures),
            );
        }
        if let Some(error) = &connection.last_error {
            facts = facts.text("Last error", error);
        }
        facts = facts.text(
            "Calls",
            format!(
                "{} succeeded, {} failed",
                Quantity::count(operations.total - operations.failed),
                Quantity::count(operations.failed)
            ),
        );
        if let Some(minute) = &operations.busiest {
            let calls = Quantity::count(minute.calls);
            let started = RelativeTime::at(minute.since_unix_ms);
            facts = facts.markup("Busiest minute", Markup::trusted(format!("{calls} calls, {started}")));
        }
        facts
    }

    fn calls(&self) -> [(&'static str, &Summary); 4] {
        let operations = &self.store.operations;
        [
            ("Commands", &operations.command),
            ("Batches", &operations.batch),
            ("Scripts", &operations.script),
            ("Publications", &operations.publish),
        ]
    }

    fn database_facts(&self) -> Facts {
        let state = match &self.database.answered_in {
            Ok(_) => Tone::Good.badge("connected"),
            Err(_) => Tone::Bad.badge("unavailable"),
        };
        let mut facts = Facts::new().markup("State", state).code("Address", &self.database.address);
        facts = match &self.database.answered_in {
            Ok(took) => facts.markup("Latency", Quantity::duration(*took)),
            Err(reason) => facts.text("Reason", reason),
        };
        if let Some(Backlog { unnumbered, unpublished }) = self.database.backlog {
            let waiting = unnumbered + unpublished;
            let tone = if waiting > BACKLOG_WARNING { Tone::Warn } else { Tone::Good };
            facts = facts.markup("Outbox", tone.badge(format!("{} waiting", Quantity::count(waiting))));
        }
        facts
    }

    fn memory(&self) -> Quantity {
        Unit::Bytes.of(self.resident.map_or(f64::NAN, |bytes| bytes as f64))
    }
}

impl DatabaseCheck {
    async fn of(context: &ServiceContext) -> Self {
        let started = Instant::now();
        let answered_in = match timeout(TIMEOUT, context.database.ping()).await {
            Ok(Ok(())) => Ok(started.elapsed()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("timeout".to_owned()),
        };
        let backlog = match &answered_in {
            Ok(_) => timeout(TIMEOUT, outbox::backlog(&context.database)).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        Self { address: context.database.address().to_string(), answered_in, backlog }
    }
}

async fn servers(store: &Store) -> hob_store::Result<Vec<Server>> {
    let mut servers = Vec::new();
    for master in store.masters().await? {
        let started = Instant::now();
        let keys = master.run(cmd("DBSIZE")).await?;
        let answered_in = started.elapsed();
        let info: String = master.run(cmd("INFO").arg("memory").clone()).await?;
        let info: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
        let number = |name: &str| info.get(name).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let (used, most) = (number("used_memory"), number("maxmemory"));
        servers.push(Server { name: master.name().to_owned(), answered_in, keys, used, most });
    }
    Ok(servers)
}

impl Server {
    fn most(&self) -> String {
        if self.most == 0 { "no limit".to_owned() } else { Quantity::bytes(self.most).to_string() }
    }
}

/// The resident memory, on Linux.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}

/// A problem of a system whose calls the store refuses.
pub(super) fn degraded_problem(title: &str, degradation: &Degradation) -> CardProblem {
    let Degradation { fault, since_unix_ms, .. } = degradation;
    CardProblem {
        tone: Tone::Warn,
        text: format!("{title} is degraded: {}. {}", fault.reason(), fault.remedy()),
        href: "/health".to_owned(),
        since_ms: Some(*since_unix_ms),
    }
}

/// Whether a task is late or was restarted.
fn is_in_trouble(task: &TaskState) -> bool {
    task.lag > LAG_WARNING || task.restarts > 0
}

/// The state of a task.
fn task_badge(task: &TaskState) -> Badge {
    match task {
        task if task.lag > LAG_WARNING => Tone::Warn.badge("late"),
        task if task.restarts > 0 => Tone::Warn.badge(format!("restarted {}×", task.restarts)),
        _ => Tone::Good.badge("running"),
    }
}

#[derive(Template)]
#[template(path = "health.html")]
struct HealthPage {
    health_check: HealthCheck,
    name: String,
    endpoints: Endpoints,
    nodes: Vec<NodeInfo>,
    memory: Vec<MemoryUsage>,
}

impl HealthPage {
    fn micros(us: &u64) -> Quantity {
        Unit::Millis.of(*us as f64 / 1e3)
    }

    /// Tasks in trouble, the latest first.
    fn troubled_tasks(&self) -> Vec<&TaskState> {
        let mut tasks: Vec<&TaskState> =
            self.health_check.tasks.iter().filter(|task| is_in_trouble(task)).collect();
        tasks.sort_by_key(|task| std::cmp::Reverse(task.lag));
        tasks
    }

    /// The other tasks, by name.
    fn running_tasks(&self) -> Vec<&TaskState> {
        let mut tasks: Vec<&TaskState> =
            self.health_check.tasks.iter().filter(|task| !is_in_trouble(task)).collect();
        tasks.sort_by(|one, other| one.name.cmp(&other.name));
        tasks
    }

    fn node_facts(&self) -> Facts {
        let Endpoints { scheme, listen, embedded, .. } = &self.endpoints;
        let mut facts = Facts::new()
            .code("Name", &self.name)
            .text("Version", env!("CARGO_PKG_VERSION"))
            .markup("Memory", self.health_check.memory())
            .code("Console and API", format!("{scheme}://{listen}"));
        if let Some(embedded) = embedded {
            facts = facts.code("Embedded Redis", format!("redis-cli -p {}", embedded.port()));
        }
        let links = r#"<a href="/readyz">/readyz</a> · <a href="/metrics">/metrics</a> · <a href="/api/docs">/api/docs</a>"#;
        facts.markup("Endpoints", Markup::trusted(links))
    }
}

pub(crate) async fn page(console: Console, State(desk): State<HealthState>) -> Result<Page, Problem> {
    let HealthState { context, keys, endpoints, services } = desk;
    let living = timeout(TIMEOUT, nodes::live(&context.store, &keys));
    let (health_check, nodes) = tokio::join!(HealthCheck::of(&context), living);
    let nodes = nodes.ok().and_then(Result::ok).unwrap_or_default();
    let memory = services.all().iter().filter_map(|service| service.memory_usage()).collect();
    let name = context.node.to_string();
    console.page("Health", &HealthPage { health_check, name, endpoints, nodes, memory })
}
