//! The ways in: redis-rs handles and subscriptions within the process, a listener for everybody else.

mod client_session;
mod connection;
mod encode;
mod listener;
mod request;
mod subscriber;

pub use connection::Connection;
pub use listener::Listener;
pub use request::{ProtocolError, RequestParser};
pub use subscriber::{Event, Subscriber};
