//! The pictures in the documentation: `cargo xtask screenshots` writes them.

mod dashboards;

use std::path::Path;

use hob_testkit::page::wait_for_text;
use hob_testkit::{Browser, ColorScheme, Window, set_view};

use crate::program::Server;

/// Pictures stay below this size, because the repository keeps every version of them.
const MAX_BYTES: usize = 200 * 1024;

const HIDE_SCROLLBAR: &str = "document.documentElement.style.scrollbarWidth = 'none'";

/// The name, the page, a text that the page shows once it is complete, and the height of each picture.
const PICTURES: [(&str, &str, &str, u32); 10] = [
    ("overview", "/", "requests", 700),
    ("gateway", "/gateway?range=24h", "POST /api/cart", 1100),
    ("uptime", "/uptime/monitors/demo-shop?range=30d", "connection refused", 1250),
    ("status", "/status", "Orders API", 900),
    ("chat", "/chat?as=you&conversation=kitchen", "Kitchen", 760),
    ("load", "/load/runs/demo-shop-4", "missed", 1100),
    ("pipelines", "/pipelines", "opinions-backfill", 760),
    ("keys", "/keys?sort=memory", "families", 820),
    ("health", "/health", "Background tasks", 1350),
    ("api", "/api/docs/chat_send_message", "sender_id", 900),
];

#[tokio::test]
#[ignore = "writes docs/images; run `cargo xtask screenshots`"]
async fn pictures_of_every_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    let server = Server::start(&["--demo"]);
    server.post("/keys/audit", "");
    // Enough time for the first results of everything that runs in the demo.
    tokio::time::sleep(std::time::Duration::from_secs(45)).await;
    let browser = Browser::start();
    for (name, path, shown, height) in PICTURES {
        let client = browser.open(Window::default()).await;
        set_view(&client, 1200, height, ColorScheme::Light).await;
        client.goto(&server.url(path)).await.unwrap();
        wait_for_text(&client, "main", shown).await;
        client.execute(HIDE_SCROLLBAR, Vec::new()).await.unwrap();
        let png = client.screenshot().await.unwrap();
        assert!(png.len() < MAX_BYTES, "{name} has {} bytes", png.len());
        std::fs::write(folder.join(format!("{name}.png")), png).unwrap();
        client.close().await.unwrap();
    }
}
