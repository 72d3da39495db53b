//! The console in a real browser. What it looks like goes to `target/screenshots`: look at it.

mod frame;
#[path = "../../../examples/gallery.rs"]
mod gallery;
mod live;
mod looks;
mod room;

use std::path::PathBuf;

use hob_testkit::fantoccini::elements::Element;
use hob_testkit::fantoccini::{Client, Locator};

/// Where a picture goes.
fn picture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/screenshots").join(format!("{name}.png"))
}

async fn find(client: &Client, css: &str) -> Element {
    client.find(Locator::Css(css)).await.unwrap_or_else(|error| panic!("{css}: {error}"))
}

async fn text(client: &Client, css: &str) -> String {
    find(client, css).await.text().await.unwrap()
}
