//! Tests of the web server over HTTP, with a real store and database.

mod access;
mod browser;
mod database_down;
mod garden;
mod live;
mod log;
mod many_clients;
mod oidc;
mod protected;
mod proxies;
mod revocation;
mod routes;
mod server;
mod service;
mod slow;
mod throttle;
mod tls;
