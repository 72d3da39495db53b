//! The interfaces: redis-rs handles and subscribers within the process, and a listener for all other clients.

mod client_session;
mod connection;
mod encode;
mod listener;
mod outgoing;
mod request;
mod subscriber;

pub use connection::Connection;
pub use listener::Listener;
pub use request::{ProtocolError, RequestParser};
pub use subscriber::{Event, Subscriber};
