//! The test environment: a store, a database, and a driven clock.

use hob_web::{Changes, Service as _, Web};
use std::path::Path;
use std::time::Duration;

use hob_database::{Database, Read as _, sql};
use hob_fixtures::{Layout, Needs, Server, TestContext, TestStore};
use hob_pipeline::keys::{self, Keys};
use hob_pipeline::quota::{
    Limits, NewReservation, PublicQuota, QuotaName, Quotas, Reservation, ReserveDecision,
};
use hob_pipeline::run::RunId;
use hob_pipeline::{Config, FailureClass, ItemState, MIGRATIONS, Pipelines, Runs};
use hob_service::{Live, NodeName, ServiceContext};
use hob_store::{Clock, Store, cmd};
use hob_testkit::{KillableNode, LIMIT, RedisServer, TestDatabase, wait_for};
use tempfile::TempDir;

/// Sunday, 15 November 2026, 08:10:00 UTC.
pub(crate) const START: Duration = Duration::from_secs(1_794_730_200);

pub(crate) const NEEDS: Needs = Needs {
    schemas: &[("schemas/pipeline.toml", include_str!("../../../../schemas/pipeline.toml"))],
    migrations: &[MIGRATIONS],
};

pub(crate) struct TestEnv {
    test: TestContext,
    pub(crate) database: Database,
    pub(crate) clock: Clock,
}

impl TestEnv {
    pub(crate) fn new(test: TestContext) -> Self {
        let database = test.database.clone();
        Self { test, database, clock: Clock::driven(START) }
    }

    pub(crate) async fn embedded() -> Self {
        Self::new(TestContext::embedded(NEEDS, Layout::Plain).await)
    }

    pub(crate) async fn over(test_store: TestStore, test_database: TestDatabase) -> Self {
        Self::new(TestContext::start_on(NEEDS, test_store, test_database).await)
    }

    pub(crate) fn test_store(&self) -> &TestStore {
        self.test.test_store()
    }

    /// The store with the driven clock.
    pub(crate) fn store(&self) -> Store {
        self.test_store().store().with_clock(self.clock.clone())
    }

    pub(crate) fn keys(&self) -> Keys {
        Keys::new(self.test.layout)
    }

    /// The quotas of one node; "api" is the public one.
    pub(crate) fn quotas(&self) -> Quotas {
        let public = PublicQuota { name: api(), limits: Limits::parse("5000/1h", 25).unwrap() };
        Quotas::new(&self.store(), &self.keys(), &self.database, Some(public))
    }

