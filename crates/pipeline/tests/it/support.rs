//! Test environment: a store, a database, and a driven clock.

use hob_web::{Changes, Service as _, Web};
use std::path::Path;
use std::time::Duration;

use hob_database::{Database, Options, Read as _, sql};
use hob_fixtures::{Layout, Server, TestStore};
use hob_pipeline::keys::{self, Keys};
use hob_pipeline::quota::{Limits, NewReservation, QuotaName, Quotas, Reservation, ReserveDecision};
use hob_pipeline::run::RunId;
use hob_pipeline::{Config, FailureClass, ItemState, Pipelines, Runs};
use hob_schema::Catalog;
use hob_service::{Live, NodeName, ServiceContext};
use hob_store::{Clock, Store, cmd};
use hob_testkit::{LIMIT, RedisServer, TestDatabase};
use tempfile::TempDir;

/// Sunday, 15 November 2026, 08:10:00 UTC.
pub(crate) const START: Duration = Duration::from_secs(1_794_730_200);

pub(crate) struct TestEnv {
    pub(crate) test_store: TestStore,
    pub(crate) test_database: TestDatabase,
    pub(crate) database: Database,
    pub(crate) clock: Clock,
}

impl TestEnv {
    pub(crate) async fn new(test_store: TestStore, test_database: TestDatabase) -> Self {
        let database = open(&test_database).await;
        Self { test_store, test_database, database, clock: Clock::driven(START) }
    }

    pub(crate) async fn embedded() -> Self {
        Self::new(embedded(Layout::Plain), TestDatabase::sqlite()).await
    }

    /// The store with the driven clock.
    pub(crate) fn store(&self) -> Store {
        self.test_store.store().with_clock(self.clock.clone())
    }

    pub(crate) fn keys(&self) -> Keys {
        Keys::new(self.test_store.layout())
    }

    /// The quotas of one node; "api" is the public one.
    pub(crate) fn quotas(&self) -> Quotas {
        Quotas::new(&self.store(), &self.keys(), &self.database, Some(api()))
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
        self.node_with_store(self.test_store.store().clone()).await
    }

    pub(crate) async fn node_with_store(&self, store: Store) -> Node {
        self.node_in(TempDir::new().unwrap(), store).await
    }

    pub(crate) fn context(&self, store: Store) -> ServiceContext {
        ServiceContext::new(store, self.test_store.layout(), self.database.clone(), NodeName::random())
    }

    pub(crate) async fn node_in(&self, folder: TempDir, store: Store) -> Node {
        let context = self.context(store);
        let web = Web::open(&context, Live::fixed(hob_web::Config::default())).unwrap();
        let pipelines = start(&context, folder.path(), web.changes()).await;
        Node { context, web, pipelines, folder }
    }

