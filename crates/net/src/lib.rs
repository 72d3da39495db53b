//! This crate has four parts: an HTTP/1.1 and HTTP/2 server with TLS and connection limits; the address of a client
//! behind trusted proxies; a policy for outbound connections; and a small HTTP client that follows it.
//!
//! A [`Server`] limits its concurrent connections with permits. A connection holds its permit until it is closed, even
//! after an upgrade. The server closes a connection if the client does not send a request, sends a request head too
//! slowly, is idle, or does not read. When the server stops, it closes the remaining connections after `drain_timeout`.
//!
//! [`Outbound`] decides which addresses Hob may connect to when an API user chooses the host.

mod activity;
mod connection;
mod http_client;
mod outbound;
mod server;
mod tls;
mod trusted_proxies;

pub use activity::ResponseBody;
pub use connection::{DirectWrite, SocketWriter};
pub use http_client::{HttpClient, HttpClientError, HttpResponse};
pub use outbound::{
    AddressClass, AddressDenied, InternalAddresses, Network, NetworkError, Outbound, OutboundError,
    OutboundPolicy,
};
pub use server::{Client, Handler, Server, ServerLimits};
pub use tls::{CertificateFiles, ServerTls, TlsError, client_tls};
pub use trusted_proxies::{ClientAddress, ForwardingHeader, TrustedProxies};
