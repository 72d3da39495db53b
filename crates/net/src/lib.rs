//! This crate has four parts: an HTTP/1.1 and HTTP/2 server with TLS and connection limits; the address of a client
//! behind trusted proxies; a policy for outbound connections; and a small HTTP client that follows it.
//!
//! A [`Server`] limits its concurrent connections with permits. A connection holds its permit until it is closed, even
//! after an upgrade. The server closes a connection if the client does not send a request, sends a request head too
//! slowly, is idle, or does not read. When the server stops, it closes the remaining connections after `drain_timeout`.
//!
//! [`Outbound`] decides which addresses Hob may connect to when an API user chooses the host.
//!
//! The server and the HTTP client need the feature `hyper`. Addresses do not need it:
//!
//! ```
//! use hob_net::{InternalAddresses, Outbound, OutboundPolicy, TrustedProxies};
//! use http::HeaderMap;
//!
//! let allow = vec!["10.1.0.0/16".parse()?];
//! let outbound = Outbound::new(OutboundPolicy { internal: InternalAddresses::Denied, allow });
//! assert!(outbound.check("10.1.2.3".parse()?).is_ok());
//! assert!(outbound.check("169.254.169.254".parse()?).is_err(), "credentials of a cloud");
//!
//! let proxies = TrustedProxies { networks: vec!["192.0.2.0/24".parse()?], ..TrustedProxies::default() };
//! let headers: HeaderMap = [("x-forwarded-for".parse()?, "203.0.113.7".parse()?)].into_iter().collect();
//! let client = proxies.client_address("192.0.2.1:4711".parse()?, &headers);
//! assert_eq!(client.address.to_string(), "203.0.113.7");
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "hyper")]
mod activity;
#[cfg(feature = "hyper")]
mod connection;
#[cfg(feature = "hyper")]
mod http_client;
mod outbound;
#[cfg(feature = "hyper")]
mod server;
#[cfg(feature = "hyper")]
mod tls;
mod trusted_proxies;

#[cfg(feature = "hyper")]
pub use activity::ResponseBody;
#[cfg(feature = "hyper")]
pub use connection::{DirectWrite, SocketWriter};
#[cfg(feature = "hyper")]
pub use http_client::{HttpClient, HttpClientError, HttpResponse};
pub use outbound::{
    AddressClass, AddressDenied, InternalAddresses, Network, NetworkError, Outbound, OutboundError,
    OutboundPolicy,
};
#[cfg(feature = "hyper")]
pub use server::{Client, Handler, Server, ServerLimits};
#[cfg(feature = "hyper")]
pub use tls::{CertificateFiles, ServerTls, TlsError, client_tls};
pub use trusted_proxies::{ClientAddress, ForwardingHeader, TrustedProxies};
