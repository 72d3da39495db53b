//! The kit's servers start, answer, can be hurt, recover, and never outlive the test.

mod browser;
mod clients;
mod cluster;
mod declared;
mod leftovers;
mod port;
mod postgres;
mod redis_server;
mod sentinel;
mod wait;