    /// Quotas with "api" defined.
    pub(crate) async fn quotas_with(&self, windows: &str, buffer: u32) -> Quotas {
        let quotas = self.quotas();
        quotas.define(&api(), &Limits::parse(windows, buffer).unwrap()).await.unwrap();
        quotas
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// A node that executes runs, with the store's own clock.
    pub(crate) async fn node(&self) -> Node {
        self.node_with_store(self.test_store().store().clone()).await
    }

    pub(crate) async fn node_with_store(&self, store: Store) -> Node {
        self.node_in(TempDir::new().unwrap(), store).await
    }

    pub(crate) fn context(&self, store: Store) -> ServiceContext {
        ServiceContext::new(store, self.test.layout, self.database.clone(), NodeName::random())
    }

    pub(crate) async fn node_in(&self, folder: TempDir, store: Store) -> Node {
        let context = self.context(store);
        let web = Web::open(&context, Live::fixed(hob_web::Config::default())).unwrap();
        let pipelines = start(&context, folder.path(), web.changes()).await;
        Node { context, web, pipelines, folder }
    }

    /// A node whose connections are closed when it is killed.
    pub(crate) async fn killable_node(&self, folder: &Path) -> KillableNode<Pipelines> {
        let store = self.redis().url().parse().unwrap();
        let database = self.test.test_database().url().parse().unwrap();
        let folder = folder.to_owned();
        KillableNode::start(async move {
            let store = Store::open(&store).unwrap();
            let database = Database::open(&database, &[hob_web::MIGRATIONS, MIGRATIONS]).await.unwrap();
            let context = ServiceContext::new(store, Layout::Plain, database, NodeName::random());
            start(&context, &folder, &Changes::detached(&context)).await
        })
        .await
    }

    /// The Redis server of the environment.
    pub(crate) fn redis(&self) -> &RedisServer {
        match self.test_store().server() {
            Server::Redis(server) => server,
            other => panic!("{other:?} is not a single Redis server"),
        }
    }

    /// Compares the item counts with the items, until no commit happened between reading the two.
    pub(crate) async fn assert_counts_match(&self, run: &RunId) {
        wait_for("counts that match the items", LIMIT, async || {
            let count = sql(
                "SELECT step, state, CAST(count(*) AS BIGINT) FROM pipeline_item WHERE run = $1 GROUP BY step, state",
            );
            let mut counted: Vec<(String, ItemState, u64)> =
                self.database.all(count.bind(run)).await.unwrap();
            counted.sort();
            let failed = sql("SELECT class, state, CAST(count(*) AS BIGINT) FROM pipeline_item
                              WHERE run = $1 AND class <> '' GROUP BY class, state");
            let mut failed: Vec<(FailureClass, ItemState, u64)> =
                self.database.all(failed.bind(run)).await.unwrap();
            failed.sort();
            let stored = Runs::new(&self.database).progress(run).await.unwrap();
            let (stored, counted) = ((stored.steps, stored.failures), (counted, failed));
            if stored == counted { Ok(()) } else { Err((stored, counted)) }
        })
        .await;
    }

    pub(crate) async fn get(&self, key: &hob_store::Key) -> Option<String> {
        self.test_store().store().run(cmd("GET").arg(key.as_bytes())).await.unwrap()
    }

    /// The public counters of the hour of START: rate_limit and counter.
    pub(crate) fn counters(&self) -> [hob_store::Key; 2] {
        let keys = self.keys();
        let hour = keys::HourKey::new("2026-11-15_08").unwrap();
        let shard = keys.space().shard_of("api");
        [keys.rate_limit(&hour, shard), keys.counter(&hour, shard)]
    }
}

pub(crate) async fn start(context: &ServiceContext, folder: &Path, changes: &Changes) -> Pipelines {
    let config = Config { folder: folder.to_owned(), public_quota: "api".to_owned(), ..Config::default() };
    let pipelines = Pipelines::open(context, Live::fixed(config)).await.unwrap();
    pipelines.start(changes);
    pipelines
}

/// A node. Several can share a store and a database.
pub(crate) struct Node {
    pub(crate) context: ServiceContext,
    pub(crate) web: Web,
    pub(crate) pipelines: Pipelines,
    folder: TempDir,
}

impl Node {
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Stops gracefully. Returns the folder for the next node.
    pub(crate) async fn stop(self) -> TempDir {
        let running = self.context.tasks.stop(LIMIT).await;
        assert!(running.is_empty(), "{running:?} are still running");
        self.folder
    }
}

pub(crate) fn api() -> QuotaName {
    "api".parse().unwrap()
}

pub(crate) fn new_reservation(id: &str) -> NewReservation {
    let (id, run) = (id.to_owned(), "run".to_owned());
    NewReservation { id, calls: 1, run, weight: 1, hold: Duration::from_secs(30) }
}

pub(crate) async fn reserve(quotas: &Quotas, new_reservation: &NewReservation) -> Reservation {
    match quotas.reserve(&api(), new_reservation).await.unwrap() {
        ReserveDecision::Granted(reservation) => reservation,
        wait @ ReserveDecision::Wait { .. } => panic!("{}: {wait:?}", new_reservation.id),
    }
}

/// Waiting time of a reservation that is not granted.
pub(crate) async fn wait_time(quotas: &Quotas, new_reservation: &NewReservation) -> Duration {
    match quotas.reserve(&api(), new_reservation).await.unwrap() {
        ReserveDecision::Wait { after, .. } => after,
        reserve @ ReserveDecision::Granted(_) => panic!("{}: {reserve:?}", new_reservation.id),
    }
}