    /// A node with its own runtime and connections. Dropping it is like killing the process.
    pub(crate) fn crashing_node(&self, folder: &Path) -> CrashingNode {
        let (store, test_database, folder) =
            (self.redis().url(), self.test_database.url(), folder.to_owned());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move {
            let store = Store::open(&store.parse().unwrap()).unwrap();
            let database =
                Database::open(&test_database.parse().unwrap(), &[hob_pipeline::MIGRATIONS]).await.unwrap();
            let context = ServiceContext::new(store, Layout::Plain, database, NodeName::random());
            let _pipelines = start(&context, &folder, &Changes::detached(&context)).await;
            std::future::pending::<()>().await;
        });
        CrashingNode(Some(runtime))
    }

    /// The Redis server of the environment.
    pub(crate) fn redis(&self) -> &RedisServer {
        match self.test_store.server() {
            Server::Redis(server) => server,
            other => panic!("{other:?} is not one Redis"),
        }
    }

    /// Compares the item counts with the items.
    pub(crate) async fn assert_counts_match(&self, run: &RunId) {
        let count = sql(
            "SELECT step, state, CAST(count(*) AS BIGINT) FROM pipeline_item WHERE run = $1 GROUP BY step, state",
        );
        let mut counted: Vec<(String, ItemState, u64)> = self.database.all(count.bind(run)).await.unwrap();
        counted.sort();
        let failed = sql("SELECT class, state, CAST(count(*) AS BIGINT) FROM pipeline_item
                          WHERE run = $1 AND class <> '' GROUP BY class, state");
        let mut failed: Vec<(FailureClass, ItemState, u64)> =
            self.database.all(failed.bind(run)).await.unwrap();
        failed.sort();
        let kept = Runs::new(&self.database).progress(run).await.unwrap();
        assert_eq!((kept.steps, kept.failures), (counted, failed));
    }

    pub(crate) async fn get(&self, key: &hob_store::Key) -> Option<String> {
        self.test_store.store().run(cmd("GET").arg(key.as_bytes())).await.unwrap()
    }

    /// The public counters of the hour of START: rate_limit and counter.
    pub(crate) fn counters(&self) -> [hob_store::Key; 2] {
        let keys = self.keys();
        let hour = keys::HourKey::new("2026-11-15_08").unwrap();
        let shard = keys.space().shard_of("api");
        [keys.rate_limit(&hour, shard), keys.counter(&hour, shard)]
    }
}

async fn start(context: &ServiceContext, folder: &Path, changes: &Changes) -> Pipelines {
    let config = Config { folder: folder.to_owned(), public_quota: "api".to_owned(), ..Config::default() };
    let pipelines = Pipelines::open(context, Live::fixed(config)).await.unwrap();
    pipelines.start(changes);
    pipelines
}

pub(crate) struct CrashingNode(Option<tokio::runtime::Runtime>);

impl Drop for CrashingNode {
    fn drop(&mut self) {
        // Without graceful shutdown.
        self.0.take().unwrap().shutdown_background();
    }
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
        assert!(running.is_empty(), "{running:?} still run");
        self.folder
    }
}

pub(crate) async fn open(test_database: &TestDatabase) -> Database {
    let options = Options { connect_timeout: LIMIT, statement_timeout: LIMIT, ..Options::default() };
    let address = test_database.url().parse().unwrap();
    Database::open_with(&address, &[hob_pipeline::MIGRATIONS], options).await.unwrap()
}

/// A strict embedded store, which rejects keys that the schema does not declare.
pub(crate) fn embedded(layout: Layout) -> TestStore {
    TestStore::embedded_for(Catalog::new(vec![keys::schema().clone()], layout).unwrap())
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

/// Defines a test for each backend: embedded stores with SQLite, Redis and a Cluster with PostgreSQL.
#[macro_export]
macro_rules! every_backend {
    ($($(#[$about:meta])* async fn $name:ident($env:ident: TestEnv) $body:block)*) => {$(
        $(#[$about])*
        mod $name {
            #[allow(unused_imports, reason = "a test may need nothing else")]
            use super::*;
            use hob_fixtures::{Layout, TestStore};
            use hob_testkit::{TestDatabase, run};
            use $crate::support::{TestEnv, embedded};

            async fn on_backend($env: TestEnv) $body

            #[test]
            fn embedded_plain() {
                run(async { on_backend(TestEnv::new(embedded(Layout::Plain), TestDatabase::sqlite()).await).await });
            }

            #[test]
            fn embedded_tagged() {
                run(async { on_backend(TestEnv::new(embedded(Layout::Tagged), TestDatabase::sqlite()).await).await });
            }

            #[test]
            fn on_redis_and_postgres() {
                run(async { on_backend(TestEnv::new(TestStore::redis().await, TestDatabase::postgres()).await).await });
            }

            #[test]
            fn on_cluster_and_postgres() {
                run(async { on_backend(TestEnv::new(TestStore::cluster().await, TestDatabase::postgres()).await).await });
            }
        }
    )*};
}
