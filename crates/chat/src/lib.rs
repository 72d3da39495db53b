//! Chat: presence, typing, unread counts and messages, on many nodes.
//!
//! Messages, members and read pointers are in the database before they are acknowledged. Presence, typing, recent
//! messages and unread counters are in Redis, and are rebuilt if Redis loses them. Clients use the Centrifugo
//! protocol over WebSocket, or HTTP.

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
mod namespace;
mod pages;
mod proxy;
mod routes;
mod session;
mod store;
mod webhook;

pub use chat::Chat;
pub use chat::conversations::TypingState;
pub use chat::reading::Mentions;
pub use config::{AbsenceMessages, Config};
pub use conversation::attachment::Attachment;
pub use conversation::block::BlockAction;
pub use conversation::erasure::{ErasedMessages, Erasure};
pub use conversation::event::{Event, EventPayload, Timestamp};
pub use conversation::listed::{ListedMessage, MessagePage, Thread};
pub use conversation::member::{Member, Receipt, ReceiptKind};
pub use conversation::message::{Message, MessageRange, NewMessage, SentMessage};
pub use conversation::outbox::{COUNTS, MESSAGE_CREATED, MessageCreated};
pub use conversation::reaction::{Reaction, ReactionAction, ReactionCount};
pub use conversation::search::SearchQuery;
pub use conversation::{Conversation, ConversationSummary, NewConversation};
pub use database::json_list::JsonList;
pub use error::{Answer, Error, Refusal};
pub use hub::channel_name::ChannelName;
pub use hub::node::{NodeInfo, NodeLoad};
pub use namespace::Namespace;
pub use proxy::Proxy;
#[doc(hidden)]
pub use session::protocol::{FrameFormat, parse_frame};
pub use session::token;
pub use store::presence::{Presence, PresenceChange};
pub use store::unread::UnreadCount;
pub use webhook::{NoticeClass, Webhook, WebhookUrl};

/// The database tables of the chat.
pub const MIGRATIONS: hob_database::Migrations = hob_database::migrations!("chat": "0001_chat", "0002_token_revocation", "0003_visibility", "0004_webhooks", "0005_reactions", "0006_replies_mentions_attachments", "0007_search", "0008_expiry", "0009_erasure");
