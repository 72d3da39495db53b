//! A service context for tests: a store, a database, background tasks. `every_service!` turns an
//! `async fn(context: TestContext)` into one test per combination that Hob is run with.

use std::ops::Deref;

use hob_database::{Database, Migrations, Options};
use hob_schema::{Catalog, Layout, Schema};
use hob_service::{NodeName, ServiceContext};

use crate::database::TestDatabase;
use crate::stores::TestStore;
use crate::wait::LIMIT;

/// What a service needs: the keys that it may write, the tables that it has. The program's own are always
/// there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// Names and texts of schema files: `("schemas/uptime.toml", include_str!("../../../schemas/uptime.toml"))`.
    pub schemas: &'static [(&'static str, &'static str)],
    pub migrations: &'static [Migrations],
}

/// A service context for one test, and the means to hurt its store and its database. It derefs to the [`ServiceContext`], and its tasks
/// are told to stop when it is dropped.
#[derive(Debug)]
pub struct TestContext {
    context: ServiceContext,
    needs: Needs,
    test_store: TestStore,
    test_database: TestDatabase,
}

const OWN_SCHEMA: (&str, &str) = ("schemas/hob.toml", include_str!("../../../schemas/hob.toml"));

impl TestContext {
    /// The embedded store, strict, and a SQLite file.
    pub async fn embedded(needs: Needs, layout: Layout) -> Self {
        Self::over(needs, TestStore::embedded_for(catalog(needs, layout)), TestDatabase::sqlite()).await
    }

    /// A redis-server and PostgreSQL.
    pub async fn redis(needs: Needs) -> Self {
        Self::over(needs, TestStore::redis().await, TestDatabase::postgres()).await
    }

    /// A Redis Cluster and PostgreSQL.
    pub async fn cluster(needs: Needs) -> Self {
        Self::over(needs, TestStore::cluster().await, TestDatabase::postgres()).await
    }

    /// Any store with any database.
    pub async fn over(needs: Needs, test_store: TestStore, test_database: TestDatabase) -> Self {
        let context = node_over(needs, &test_store, &test_database).await;
        Self { context, needs, test_store, test_database }
    }

    /// The context itself, to be given to a service.
    pub fn context(&self) -> &ServiceContext {
        &self.context
    }

    pub fn test_store(&self) -> &TestStore {
        &self.test_store
    }

    pub fn test_database(&self) -> &TestDatabase {
        &self.test_database
    }

    /// Another node over the same store and database, with a name, connections to the database and tasks of its own.
    /// Whoever asks for it tells its tasks to stop.
    pub async fn another_node(&self) -> ServiceContext {
        node_over(self.needs, &self.test_store, &self.test_database).await
    }
}

impl Deref for TestContext {
    type Target = ServiceContext;

    fn deref(&self) -> &ServiceContext {
        &self.context
    }
}

impl Drop for TestContext {
    fn drop(&mut self) {
        self.context.tasks.stop_token().cancel();
    }
}

async fn node_over(needs: Needs, test_store: &TestStore, test_database: &TestDatabase) -> ServiceContext {
    let database = database(needs, test_database).await;
    ServiceContext::new(test_store.store().clone(), test_store.layout(), database, NodeName::random())
}

fn catalog(needs: Needs, layout: Layout) -> Catalog {
    let parse = |(name, text): &(&str, &str)| {
        Schema::parse(name, text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
    };
    let schemas = [OWN_SCHEMA].iter().chain(needs.schemas).map(parse).collect();
    Catalog::new(schemas, layout).unwrap_or_else(|clash| panic!("{clash}"))
}

/// With a test's patience, not a service's: a busy machine is no reason to fail.
async fn database(needs: Needs, test_database: &TestDatabase) -> Database {
    let url = test_database.url();
    let address = url.parse().unwrap_or_else(|error| panic!("{url}: {error}"));
    let sets: Vec<Migrations> = [hob_web::MIGRATIONS].iter().chain(needs.migrations).copied().collect();
    let options = Options { connect_within: LIMIT, answer_within: LIMIT, ..Options::default() };
    let database = Database::open_with(&address, &sets, options).await;
    database.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Makes one test per store of each function: the embedded store with SQLite, in both layouts; redis-server
/// with PostgreSQL; a Cluster with PostgreSQL. First of all stands what the service [needs](Needs).
///
/// ```
/// use hob_testkit::Needs;
///
/// const NEEDS: Needs = Needs { schemas: &[], migrations: &[] };
///
/// hob_testkit::every_service! {
///     NEEDS;
///
///     async fn hot_state_and_records_answer(context: TestContext) {
///         context.store.ping().await.unwrap();
///         context.database.ping().await.unwrap();
///     }
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! every_service {
    ($needs:expr; $($(#[$about:meta])* async fn $name:ident($context:ident: TestContext) $body:block)*) => {$(
        $(#[$about])*
        mod $name {
            #[allow(unused_imports, reason = "a test may need nothing else")]
            use super::*;

            async fn in_any_context($context: $crate::TestContext) $body

            #[test]
            fn embedded_plain() {
                $crate::run(async {
                    in_any_context($crate::TestContext::embedded($needs, $crate::Layout::Plain).await).await
                });
            }

            #[test]
            fn embedded_tagged() {
                $crate::run(async {
                    in_any_context($crate::TestContext::embedded($needs, $crate::Layout::Tagged).await).await
                });
            }

            #[test]
            fn on_redis() {
                $crate::run(async { in_any_context($crate::TestContext::redis($needs).await).await });
            }

            #[test]
            fn on_cluster() {
                $crate::run(async { in_any_context($crate::TestContext::cluster($needs).await).await });
            }
        }
    )*};
}
