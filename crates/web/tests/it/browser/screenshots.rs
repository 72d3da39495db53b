//! Screenshots of all charts and components: wide and narrow, light and dark.

use hob_testkit::Browser;
use hob_testkit::page::check_pages;
use hob_web::Config;

use super::room;

#[tokio::test]
async fn everything_is_readable_in_light_and_dark_wide_and_narrow() {
    let (browser, (_context, app, _)) = (Browser::start(), room::serve(Config::default()).await);
    let pages = ["gallery", "room", "nowhere"].map(|page| (page, app.url(&format!("/{page}"))));
    check_pages(&browser, &pages).await;
}
