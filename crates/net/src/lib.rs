//! One server for HTTP/1.1 and 2, with all of its guards, and TLS from files.
//!
//! A [`Server`] accepts as many connections at a time as it has permits. A connection holds its permit until it is
//! closed, also after an upgrade. It is closed when it sends no request, sends a head too slowly, is idle, or does not
//! read what it is sent; and when the server has stopped and its requests have had their time.

mod activity;
mod connection;
mod server;
mod tls;

pub use activity::Sending;
pub use server::{Client, Handler, Limits, Server};
pub use tls::{CertificateFiles, ServerTls, TlsError, client_tls};
