//! Chat: presence, typing, unread counts and messages, on many nodes.

mod block;
mod changes;
mod config;
mod conversation;
mod error;
mod event;
pub mod keys;
mod member;
mod message;
mod participants;
mod presence;
mod recent;
mod typing;
mod unread;

pub use config::Config;
pub use conversation::{Conversation, Listed, NewConversation};
pub use error::{Answer, Error, Refusal};
pub use event::{At, Event, Happening};
pub use member::{Member, Progress, Receipt};
pub use message::{Message, NewMessage, Span};
pub use presence::{Change, Presence};
pub use unread::Count;

/// The tables of the chat.
pub const MIGRATIONS: hob_records::Migrations = hob_records::migrations!("chat": "0001_chat");
