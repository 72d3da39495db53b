//! The chat against its contract (C1–C20), in every kind of house.

mod client;
mod conversations;
mod live;
mod messages;
mod nodes;
mod presence;
mod socket;
mod unread;
mod world;
