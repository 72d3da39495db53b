//! The chat's keys in Redis: presence, typing, unread counters, and the caches of messages and participants.

pub(crate) mod participants;
pub(crate) mod presence;
pub(crate) mod recent;
pub(crate) mod typing;
pub(crate) mod unread;
