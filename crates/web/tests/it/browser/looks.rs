//! Every chart and every part, photographed: wide and narrow, light and dark.

use hob_testkit::{Browser, Scheme, Window, assert_readable, screenshot};
use hob_web::Config;

use super::{picture, room};

#[tokio::test]
async fn everything_is_readable_in_light_and_dark_wide_and_narrow() {
    let (browser, (_context, app, _)) = (Browser::start(), room::serve(Config::default()).await);
    for (name, width, height, scheme) in [
        ("light", 1440, 2100, Scheme::Light),
        ("dark", 1440, 2100, Scheme::Dark),
        ("phone", 500, 4600, Scheme::Light),
    ] {
        let client = browser.open(Window { width, height, scheme, ..Window::default() }).await;
        for page in ["gallery", "room", "nowhere"] {
            client.goto(&app.url(&format!("/{page}"))).await.unwrap();
            screenshot(&client, &picture(&format!("{page}-{name}"))).await;
            assert_readable(&client, &format!("{page}, {name}")).await;
        }
        client.close().await.unwrap();
    }
}
