//! Actions of a test on a page. Each function waits for its element, because the page may still load or update.

use std::future::Future;

use fantoccini::elements::Element;
use fantoccini::{Client, Locator};

use crate::assert_readable;
use crate::browser::{Browser, ColorScheme, Window, screenshot};
use crate::wait::{LIMIT, wait_for};

/// The first element that matches.
#[track_caller]
pub fn find(client: &Client, css: &str) -> impl Future<Output = Element> {
    wait_for(css, LIMIT, async move || client.find(Locator::Css(css)).await)
}

/// The text of an element, as it is displayed.
#[track_caller]
pub fn text(client: &Client, css: &str) -> impl Future<Output = String> {
    wait_for(css, LIMIT, async move || client.find(Locator::Css(css)).await?.text().await)
}

/// Waits until the text of an element contains `words`, in upper or lower case: a style sheet may change the case.
#[track_caller]
pub fn wait_for_text(client: &Client, css: &str, words: &str) -> impl Future<Output = ()> {
    wait_for(format!("{words:?} in {css}"), LIMIT, async move || {
        let element = client.find(Locator::Css(css)).await.map_err(|error| error.to_string())?;
        let text = element.text().await.map_err(|error| error.to_string())?;
        if text.to_lowercase().contains(&words.to_lowercase()) { Ok(()) } else { Err(text) }
    })
}

/// Clicks an element.
#[track_caller]
pub fn press(client: &Client, css: &str) -> impl Future<Output = ()> {
    wait_for(css, LIMIT, async move || client.find(Locator::Css(css)).await?.click().await)
}

/// Clicks the button or the link with this text.
#[track_caller]
pub fn press_labelled(client: &Client, label: &str) -> impl Future<Output = ()> {
    let path = format!("//*[self::button or self::a][normalize-space()='{label}']");
    wait_for(label, LIMIT, async move || client.find(Locator::XPath(&path)).await?.click().await)
}

/// Replaces the value of a field.
#[track_caller]
pub fn fill(client: &Client, css: &str, value: &str) -> impl Future<Output = ()> {
    wait_for(css, LIMIT, async move || {
        let field = client.find(Locator::Css(css)).await?;
        field.clear().await?;
        field.send_keys(value).await
    })
}

/// Opens pages, given by name and URL, in a wide, a dark and a narrow window. Panics if one is not
/// [readable](assert_readable). Writes a screenshot of each.
pub async fn check_pages(browser: &Browser, pages: &[(impl AsRef<str>, String)]) {
    for (window, width, height, scheme) in [
        ("light", 1440, 2200, ColorScheme::Light),
        ("dark", 1440, 2200, ColorScheme::Dark),
        ("phone", 500, 4600, ColorScheme::Light),
    ] {
        let client = browser.open(Window { width, height, scheme, ..Window::default() }).await;
        for (name, url) in pages {
            let name = name.as_ref();
            client.goto(url).await.unwrap_or_else(|error| panic!("cannot open {url}: {error}"));
            screenshot(&client, &format!("{name}-{window}")).await;
            assert_readable(&client, &format!("{name}, {window}")).await;
        }
        client.close().await.unwrap_or_else(|error| panic!("cannot close a window: {error}"));
    }
}
