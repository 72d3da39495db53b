//! The web, seen from outside: over the wire, in a real house.

mod garden;
mod routes;
