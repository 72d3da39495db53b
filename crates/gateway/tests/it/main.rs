//! The gateway's contract G1–G19 on every store, read with plain commands.

mod api;
mod browser;
mod connections;
mod counts;
mod endpoints;
mod evasion;
mod foreign;
mod fuzz;
mod history;
mod kit;
mod limits;
mod loss;
mod memory;
mod oracle;
mod prometheus;
mod proxy;
mod recorder;
mod smuggling;
mod tls;
mod upstream;
