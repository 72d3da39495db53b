//! Live updates: events to many browsers at once, and the word that a page has something new to show.

mod changes;
mod client;
mod feed;
mod hint;
mod outbox;
mod routes;

pub use changes::Changes;
pub use client::Client;
pub use feed::Feed;
pub use hint::Hint;
pub(crate) use routes::routes;
