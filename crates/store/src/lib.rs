//! The connection to the store, the bus, health, and the shared atomic primitives with their Lua.
//!
//! A [`Store`] is one cheap-clone handle to the embedded store, a Redis or Valkey server, a Sentinel set or a
//! Cluster. What it promises on each of them:
//!
//! - Every call has a deadline. Connections come back by themselves, for ever, after 50 ms × attempt up to
//!   2 s, jittered. While there is none, calls wait within their deadline.
//! - A call that may have been carried out is never repeated. [`Error::Unavailable`] and a refusal mean that it
//!   was not; [`Error::Interrupted`] that nobody knows.
//! - A [`Script`] is sent by name, and with its source where a server does not know it, also inside a
//!   [batch](Store::batch).
//! - A [`Subscription`] that may have missed messages is told so.
//! - Scripts take the time from the store and never let it run backwards; a test may drive it ([`Clock`]).
//!
//! The primitives take their keys from the caller: this crate never builds one. Keys of one call share a slot.
//!
//! ```
//! use std::time::Duration;
//! use hob_store::limit::{Algorithm, Decision, Rule};
//! use hob_store::{Address, Store, Script, cmd};
//!
//! static GREET: Script = Script::new("return 'hello ' .. redis.call('GET', KEYS[1])");
//!
//! # #[tokio::main]
//! # async fn main() -> hob_store::Result<()> {
//! let store = Store::connect(&"embedded://".parse::<Address>()?).await?.with_deadline(Duration::from_secs(1));
//! store.run::<()>(cmd("SET").arg("name").arg("world")).await?;
//! assert_eq!(store.run::<String>(GREET.on(&["name"])).await?, "hello world");
//!
//! let rule = Rule::new(Algorithm::Gcra, vec!["20/1s".parse()?, "500/1m".parse()?])?;
//! match rule.take(&store, &["limit:user:123"], 1).await? {
//!     Decision::Allowed(quota) => assert_eq!((quota.limit, quota.remaining), (20, 19)),
//!     Decision::Denied { retry_after, .. } => println!("come back in {retry_after:?}"),
//! }
//! # Ok(())
//! # }
//! ```

mod address;
mod backoff;
mod bus;
mod clock;
mod cluster;
mod dial;
mod embedded;
pub mod epoch;
mod error;
mod health;
mod key;
mod latency;
pub mod limit;
mod link;
pub mod log;
mod mailbox;
pub mod members;
pub mod mend;
mod meter;
mod peak;
mod reply;
mod script;
mod sentinel;
mod slot;
mod slot_map;
mod store;
mod survey;
mod switchboard;

pub use address::{Access, Address, Host, Secret, Tls};
pub use bus::{Bus, BusEvent, Subscription, Topic};
pub use clock::{CLOCK, Clock};
pub use error::{Error, Result};
pub use health::{BusyMinute, Connection, Health, Operations, Server, State, Summary};
pub use hob_engine::key_slot;
pub use key::Key;
pub use reply::Reply;
pub use script::{Call, Script};
pub use store::{DEFAULT_DEADLINE, Store};

/// What replies are read with, so that users need no dependency on the `redis` crate of their own.
pub use redis::{Cmd, FromRedisValue, ToRedisArgs, Value, cmd};
