//! Channels of any name in configured namespaces, as in Centrifugo: `news:sport`, `$private:a`, `user#42`.
//!
//! Unlike conversations, they are not in the database. Publications reach subscribers through Redis, which numbers them and
//! keeps the newest ones if the namespace has a history. A client that reconnects recovers from that history; if Redis has lost
//! it, the client finds a new epoch.

mod channel;
mod config;
mod hub;
mod publication;
mod tasks;

pub use config::Namespace;
pub(crate) use config::{Access, check, find, is_private};
pub(crate) use hub::{NamespaceHub, NewSubscription, Stream, SubscribeError};
pub(crate) use publication::{Payload, PublishFailure};
