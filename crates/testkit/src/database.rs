//! One test on every database: `every_database!` turns an `async fn(database: TestDatabase)`
//! into one test per database.

use tempfile::TempDir;

use crate::postgres::Postgres;

/// An empty database of one's own.
#[derive(Debug)]
pub enum TestDatabase {
    /// A file in a temporary folder.
    Sqlite(TempDir),
    Postgres(Box<Postgres>),
}

impl TestDatabase {
    pub fn sqlite() -> Self {
        Self::Sqlite(TempDir::new().unwrap_or_else(|error| panic!("cannot make a folder: {error}")))
    }

    pub fn postgres() -> Self {
        Self::Postgres(Box::new(Postgres::start()))
    }

    /// `sqlite:PATH` or `postgres://…`.
    pub fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join("records.db").display()),
            Self::Postgres(server) => server.url(),
        }
    }
}

/// Makes one test per database of each function: a SQLite file, a PostgreSQL server.
///
/// ```
/// hob_testkit::every_database! {
///     async fn a_database_has_an_address(database: TestDatabase) {
///         assert!(database.url().contains(':'));
///     }
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! every_database {
    ($($(#[$about:meta])* async fn $name:ident($database:ident: TestDatabase) $body:block)*) => {$(
        $(#[$about])*
        mod $name {
            #[allow(unused_imports, reason = "a test may need nothing else")]
            use super::*;

            async fn on_any_database($database: $crate::TestDatabase) $body

            #[test]
            fn on_sqlite() {
                $crate::run(async { on_any_database($crate::TestDatabase::sqlite()).await });
            }

            #[test]
            fn on_postgres() {
                $crate::run(async { on_any_database($crate::TestDatabase::postgres()).await });
            }
        }
    )*};
}
