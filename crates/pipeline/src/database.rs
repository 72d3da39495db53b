//! Every query on Hob's database, by table.
//!
//! The functions here take typed values and decide nothing. A transaction that decides something belongs to a domain
//! module, which calls these functions with `&tx`.

pub(crate) mod calls;
pub(crate) mod claims;
pub(crate) mod item_counts;
pub(crate) mod items;
pub(crate) mod outputs;
pub(crate) mod past;
pub(crate) mod plans;
pub(crate) mod quotas;
pub(crate) mod results;
pub(crate) mod runs;
pub(crate) mod throughput;

type Result<T, E = hob_database::Error> = std::result::Result<T, E>;
