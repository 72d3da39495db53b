//! One test on every store: `every_store!` turns an `async fn(test_store: TestStore)` into one test per store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hob_engine::{Config, Engine, Guard, Strict};
use hob_schema::{Catalog, Keyspace, Layout};
use hob_store::Store;

use crate::cluster::RedisCluster;
use crate::declared::{judge, test_families};
use crate::redis_server::RedisServer;
use crate::wait::LIMIT;

/// A store of one's own: a handle to it, how its keys are written, and the means to hurt it.
#[derive(Debug)]
pub struct TestStore {
    store: Store,
    layout: Layout,
    server: Server,
    /// Whether the guard looks away.
    outsiders: Arc<AtomicBool>,
}

/// What is behind a [`TestStore`].
#[derive(Debug)]
pub enum Server {
    /// The embedded store, strict: scripts may touch their KEYS only, and tagged ones one slot only.
    Embedded(Engine),
    /// One redis-server.
    Redis(Box<RedisServer>),
    /// Three masters.
    Cluster(RedisCluster),
}

impl TestStore {
    /// The embedded store, in either layout, for keys that `keys.toml` of this crate declares.
    pub fn embedded(layout: Layout) -> Self {
        Self::embedded_for(test_families(layout))
    }

    /// The embedded store for the keys of a catalog, in its layout: what it does not declare fails the test.
    pub fn embedded_for(catalog: Catalog) -> Self {
        let layout = catalog.spaces().first().map(Keyspace::layout).unwrap_or_default();
        let strict = match layout {
            Layout::Plain => Strict::Keys,
            Layout::Tagged => Strict::KeysOfOneSlot,
        };
        let outsiders = Arc::new(AtomicBool::new(false));
        let let_pass = Arc::clone(&outsiders);
        let guard =
            Guard::new(
                move |changes| {
                    if let_pass.load(Ordering::SeqCst) { Ok(()) } else { judge(&catalog, changes) }
                },
            );
        let engine = Engine::new(Config { strict, guard: Some(guard), ..Config::default() });
        Self { store: Store::embedded(&engine), layout, server: Server::Embedded(engine), outsiders }
    }

    /// A redis-server, keys as documented.
    pub async fn redis() -> Self {
        let server = RedisServer::start();
        let store = connect(&server.url()).await;
        Self {
            store,
            layout: Layout::Plain,
            server: Server::Redis(Box::new(server)),
            outsiders: Arc::default(),
        }
    }

    /// A Redis Cluster, keys tagged.
    pub async fn cluster() -> Self {
        let cluster = RedisCluster::start();
        let store = connect(&cluster.url()).await;
        Self { store, layout: Layout::Tagged, server: Server::Cluster(cluster), outsiders: Arc::default() }
    }

    /// The handle.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How keys are written.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// What is behind the handle.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// A key `name` of `entity`, in the store's layout. Keys of one entity share a slot where that matters.
    pub fn key(&self, name: &str, entity: &str) -> String {
        match self.layout {
            Layout::Plain => format!("{name}:{entity}"),
            Layout::Tagged => format!("{name}:{{{entity}}}"),
        }
    }

    /// Runs a command as somebody would who knows nothing of the schema: the guard looks away.
    pub async fn as_outsider(&self, command: hob_store::Cmd) {
        self.outsiders.store(true, Ordering::SeqCst);
        let done = self.store.run::<hob_store::Value>(command).await;
        self.outsiders.store(false, Ordering::SeqCst);
        done.unwrap_or_else(|error| panic!("the outsider's command: {error}"));
    }

    /// Loses all data.
    pub async fn flush_all(&self) {
        self.everywhere(hob_store::cmd("FLUSHALL")).await;
    }

    /// Loses all scripts.
    pub async fn flush_scripts(&self) {
        self.everywhere(hob_store::cmd("SCRIPT").arg("FLUSH").clone()).await;
    }

    async fn everywhere(&self, command: hob_store::Cmd) {
        let masters = self.store.masters().await.unwrap_or_else(|error| panic!("no masters: {error}"));
        for master in masters {
            let done = master.run::<()>(command.clone()).await;
            done.unwrap_or_else(|error| panic!("{}: {error}", master.name()));
        }
    }
}

async fn connect(url: &str) -> Store {
    let address = url.parse().unwrap_or_else(|error| panic!("{url}: {error}"));
    // A test's patience, not a service's: a busy machine is no reason to fail.
    let store = Store::open(&address).unwrap_or_else(|error| panic!("{url}: {error}")).with_deadline(LIMIT);
    store.ping().await.unwrap_or_else(|error| panic!("{url}: {error}"));
    store
}

/// Runs one test's future; called by `every_store!` and `every_database!`.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap_or_else(|error| panic!("no runtime: {error}")).block_on(test);
}

/// Makes one test per store of each function: the embedded store in both layouts, a redis-server, a Cluster.
///
/// ```
/// hob_testkit::every_store! {
///     async fn what_is_written_can_be_read(test_store: TestStore) {
///         let key = test_store.key("greeting", "1");
///         test_store.store().run::<()>(hob_store::cmd("SET").arg(&key).arg("hello")).await.unwrap();
///         assert_eq!(test_store.store().run::<String>(hob_store::cmd("GET").arg(&key)).await.unwrap(), "hello");
///     }
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! every_store {
    ($($(#[$about:meta])* async fn $name:ident($test_store:ident: TestStore) $body:block)*) => {$(
        $(#[$about])*
        mod $name {
            #[allow(unused_imports, reason = "a test may need nothing else")]
            use super::*;

            async fn on_any_store($test_store: $crate::TestStore) $body

            #[test]
            fn embedded_plain() {
                $crate::run(async { on_any_store($crate::TestStore::embedded($crate::Layout::Plain)).await });
            }

            #[test]
            fn embedded_tagged() {
                $crate::run(async { on_any_store($crate::TestStore::embedded($crate::Layout::Tagged)).await });
            }

            #[test]
            fn on_redis() {
                $crate::run(async { on_any_store($crate::TestStore::redis().await).await });
            }

            #[test]
            fn on_cluster() {
                $crate::run(async { on_any_store($crate::TestStore::cluster().await).await });
            }
        }
    )*};
}
