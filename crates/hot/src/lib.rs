//! The connection to hot state, the bus, health, and the shared atomic primitives with their Lua.

mod address;
mod backoff;
mod bus;
mod clock;
mod cluster;
pub mod counter;
mod dial;
mod embedded;
pub mod epoch;
mod error;
mod health;
mod hot;
mod latency;
pub mod lease;
pub mod limit;
mod link;
pub mod log;
mod mailbox;
pub mod members;
mod meter;
mod reply;
mod script;
mod sentinel;
mod slot;
mod slot_map;
mod switchboard;

pub use address::{Access, Address, Host, Secret, Tls};
pub use bus::{Bus, BusEvent, Subscription, Topic};
pub use clock::{CLOCK, Clock};
pub use error::{Error, Result};
pub use health::{Connection, Health, Operations, Server, State, Summary};
pub use hob_engine::key_slot;
pub use hot::{DEFAULT_DEADLINE, Hot};
pub use reply::Reply;
pub use script::{Call, Script};

/// What replies are read with, so that users need no dependency on the `redis` crate of their own.
pub use redis::{Cmd, FromRedisValue, ToRedisArgs, Value, cmd};
