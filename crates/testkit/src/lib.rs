//! Real servers for tests, each in a temporary folder and on ports of its own: Redis, a Redis Cluster, a
//! Sentinel set, PostgreSQL, a browser. They start in a blink, can be hurt in every way that servers are
//! hurt in real life, and are gone when the test is, however it ends.
//!
//! With the feature `app` also a service context, and a whole app that serves its routes on a free port.
//!
//! What takes an instant, such as starting or killing a server, is a plain function that blocks the thread.
//! What takes longer is `async`, so that the code under test goes on meanwhile.
//!
//! Suites that drive a browser live in modules named `browser`, long ones in modules named `slow`: by these
//! names `cargo xtask test --quick` leaves them out.
//!
//! A test that cannot have its server panics with one line that says what to install. Nothing is skipped.

mod browser;
mod budget;
mod clients;
mod fixtures;
mod fuzz;
mod postgres;
mod process;
mod redis_server;
mod tls;
mod wait;

pub use browser::readable::assert_readable;
pub use browser::{Browser, Scheme, Scripts, Window, screenshot};
pub use budget::budget;
pub use clients::{examine_api, node_modules, python};
pub use fantoccini;
#[cfg(feature = "app")]
pub use fixtures::app::{Answer, TestApp};
#[cfg(feature = "app")]
pub use fixtures::context::{Needs, TestContext};
pub use fixtures::database::TestDatabase;
pub use fixtures::declared::declared;
pub use fixtures::store::{Server, TestStore, run};
pub use fuzz::fuzz;
pub use hob_schema::Layout;
pub use postgres::Postgres;
pub use redis_server::cluster::RedisCluster;
pub use redis_server::sentinel::SentinelSet;
pub use redis_server::{Connections, RedisOptions, RedisServer};
pub use wait::{Condition, LIMIT, until, wait_for};
