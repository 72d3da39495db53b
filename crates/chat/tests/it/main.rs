//! The chat against its contract (C1–C20), on every store.

mod browser;
mod client;
mod conversations;
mod foreign;
mod harness;
mod http;
mod messages;
mod nodes;
mod pages;
mod presence;
mod proxy;
mod revocation;
mod rewind;
mod sdk;
mod slow;
mod socket;
mod tokens;
mod typing;
mod unread;
mod wrong_types;
