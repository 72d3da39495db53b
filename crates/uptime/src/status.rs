//! Status pages: what customers see of the monitors.
//!
//! The page `default` shows the published monitors, with settings from `hob.toml`. Other [pages](page) are in the database;
//! each has its slug, its monitors and perhaps a [password]. Readers of a page can [subscribe](subscriber) by e-mail. An
//! [event] in the outbox, about an incident or planned maintenance, becomes one delivery per subscriber; the sender of alerts
//! sends them.

pub(crate) mod attempts;
mod consumer;
pub mod event;
pub(crate) mod language;
pub(crate) mod mail;
pub mod page;
pub(crate) mod password;
pub mod subscriber;
mod words;

pub(crate) use consumer::start;
pub use event::{StatusChange, StatusEvent};
pub(crate) use language::{Language, Zone};
pub use page::{Slug, StatusPage, StatusPageSpec};
