//! A house for a service's tests: hot state, records, background tasks. `every_house!` turns an
//! `async fn(house: TestHouse)` into one test per combination that Hob is run with.

use std::ops::Deref;

use hob_house::{House, NodeName};
use hob_records::{Migrations, Options, Records};
use hob_schema::{Catalog, Layout, Schema};

use crate::database::Database;
use crate::stores::Store;
use crate::wait::LIMIT;

/// What a service needs of its house: the keys that it may write, the tables that it has. The house's own are always
/// there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// Names and texts of schema files: `("schemas/uptime.toml", include_str!("../../../schemas/uptime.toml"))`.
    pub schemas: &'static [(&'static str, &'static str)],
    pub migrations: &'static [Migrations],
}

/// A house of one's own, and the means to hurt its store and its database. It derefs to the [`House`], and its tasks
/// are told to stop when it is dropped.
#[derive(Debug)]
pub struct TestHouse {
    house: House,
    needs: Needs,
    store: Store,
    database: Database,
}

const OWN_SCHEMA: (&str, &str) = ("schemas/hob.toml", include_str!("../../../schemas/hob.toml"));

impl TestHouse {
    /// The embedded store, strict, and a SQLite file.
    pub async fn embedded(needs: Needs, layout: Layout) -> Self {
        Self::over(needs, Store::embedded_for(catalog(needs, layout)), Database::sqlite()).await
    }

    /// A redis-server and PostgreSQL.
    pub async fn redis(needs: Needs) -> Self {
        Self::over(needs, Store::redis().await, Database::postgres()).await
    }

    /// A Redis Cluster and PostgreSQL.
    pub async fn cluster(needs: Needs) -> Self {
        Self::over(needs, Store::cluster().await, Database::postgres()).await
    }

    /// Any store with any database.
    pub async fn over(needs: Needs, store: Store, database: Database) -> Self {
        let house = node_over(needs, &store, &database).await;
        Self { house, needs, store, database }
    }

    /// The house itself, to be given to a service.
    pub fn house(&self) -> &House {
        &self.house
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Another node over the same hot state and records, with a name, connections to the records and tasks of its own.
    /// Whoever asks for it tells its tasks to stop.
    pub async fn another_node(&self) -> House {
        node_over(self.needs, &self.store, &self.database).await
    }
}

impl Deref for TestHouse {
    type Target = House;

    fn deref(&self) -> &House {
        &self.house
    }
}

impl Drop for TestHouse {
    fn drop(&mut self) {
        self.house.tasks.stop_token().cancel();
    }
}

async fn node_over(needs: Needs, store: &Store, database: &Database) -> House {
    let records = records(needs, database).await;
    House::new(store.hot().clone(), store.layout(), records, NodeName::random())
}

fn catalog(needs: Needs, layout: Layout) -> Catalog {
    let parse = |(name, text): &(&str, &str)| {
        Schema::parse(name, text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
    };
    let schemas = [OWN_SCHEMA].iter().chain(needs.schemas).map(parse).collect();
    Catalog::new(schemas, layout).unwrap_or_else(|clash| panic!("{clash}"))
}

/// With a test's patience, not a service's: a busy machine is no reason to fail.
async fn records(needs: Needs, database: &Database) -> Records {
    let url = database.url();
    let address = url.parse().unwrap_or_else(|error| panic!("{url}: {error}"));
    let sets: Vec<Migrations> = [hob_web::MIGRATIONS].iter().chain(needs.migrations).copied().collect();
    let options = Options { connect_within: LIMIT, answer_within: LIMIT, ..Options::default() };
    let records = Records::open_with(&address, &sets, options).await;
    records.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Makes one test per kind of house of each function: the embedded store with SQLite, in both layouts; redis-server
/// with PostgreSQL; a Cluster with PostgreSQL. First of all stands what the service [needs](Needs).
///
/// ```
/// use hob_testkit::Needs;
///
/// const NEEDS: Needs = Needs { schemas: &[], migrations: &[] };
///
/// hob_testkit::every_house! {
///     NEEDS;
///
///     async fn hot_state_and_records_answer(house: TestHouse) {
///         house.hot.ping().await.unwrap();
///         house.records.ping().await.unwrap();
///     }
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! every_house {
    ($needs:expr; $($(#[$about:meta])* async fn $name:ident($house:ident: TestHouse) $body:block)*) => {$(
        $(#[$about])*
        mod $name {
            #[allow(unused_imports, reason = "a test may need nothing else")]
            use super::*;

            async fn in_any_house($house: $crate::TestHouse) $body

            #[test]
            fn embedded_plain() {
                $crate::run(async {
                    in_any_house($crate::TestHouse::embedded($needs, $crate::Layout::Plain).await).await
                });
            }

            #[test]
            fn embedded_tagged() {
                $crate::run(async {
                    in_any_house($crate::TestHouse::embedded($needs, $crate::Layout::Tagged).await).await
                });
            }

            #[test]
            fn on_redis() {
                $crate::run(async { in_any_house($crate::TestHouse::redis($needs).await).await });
            }

            #[test]
            fn on_cluster() {
                $crate::run(async { in_any_house($crate::TestHouse::cluster($needs).await).await });
            }
        }
    )*};
}
