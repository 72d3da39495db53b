//! The web, seen from outside: over the wire, with a real store and database.

mod access;
mod away;
mod browser;
mod crowd;
mod door;
mod garden;
mod live;
mod log;
mod routes;
mod server;
mod service;
mod slow;
mod tls;
