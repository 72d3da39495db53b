//! An in-process store that speaks a documented subset of Redis: strings, hashes, lists, sets, sorted sets, streams,
//! expiry, transactions, pub/sub and Lua scripts, with Redis 7's replies to the byte.
//!
//! It runs scripts and commands that are written for Redis where Redis is not installed. It has no persistence and
//! serves one machine: it is not a replacement for Redis, and every command outside its subset returns an error.
//!
//! It has three interfaces: [`Engine::connection`] for redis-rs, [`Engine::subscriber`] for pub/sub in the same
//! process, and [`Listener`] for any other client.
//!
//! ```
//! use hob_engine::{Engine, Reply};
//!
//! let engine = Engine::default();
//! assert_eq!(engine.execute(&[b"INCR", b"visits"]), Reply::Int(1));
//! assert_eq!(engine.execute(&[b"LPUSH", b"visits", b"x"]), Reply::Error(
//!     "WRONGTYPE Operation against a key holding the wrong kind of value".into()));
//! ```

mod blocked;
mod command;
mod config;
mod dispatch;
mod engine;
mod glob;
mod guard;
mod hub;
mod interface;
mod monitor;
mod number;
mod reply;
mod script;
mod session;
mod store;

pub use command::documentation;
pub use config::{Clock, Config, DrivenClock, SubscriberLimits};
pub use engine::Engine;
pub use glob::matches as glob_matches;
pub use guard::{Changes, Guard, Strict};
pub use interface::{Connection, Event, Listener, ProtocolError, RequestParser, Subscriber};
pub use reply::{Failure, Reply};
