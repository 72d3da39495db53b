//! Live updates: server-sent events for open pages and other clients.

mod changes;
mod client;
mod feed;
mod listener;
mod outbox;
mod routes;

pub use changes::Changes;
pub use client::Client;
pub use feed::Feed;
pub use listener::ChangeListener;
pub(crate) use routes::routes;
