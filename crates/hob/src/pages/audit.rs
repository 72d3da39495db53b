//! Audits the store in the background for the Keys page: one audit at a time, at a gentle pace, and only when the page is
//! viewed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_schema::Catalog;
use hob_schema_audit::{AuditOptions, AuditReport, Error, Pace, Progress, audit};
use hob_service::{Task, Tasks};
use hob_store::Store;
use hob_units::unix_ms;
use tokio::sync::Notify;

/// Slow enough that other clients barely notice.
const PACE: Pace = Pace::KeysPerSecond(20_000);

/// Viewing the page starts a new audit if the last one is older than this.
const MAX_AGE_MS: u64 = 60_000;

/// A batch of an audit may take a long time while a server is busy.
const DEADLINE: Duration = Duration::from_secs(30);

/// The audit of the store and its latest result. Clones are handles to the same audit.
#[derive(Clone)]
pub(crate) struct BackgroundAudit {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    catalog: Catalog,
    state: Mutex<AuditState>,
    requested: Notify,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct AuditState {
    /// The latest complete audit.
    pub(crate) report: Option<Arc<Report>>,
    pub(crate) run: AuditRun,
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) audit: AuditReport,
    pub(crate) at_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum AuditRun {
    #[default]
    Idle,
    Running {
        keys: u64,
        expected: u64,
    },
    Failed {
        reason: String,
        at_ms: u64,
    },
}

impl BackgroundAudit {
    pub(crate) fn new(store: &Store, catalog: Catalog) -> Self {
        let store = store.with_deadline(DEADLINE);
        let inner = Inner { store, catalog, state: Mutex::default(), requested: Notify::new() };
        Self { inner: Arc::new(inner) }
    }

    /// Spawns the task that audits on request.
    pub(crate) fn start(&self, tasks: &Tasks) {
        let audit = self.clone();
        tasks.spawn("audit of the keys", move |task| audit.clone().run(task));
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The latest result; requests a new audit if it is old.
    pub(crate) fn refresh(&self) -> AuditState {
        self.refresh_after(MAX_AGE_MS)
    }

    /// The latest result; requests a new audit if it is older than this.
    pub(crate) fn refresh_after(&self, max_age_ms: u64) -> AuditState {
        let state = self.state().clone();
        let since_ms = match (&state.run, &state.report) {
            (AuditRun::Failed { at_ms, .. }, _) => *at_ms,
            (_, Some(report)) => report.at_ms,
            (_, None) => 0,
        };
        if unix_ms().saturating_sub(since_ms) > max_age_ms {
            self.request();
        }
        state
    }

    /// Requests an audit, unless one is running.
    pub(crate) fn request(&self) {
        let mut state = self.state();
        if !matches!(state.run, AuditRun::Running { .. }) {
            state.run = AuditRun::Running { keys: 0, expected: 0 };
            self.inner.requested.notify_one();
        }
    }

    async fn run(self, task: Task) {
        loop {
            tokio::select! {
                () = self.inner.requested.notified() => {}
                () = task.stop_requested() => return,
            }
            tokio::select! {
                audited = self.audit() => self.finish(audited),
                () = task.stop_requested() => return,
            }
            task.heartbeat();
        }
    }

    async fn audit(&self) -> Result<AuditReport, Error> {
        let mut progress = |progress: &Progress| {
            self.state().run = AuditRun::Running { keys: progress.keys, expected: progress.expected };
        };
        audit(
            &self.inner.store,
            &self.inner.catalog,
            AuditOptions { pace: PACE, ..AuditOptions::default() },
            &mut progress,
        )
        .await
    }

    fn finish(&self, audited: Result<AuditReport, Error>) {
        let mut state = self.state();
        match audited {
            Ok(audit) => {
                state.report = Some(Arc::new(Report { audit, at_ms: unix_ms() }));
                state.run = AuditRun::Idle;
            }
            Err(error) => state.run = AuditRun::Failed { reason: error.to_string(), at_ms: unix_ms() },
        }
    }

    fn state(&self) -> MutexGuard<'_, AuditState> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
