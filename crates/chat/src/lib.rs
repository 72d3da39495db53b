//! Chat: presence, typing, unread counts and messages, on many nodes.
//!
//! Messages, members and read pointers are in the database before they are acknowledged. Who is online, who types, the
//! newest messages and the unread counters are the store, which is rebuilt when it is lost. Clients speak the
//! Centrifugo protocol over WebSocket, or HTTP.

mod card;
mod chat;
mod config;
mod conversation;
mod database;
mod demo;
mod error;
mod hub;
pub mod keys;
mod metrics;
mod pages;
mod routes;
mod session;
mod store;

pub use chat::Chat;
pub use chat::conversations::Typist;
pub use config::Config;
pub use conversation::block::Wish;
pub use conversation::event::{At, Event, Happening};
pub use conversation::member::{Member, Progress, Receipt};
pub use conversation::message::{Message, NewMessage, Span};
pub use conversation::outbox::{COUNTS, MESSAGE_CREATED, MessageCreated};
pub use conversation::{Conversation, Listed, NewConversation};
pub use error::{Answer, Error, Refusal};
pub use hub::channel_name::Channel;
pub use hub::node::{Load, NodeLoad};
pub use session::token;
pub use store::presence::{Change, Presence};
pub use store::unread::Count;

/// The tables of the chat.
pub const MIGRATIONS: hob_database::Migrations = hob_database::migrations!("chat": "0001_chat");
