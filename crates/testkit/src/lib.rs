//! Real servers for tests, each in a temporary folder and on its own ports: Redis, a Redis Cluster, a Sentinel set,
//! PostgreSQL, a browser, an HTTP server. They start quickly, can be stopped, killed, frozen and disconnected, and end with the test
//! process, even if it is killed.
//!
//! Quick operations, such as starting or killing a server, block the thread. Longer ones are `async`, so that the code
//! under test continues.
//!
//! Tests that use a browser are in modules named `browser`, slow ones in modules named `slow`: `cargo xtask test --quick`
//! skips modules of these names.
//!
//! A test whose server is not installed panics with a message that names the missing package. No test is skipped.

mod browser;
mod budget;
mod clients;
mod database;
mod fuzz;
mod http_server;
mod postgres;
mod process;
mod redis_server;
mod runtime;
mod tls;
mod wait;

pub use browser::readable::assert_readable;
pub use browser::{
    Browser, ColorScheme, JavaScript, Window, console_errors, page, reduce_motion, screenshot, set_view,
};
pub use budget::budget;
pub use clients::{node_modules, python, run_schemathesis};
pub use database::TestDatabase;
pub use fantoccini;
pub use fuzz::fuzz;
pub use http_server::{HttpServer, Reply};
pub use postgres::Postgres;
pub use process::Process;
pub use process::port::Port;
pub use redis_server::cluster::RedisCluster;
pub use redis_server::sentinel::SentinelSet;
pub use redis_server::{Connections, RedisOptions, RedisServer};
pub use runtime::{KillableNode, run};
pub use tls::Identity;
pub use wait::{Condition, LIMIT, repeat_until_ok, wait_for, wait_until};
