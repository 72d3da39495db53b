//! Holding the store to its schemas in the background: only while somebody looks, one walk at a time, at a gentle
//! pace.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_schema::Catalog;
use hob_schema::live::{AuditOptions, AuditReport, Node, Pace, Progress, audit_nodes};
use hob_service::{Task, Tasks};
use hob_store::{Call, Cmd, Store, Value};
use hob_web::look::now_ms;
use redis::aio::ConnectionLike;
use redis::{Pipeline, RedisError, RedisFuture, RedisResult};
use tokio::sync::Notify;

/// A walk asks for so many keys a second, which a server hardly feels.
const PACE: Pace = Pace::KeysPerSecond(20_000);

/// Who looks at the page gets a report that is not much older than this.
const FRESH_MS: u64 = 60_000;

/// A call of a walk may take long while a server is busy; it is in no hurry.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is known of the keys. Clones are handles to the same.
#[derive(Clone)]
pub(crate) struct Survey {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    catalog: Catalog,
    known: Mutex<Known>,
    wanted: Notify,
}

/// What the walks found out so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) report: Option<Arc<Report>>,
    pub(crate) walk: Walk,
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) audit: AuditReport,
    pub(crate) at_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Walk {
    #[default]
    Resting,
    Going {
        keys: u64,
        expected: u64,
    },
    Failed {
        reason: String,
        at_ms: u64,
    },
}

impl Survey {
    pub(crate) fn new(store: &Store, catalog: Catalog) -> Self {
        let store = store.with_deadline(PATIENCE);
        let inner = Inner { store, catalog, known: Mutex::default(), wanted: Notify::new() };
        Self { inner: Arc::new(inner) }
    }

    /// Walks whenever somebody wants it.
    pub(crate) fn start(&self, tasks: &Tasks) {
        let survey = self.clone();
        tasks.spawn("audit of the keys", move |task| survey.clone().keep_walking(task));
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// What is known; if it is old, a walk begins.
    pub(crate) fn look(&self) -> Known {
        let known = self.known().clone();
        let since_ms = match (&known.walk, &known.report) {
            (Walk::Failed { at_ms, .. }, _) => *at_ms,
            (_, Some(report)) => report.at_ms,
            (_, None) => 0,
        };
        if now_ms().saturating_sub(since_ms) > FRESH_MS {
            self.want();
        }
        known
    }

    /// Begins a walk, unless one is going.
    pub(crate) fn want(&self) {
        let mut known = self.known();
        if !matches!(known.walk, Walk::Going { .. }) {
            known.walk = Walk::Going { keys: 0, expected: 0 };
            self.inner.wanted.notify_one();
        }
    }

    async fn keep_walking(self, task: Task) {
        loop {
            tokio::select! {
                () = self.inner.wanted.notified() => {}
                () = task.stopped() => return,
            }
            tokio::select! {
                walked = self.walk() => self.conclude(walked),
                () = task.stopped() => return,
            }
            task.beat();
        }
    }

    async fn walk(&self) -> Result<AuditReport, String> {
        let masters = self.inner.store.masters().await.map_err(|error| error.to_string())?;
        let node = |store: Store| Node { name: store.name().to_owned(), connection: Asked(store) };
        let nodes = masters.into_iter().map(node).collect();
        let mut told = |progress: &Progress| {
            self.known().walk = Walk::Going { keys: progress.keys, expected: progress.expected };
        };
        let audit = audit_nodes(nodes, &self.inner.catalog, AuditOptions { pace: PACE }, &mut told).await;
        audit.map_err(|error| error.to_string())
    }

    fn conclude(&self, walked: Result<AuditReport, String>) {
        let mut known = self.known();
        match walked {
            Ok(audit) => {
                *known =
                    Known { report: Some(Arc::new(Report { audit, at_ms: now_ms() })), walk: Walk::Resting }
            }
            Err(reason) => known.walk = Walk::Failed { reason, at_ms: now_ms() },
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The store as the audit wants to ask it: the connection that everything else uses, with its reconnects.
#[derive(Clone)]
struct Asked(Store);

impl ConnectionLike for Asked {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move { answer(self.0.run(command.clone()).await)?.extract_error() })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        _offset: usize,
        _count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let calls: Vec<Call> = pipeline.cmd_iter().map(|command| command.clone().into()).collect();
            self.0.batch(&calls).await.into_iter().map(answer).collect()
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// A refusal of one command is its answer; anything else ends the walk.
fn answer(answered: hob_store::Result<Value>) -> RedisResult<Value> {
    match answered {
        Err(hob_store::Error::Refused { code, detail }) => {
            redis::parse_redis_value(format!("-{code} {detail}\r\n").as_bytes())
        }
        Err(error) => Err(RedisError::from(std::io::Error::other(error.to_string()))),
        Ok(value) => Ok(value),
    }
}
