//! The servers start, respond, fail on request, recover, and never outlive the test process.

mod browser;
mod clients;
mod cluster;
mod leftovers;
mod port;
mod postgres;
mod redis_server;
mod runtime;
mod sentinel;
mod wait;
