//! The console in a real browser. What it looks like goes to `target/screenshots`: look at it.

mod frame;
#[path = "../../examples/gallery.rs"]
mod gallery;
mod live;
mod looks;
mod room;
