//! The console in a real browser. What it looks like goes to `target/screenshots`: look at it.

mod frame;
#[path = "../../examples/gallery.rs"]
mod gallery;
mod live;
mod looks;
mod room;

use std::path::PathBuf;

use hob_testkit::fantoccini::elements::Element;
use hob_testkit::fantoccini::{Client, Locator};
use hob_testkit::{LIMIT, wait_for};

/// Where a picture goes.
fn picture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/screenshots").join(format!("{name}.png"))
}

async fn find(client: &Client, css: &str) -> Element {
    client.find(Locator::Css(css)).await.unwrap_or_else(|error| panic!("{css}: {error}"))
}

/// The text of an element, once it is there. A page that is just being replaced is looked at again.
async fn text(client: &Client, css: &str) -> String {
    wait_for(css, LIMIT, async || client.find(Locator::Css(css)).await?.text().await).await
}

/// Waits until an element says this somewhere.
async fn until_shown(client: &Client, css: &str, what: &str) {
    wait_for(format_args!("{what:?} in {css}"), LIMIT, async || {
        let shown = text(client, css).await;
        if shown.contains(what) { Ok(()) } else { Err(shown) }
    })
    .await;
}
