//! The web, seen from outside: over the wire, in a real house.

mod access;
mod browser;
mod door;
mod garden;
mod live;
mod routes;
mod server;
