//! A place to test in: a store, a database, and a clock that the test drives.

use hob_web::Service as _;
use std::path::Path;
use std::time::Duration;

use hob_hot::{Clock, Hot, cmd};
use hob_house::{House, Live, NodeName};
use hob_pipeline::keys::{self, Keys};
use hob_pipeline::quota::{Answer, Ask, Limits, QuotaName, Quotas, Reservation};
use hob_pipeline::run::RunId;
use hob_pipeline::{Books, Class, Config, ItemState, Pipelines};
use hob_records::{Options, Read as _, Records, sql};
use hob_schema::Catalog;
use hob_testkit::{Database, LIMIT, Layout, RedisServer, Server, Store};
use tempfile::TempDir;

/// Sunday, 15 November 2026, 08:10:00 UTC.
pub(crate) const START: Duration = Duration::from_secs(1_794_730_200);

pub(crate) struct Place {
    pub(crate) store: Store,
    pub(crate) database: Database,
    pub(crate) records: Records,
    pub(crate) clock: Clock,
}

impl Place {
    pub(crate) async fn new(store: Store, database: Database) -> Self {
        let records = open(&database).await;
        Self { store, database, records, clock: Clock::driven(START) }
    }

    pub(crate) async fn embedded() -> Self {
        Self::new(embedded(Layout::Plain), Database::sqlite()).await
    }

    /// The store under the driven clock.
    pub(crate) fn hot(&self) -> Hot {
        self.store.hot().with_clock(self.clock.clone())
    }

    pub(crate) fn keys(&self) -> Keys {
        Keys::new(self.store.layout())
    }

    /// One node's quotas; "api" is the public one.
    pub(crate) fn quotas(&self) -> Quotas {
        Quotas::new(&self.hot(), &self.keys(), &self.records, Some(api()))
    }

    /// Quotas with "api" defined.
    pub(crate) async fn quotas_of(&self, windows: &str, buffer: u32) -> Quotas {
        let quotas = self.quotas();
        quotas.define(&api(), &Limits::parse(windows, buffer).unwrap()).await.unwrap();
        quotas
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// A node that works on runs, by the store's own clock.
    pub(crate) async fn node(&self) -> Node {
        self.node_by(self.store.hot().clone()).await
    }

    pub(crate) async fn node_by(&self, hot: Hot) -> Node {
        self.node_in(TempDir::new().unwrap(), hot).await
    }

    pub(crate) fn house(&self, hot: Hot) -> House {
        House::new(hot, self.store.layout(), self.records.clone(), NodeName::random())
    }

    pub(crate) async fn node_in(&self, folder: TempDir, hot: Hot) -> Node {
        let house = self.house(hot);
        let pipelines = start(&house, folder.path()).await;
        Node { house, pipelines, folder }
    }

    /// A node with a runtime and connections of its own, which vanishes when it is dropped, as a killed process does.
    pub(crate) fn mortal(&self, folder: &Path) -> Mortal {
        let (hot, database, folder) = (self.redis().url(), self.database.url(), folder.to_owned());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move {
            let hot = Hot::open(&hot.parse().unwrap()).unwrap();
            let records =
                Records::open(&database.parse().unwrap(), &[hob_pipeline::MIGRATIONS]).await.unwrap();
            let house = House::new(hot, Layout::Plain, records, NodeName::random());
            let _pipelines = start(&house, &folder).await;
            std::future::pending::<()>().await;
        });
        Mortal(Some(runtime))
    }

    /// The server of a place that has one Redis.
    pub(crate) fn redis(&self) -> &RedisServer {
        match self.store.server() {
            Server::Redis(server) => server,
            other => panic!("{other:?} is not one Redis"),
        }
    }

