//! The console in a real browser. The tests write screenshots to `target/screenshots`, for review by a person.

#[path = "../../examples/gallery.rs"]
mod gallery;
mod layout;
mod live;
mod room;
mod screenshots;
