//! The chat's keys in Redis: presence, typing, unread counters, the caches of messages and participants, and the channels of
//! namespaces.

pub(crate) mod history;
pub(crate) mod participants;
pub(crate) mod presence;
pub(crate) mod recent;
pub(crate) mod subscribers;
pub(crate) mod typing;
pub(crate) mod unread;