    /// What is kept of how many items are where must be what a count finds.
    pub(crate) async fn assert_counts_are_true(&self, run: &RunId) {
        let count = sql(
            "SELECT step, state, CAST(count(*) AS BIGINT) FROM pipeline_item WHERE run = $1 GROUP BY step, state",
        );
        let mut counted: Vec<(String, ItemState, u64)> = self.records.all(count.bind(run)).await.unwrap();
        counted.sort();
        let failed = sql("SELECT class, state, CAST(count(*) AS BIGINT) FROM pipeline_item
                          WHERE run = $1 AND class <> '' GROUP BY class, state");
        let mut failed: Vec<(Class, ItemState, u64)> = self.records.all(failed.bind(run)).await.unwrap();
        failed.sort();
        let kept = Books::new(&self.records).progress(run).await.unwrap();
        assert_eq!((kept.steps, kept.failures), (counted, failed));
    }

    pub(crate) async fn get(&self, key: &hob_schema::Key) -> Option<String> {
        self.store.hot().run(cmd("GET").arg(key.as_bytes())).await.unwrap()
    }

    /// The public counters of the hour of START: rate_limit and counter.
    pub(crate) fn counters(&self) -> [hob_schema::Key; 2] {
        let keys = self.keys();
        let hour = keys::HourKey::new("2026-11-15_08").unwrap();
        let shard = keys.space().shard_of("api");
        [keys.rate_limit(&hour, shard), keys.counter(&hour, shard)]
    }
}

async fn start(house: &House, folder: &Path) -> Pipelines {
    let config = Config { folder: folder.to_owned(), public_quota: "api".to_owned(), ..Config::default() };
    let pipelines = Pipelines::open(house, Live::fixed(config)).await.unwrap();
    pipelines.start(&hob_web::Changes::detached(house));
    pipelines
}

pub(crate) struct Mortal(Option<tokio::runtime::Runtime>);

impl Drop for Mortal {
    fn drop(&mut self) {
        // Nothing is finished, nothing given back.
        self.0.take().unwrap().shutdown_background();
    }
}

/// One of several that share a store and records.
pub(crate) struct Node {
    pub(crate) house: House,
    pub(crate) pipelines: Pipelines,
    folder: TempDir,
}

impl Node {
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Stops as a process does that was asked to; gives its folder to whoever comes after it.
    pub(crate) async fn stop(self) -> TempDir {
        let running = self.house.tasks.stop(LIMIT).await;
        assert!(running.is_empty(), "{running:?} still run");
        self.folder
    }
}

pub(crate) async fn open(database: &Database) -> Records {
    let options = Options { connect_within: LIMIT, answer_within: LIMIT, ..Options::default() };
    let address = database.url().parse().unwrap();
    Records::open_with(&address, &[hob_pipeline::MIGRATIONS], options).await.unwrap()
}

/// A strict embedded store, which refuses every key that the schema does not declare.
pub(crate) fn embedded(layout: Layout) -> Store {
    Store::embedded_for(Catalog::new(vec![keys::schema().clone()], layout).unwrap())
}

pub(crate) fn api() -> QuotaName {
    "api".parse().unwrap()
}

pub(crate) fn ask(id: &str) -> Ask {
    let (id, run) = (id.to_owned(), "run".to_owned());
    Ask { id, calls: 1, run, weight: 1, hold: Duration::from_secs(30) }
}

pub(crate) async fn granted(quotas: &Quotas, ask: &Ask) -> Reservation {
    match quotas.reserve(&api(), ask).await.unwrap() {
        Answer::Granted(reservation) => reservation,
        wait @ Answer::Wait { .. } => panic!("{}: {wait:?}", ask.id),
    }
}

/// How long the caller is told to wait.
pub(crate) async fn told_to_wait(quotas: &Quotas, ask: &Ask) -> Duration {
    match quotas.reserve(&api(), ask).await.unwrap() {
        Answer::Wait { after, .. } => after,
        granted @ Answer::Granted(_) => panic!("{}: {granted:?}", ask.id),
    }
}

/// Makes one test for each row of the matrix: embedded stores with SQLite, Redis and a Cluster with PostgreSQL.
#[macro_export]
macro_rules! every_place {
    ($($(#[$about:meta])* async fn $name:ident($place:ident: Place) $body:block)*) => {$(
        $(#[$about])*
        mod $name {
            #[allow(unused_imports, reason = "a test may need nothing else")]
            use super::*;
            use hob_testkit::{Database, Layout, Store, run};
            use $crate::support::{Place, embedded};

            async fn on_any_place($place: Place) $body

            #[test]
            fn embedded_plain() {
                run(async { on_any_place(Place::new(embedded(Layout::Plain), Database::sqlite()).await).await });
            }

            #[test]
            fn embedded_tagged() {
                run(async { on_any_place(Place::new(embedded(Layout::Tagged), Database::sqlite()).await).await });
            }

            #[test]
            fn on_redis_and_postgres() {
                run(async { on_any_place(Place::new(Store::redis().await, Database::postgres()).await).await });
            }

            #[test]
            fn on_cluster_and_postgres() {
                run(async { on_any_place(Place::new(Store::cluster().await, Database::postgres()).await).await });
            }
        }
    )*};
}
