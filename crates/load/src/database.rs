//! Every query of load. The functions take the parameters of a query and return rows; transactions that decide
//! something are in [`crate::run::lifecycle`] and [`crate::plan::catalog`].

pub(crate) mod past;
pub(crate) mod plans;
pub(crate) mod runners;
pub(crate) mod runs;
pub(crate) mod seconds;

use hob_database::{Database, UnixMs};

type Result<T, E = hob_database::Error> = std::result::Result<T, E>;

/// The time by the clock of the database.
pub(crate) async fn now(database: &Database) -> Result<UnixMs> {
    database.read(|snapshot| async move { Ok::<_, hob_database::Error>(snapshot.now()) }).await
}
