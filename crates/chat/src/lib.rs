//! Chat: presence, typing, unread counts and messages, on many nodes.
