//! The browser.

use std::fs;

use hob_testkit::fantoccini::{Client, Locator};
use hob_testkit::page::{fill, press, press_labelled, text, wait_for_text};
use hob_testkit::{Browser, ColorScheme, JavaScript, Window, assert_readable, screenshot};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A page that shows its colour scheme and whether its script ran.
const PAGE: &str = "<!doctype html><title>A page</title>\
    <style>body { background: rgb(255, 255, 255) }\
    @media (prefers-color-scheme: dark) { body { background: rgb(1, 2, 3) } }</style>\
    <p id=script>off</p><script>document.getElementById('script').textContent = 'on'</script>";

/// Serves the page and returns its URL.
async fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = socket.read(&mut [0; 4096]).await;
                let length = PAGE.len();
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n");
                let _ = socket.write_all(format!("{head}Connection: close\r\n\r\n{PAGE}").as_bytes()).await;
            });
        }
    });
    format!("http://{address}/")
}

async fn background(client: &Client) -> String {
    client.find(Locator::Css("body")).await.unwrap().css_value("background-color").await.unwrap()
}

#[tokio::test]
async fn page_opens_and_screenshot_is_written() {
    let (browser, url) = (Browser::start(), serve().await);
    let client = browser.open(Window { width: 800, height: 600, ..Window::default() }).await;
    client.goto(&url).await.unwrap();
    assert_eq!(client.title().await.unwrap(), "A page");
    assert_eq!(text(&client, "#script").await, "on");
    assert_eq!(background(&client).await, "rgba(255, 255, 255, 1)");

    let file = screenshot(&client, "testkit").await;
    assert!(file.ends_with("target/screenshots/testkit.png"), "{}", file.display());
    let png = fs::read(&file).unwrap();
    assert!(png.starts_with(b"\x89PNG"));
    assert_eq!(png[16..20], 800_u32.to_be_bytes());
    client.close().await.unwrap();
}

#[tokio::test]
async fn window_can_be_dark_and_without_scripts() {
    let (browser, url) = (Browser::start(), serve().await);
    let window = Window { scheme: ColorScheme::Dark, scripts: JavaScript::Off, ..Window::default() };
    let client = browser.open(window).await;
    client.goto(&url).await.unwrap();
    assert_eq!(background(&client).await, "rgba(1, 2, 3, 1)");
    assert_eq!(text(&client, "#script").await, "off");
    client.close().await.unwrap();
}

#[tokio::test]
async fn elements_may_appear_late_and_be_replaced() {
    const CHANGING: &str = "<body><p id=n></p><script>\
        const pressed = [], field = document.createElement('input'), buttons = '<button onclick=pressed.push(1)>Go\
        </button> <a href=javascript:void(pressed.push(2))>There</a>';\
        let n = 0;\
        const timer = setInterval(() => {\
            n += 1; document.body.innerHTML = `<p id=n>${n} Times</p>`;\
            if (n == 20) { clearInterval(timer); document.body.innerHTML += buttons; document.body.append(field) }\
        }, 20)</script>";
    let browser = Browser::start();
    let client = browser.open(Window::default()).await;
    client.goto(&format!("data:text/html,{CHANGING}")).await.unwrap();
    text(&client, "#n").await;
    press(&client, "button").await;
    press_labelled(&client, "There").await;
    press_labelled(&client, "Go").await;
    fill(&client, "input", "first").await;
    fill(&client, "input", "second").await;
    wait_for_text(&client, "#n", "20 times").await;
    assert_eq!(text(&client, "#n").await, "20 Times");
    let result = client.execute("return [pressed, field.value]", Vec::new()).await.unwrap();
    assert_eq!(result, serde_json::json!([[1, 2, 1], "second"]));
    client.close().await.unwrap();
}

async fn check_page(page: &str) {
    let browser = Browser::start();
    let client = browser.open(Window { width: 600, ..Window::default() }).await;
    client.goto(&format!("data:text/html,{page}")).await.unwrap();
    assert_readable(&client, "the page").await;
}

#[tokio::test]
#[should_panic(expected = "“faint” has a contrast of")]
async fn low_contrast_is_found() {
    check_page("<style>b { color: rgb(150, 150, 150) }</style><p>plain <b>faint</b>").await;
}

#[tokio::test]
#[should_panic(expected = "the page is 900 px wide")]
async fn overflowing_page_is_found() {
    check_page("<style>body { margin: 0 } p { width: 900px }</style><p>plain").await;
}

#[tokio::test]
async fn readable_page_passes() {
    check_page("<style>b { color: rgb(100, 100, 100) }</style><p>plain <b>less</b>").await;
}
