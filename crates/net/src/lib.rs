//! An HTTP/1.1 and HTTP/2 server with limits, TLS from files, and the addresses that may be connected to.
//!
//! A [`Server`] limits its concurrent connections with permits. A connection holds its permit until it is closed, also
//! after an upgrade. The server closes it when the client sends no request, sends a request head too slowly, is idle, or
//! does not read; and when the server stops and the time for draining is over.
//!
//! [`Outbound`] says which addresses may be connected to when a user of the API chooses the host.

mod activity;
mod connection;
mod outbound;
mod server;
mod tls;

pub use activity::ResponseBody;
pub use outbound::{
    AddressClass, AddressDenied, Network, NetworkError, Outbound, OutboundError, OutboundPolicy,
    PrivateAddresses,
};
pub use server::{Client, Handler, Server, ServerLimits};
pub use tls::{CertificateFiles, ServerTls, TlsError, client_tls};
