//! The connection to the store, publish and subscribe, health, and the shared atomic primitives with their Lua.
//!
//! A [`Store`] is one cheap-clone handle to the embedded store, a Redis or Valkey server, a Sentinel set or a
//! Cluster. On each of them:
//!
//! - Every call has a deadline. Lost connections are reopened after 50 ms × attempt, at most 2 s, with jitter. Until
//!   then calls wait within their deadline, and for at most 250 ms once an attempt to reconnect has failed.
//! - A call that may have been executed is never repeated. [`Error::Unavailable`] and an error reply mean that it was
//!   not executed; [`Error::Interrupted`] means that the outcome is unknown.
//! - A [`Script`] is sent by its hash, and with its source if the server does not have it, also inside a
//!   [batch](Store::batch).
//! - A server that refuses calls, such as one without memory, makes the systems degraded that call it
//!   ([`Health::degraded`]), until it accepts writes again.
//! - A [`Subscription`] that may have missed messages receives [`BusEvent::Missed`].
//! - Scripts take the time from the store and never let it run backwards; a test may drive it ([`Clock`]).
//!
//! The embedded store is compiled with the feature `embedded`, which is on by default. A program that uses only servers
//! can disable it, and does not need Lua then.
//!
//! The primitives take their keys from the caller: this crate never builds a key. The keys of one call share a slot.
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
mod bus;
mod clock;
mod connection;
pub mod epoch;
mod error;
mod evictions;
mod health;
mod key;
pub mod limit;
pub mod log;
pub mod members;
pub mod repair;
mod reply;
mod script;
mod store;

pub use address::{Access, Address, Host, Tls};
pub use bus::{Bus, BusEvent, ChannelFilter, Listener, Subscription};
pub use clock::{CLOCK, Clock};
pub use error::{Error, Result};
pub use evictions::Evictions;
pub use health::{BusyMinute, Connection, Degradation, Fault, Health, Operations, Server, State, Summary};
pub use hob_commands::key_slot;
pub use hob_units::Secret;
pub use key::Key;
pub use reply::{Reply, Text};
pub use script::{Call, Script};
pub use store::{DEFAULT_DEADLINE, Store};

/// Re-exported, so that users of this crate do not depend on the `redis` crate.
pub use redis::{Cmd, FromRedisValue, ToRedisArgs, Value, cmd};
