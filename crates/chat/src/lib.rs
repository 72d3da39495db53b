//! Chat: presence, typing, unread counts and messages, on many nodes.
//!
//! Messages, members and read pointers are in the database before they are acknowledged. Who is online, who types, the
//! newest messages and the unread counters are the store, which is rebuilt when it is lost. Clients speak the
//! Centrifugo protocol over WebSocket, or HTTP.

mod block;
mod bucket;
mod card;
mod changes;
mod channel;
mod chat;
mod config;
mod conversation;
mod demo;
mod error;
mod event;
mod hub;
pub mod keys;
mod live;
mod member;
mod message;
mod metrics;
mod node;
mod pages;
mod participants;
mod people;
mod presence;
mod protocol;
mod recent;
mod relay;
mod routes;
mod rpc;
mod scrub;
mod session;
mod socket;
mod talk;
pub mod token;
mod typing;
mod unread;

pub use block::Wish;
pub use changes::{COUNTS, MESSAGE_CREATED, MessageCreated};
pub use channel::Channel;
pub use chat::Chat;
pub use config::Config;
pub use conversation::{Conversation, Listed, NewConversation};
pub use error::{Answer, Error, Refusal};
pub use event::{At, Event, Happening};
pub use member::{Member, Progress, Receipt};
pub use message::{Message, NewMessage, Span};
pub use node::{Load, NodeLoad};
pub use presence::{Change, Presence};
pub use talk::Typist;
pub use unread::Count;

/// The tables of the chat.
pub const MIGRATIONS: hob_database::Migrations = hob_database::migrations!("chat": "0001_chat");
