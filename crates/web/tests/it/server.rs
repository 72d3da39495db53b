//! The server itself: slow, greedy and hostile clients, TLS, limits, headers.

use std::time::Duration;

use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::{Live, Period};
use hob_testkit::{LIMIT, wait_for};
use hob_web::Config;
use http::header::HeaderName;
use http::{Request, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::door::NEEDS;
use crate::garden::{Garden, HAY_BYTES, routes};

async fn app(config: Config) -> (TestContext, TestApp) {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let app = TestApp::start_with_config(&context, Live::fixed(config), |_| routes(Garden::default())).await;
    (context, app)
}

/// Sends some bytes, and reads until the server closes the connection.
async fn talk(app: &TestApp, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(app.address()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut heard = Vec::new();
    let read = tokio::time::timeout(LIMIT, stream.read_to_end(&mut heard)).await.expect("an end");
    // A connection that is cut may end with a reset.
    let _ = read;
    String::from_utf8_lossy(&heard).into_owned()
}

/// Has one HTTP/2 connection carry many requests at a time, and sees each of them answered.
pub(crate) async fn ask_many_at_once<I>(io: I, origin: &str)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await.expect("an HTTP/2 connection");
    tokio::spawn(connection);
    let ask = |n: u32| {
        let mut sender = sender.clone();
        let request = Request::get(format!("{origin}/garden?n={n}")).body(Empty::<Bytes>::new()).unwrap();
        async move {
            let answer = sender.send_request(request).await.expect("an answer");
            assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2));
            answer.into_body().collect().await.expect("a whole body").to_bytes().len()
        }
    };
    let lengths = futures_util::future::join_all((0..50).map(ask)).await;
    assert!(lengths.iter().all(|length| *length > 0), "{lengths:?}");
}

#[tokio::test]
async fn http_2_is_spoken_to_who_begins_with_it() {
    let (_context, app) = app(Config::default()).await;
    let stream = TcpStream::connect(app.address()).await.unwrap();
    ask_many_at_once(stream, &format!("http://{}", app.address())).await;
}

#[tokio::test]
async fn client_with_an_unfinished_head_is_disconnected() {
    let config = Config { header_timeout: Period::from_millis(200), ..Config::default() };
    let (_context, app) = app(config).await;
    for bytes in
        [b"".as_slice(), b"P", b"PRI * HTTP/2.0\r\n\r\nSM", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "]
    {
        let heard = talk(&app, bytes).await;
        assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 408"), "{heard}");
    }
}

#[tokio::test]
async fn unfinished_body_times_out() {
    let config = Config { request_timeout: Period::from_millis(300), ..Config::default() };
    let (_context, app) = app(config).await;
    let head = "POST /api/v1/garden/gnomes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 1000\r\nConnection: close\r\n\r\n{\"name\":";
    let heard = talk(&app, head.as_bytes()).await;
    assert!(heard.starts_with("HTTP/1.1 408"), "{heard}");
    assert!(heard.contains("application/problem+json"), "{heard}");
}

#[tokio::test]
async fn head_that_is_too_large_is_refused() {
    let (_context, app) = app(Config::default()).await;
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: {}\r\n\r\n", "x".repeat(200_000));
    let heard = talk(&app, head.as_bytes()).await;
    assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 431"), "{}", &heard[..heard.len().min(200)]);
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let config = Config { write_timeout: Period::from_millis(200), max_connections: 1, ..Config::default() };
    let (_context, app) = app(config).await;
    let mut greedy = TcpStream::connect(app.address()).await.unwrap();
    greedy.write_all(b"GET /garden/hay HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    // The limit is one connection: the next client is served after the slow one is disconnected.
    assert_eq!(app.get("/assets/none").await.status, 404);
    let mut heard = Vec::new();
    let _ = tokio::time::timeout(LIMIT, greedy.read_to_end(&mut heard)).await.expect("an end");
    assert!(heard.len() < HAY_BYTES, "not all of it was sent");
}

#[tokio::test]
async fn connections_over_the_limit_wait() {
    let config = Config { max_connections: 1, ..Config::default() };
    let (_context, app) = app(config).await;
    let request = b"GET /assets/none HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut first = TcpStream::connect(app.address()).await.unwrap();
    first.write_all(request).await.unwrap();
    let mut answer = [0; 12];
    first.read_exact(&mut answer).await.unwrap();
    let mut second = TcpStream::connect(app.address()).await.unwrap();
    second.write_all(request).await.unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(200), second.read_exact(&mut answer)).await;
    assert!(waited.is_err(), "the second waits for a seat");
    drop(first);
    tokio::time::timeout(LIMIT, second.read_exact(&mut answer)).await.expect("a seat").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 404");
}

#[tokio::test]
async fn requests_over_the_limit_are_rejected() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let garden = Garden::default();
    let config = Live::fixed(Config { max_requests: 1, ..Config::default() });
    let app = TestApp::start_with_config(&context, config, |_| routes(garden.clone())).await;
    let (nap, busy) = tokio::join!(app.get("/garden/nap"), async {
        wait_for("the first request", LIMIT, async || garden.nappers() == 1).await;
        let answer = app.get("/api/v1/garden/gnomes").await;
        garden.ring();
        answer
    });
    assert_eq!(nap.text(), "awake");
    assert_eq!(busy.header("retry-after"), "1");
    assert_eq!(busy.json::<Value>()["status"], 503);
}

#[tokio::test]
async fn running_requests_finish_when_the_server_stops() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let garden = Garden::default();
    let app = TestApp::start(&context, routes(garden.clone())).await;
    let mut stream = TcpStream::connect(app.address()).await.unwrap();
    stream.write_all(b"GET /garden/nap HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    wait_for("the request", LIMIT, async || garden.nappers() == 1).await;
    let stopped = tokio::spawn(app.stop());
    let mut heard = String::new();
    garden.ring();
    stream.read_to_string(&mut heard).await.unwrap();
    assert!(heard.ends_with("awake"), "{heard}");
    stopped.await.unwrap();
}

#[tokio::test]
async fn request_that_never_ends_is_cancelled_when_the_server_stops() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let garden = Garden::default();
    let config = Live::fixed(Config { drain_timeout: Period::from_millis(200), ..Config::default() });
    let app = TestApp::start_with_config(&context, config, |_| routes(garden.clone())).await;
    let mut stream = TcpStream::connect(app.address()).await.unwrap();
    stream.write_all(b"GET /garden/nap HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    wait_for("the request", LIMIT, async || garden.nappers() == 1).await;
    app.stop().await;
    let mut heard = String::new();
    let _ = stream.read_to_string(&mut heard).await;
    assert_eq!(heard, "");
}

#[tokio::test]
async fn pages_have_a_content_security_policy() {
    let (_context, app) = app(Config::default()).await;
    for path in ["/garden", "/garden/broken", "/no/such/page", "/api/v1/garden/gnomes"] {
        let answer = app.get(path).await;
        let policy = answer.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "same-origin", "{path}");
        assert_eq!(answer.header("strict-transport-security"), "", "only with TLS");
    }
}

#[tokio::test]
async fn safe_request_id_is_kept() {
    let (_context, mut app) = app(Config::default()).await;
    app.use_header(HeaderName::from_static("x-request-id"), "trace-7.a_b");
    assert_eq!(app.get("/garden").await.header("x-request-id"), "trace-7.a_b");
    for bad in ["a b", "<script>", &"x".repeat(65)] {
        app.use_header(HeaderName::from_static("x-request-id"), bad);
        let id = app.get("/garden").await.header("x-request-id").to_owned();
        assert_eq!(id.len(), 16, "{id}");
    }
}

#[tokio::test]
async fn cross_origin_requests_are_rejected() {
    let (_context, mut app) = app(Config::default()).await;
    let gnome = serde_json::json!({"name": "robin", "height_cm": 30});
    app.use_header(HeaderName::from_static("origin"), "http://evil.example");
    assert_eq!(app.post("/api/v1/garden/gnomes", &gnome).await.status, 403);
    assert_eq!(app.submit("/garden", &[("name", "robin"), ("height_cm", "30")]).await.status, 403);
    app.forget_headers();
    app.use_header(HeaderName::from_static("host"), "evil.example");
    assert_eq!(app.get("/garden").await.status, 421);
    app.forget_headers();
    let gnomes: Vec<Value> = app.get("/api/v1/garden/gnomes").await.json();
    assert_eq!(gnomes, [] as [Value; 0]);
}

#[tokio::test]
async fn large_responses_are_compressed_and_assets_are_cached() {
    let (_context, mut app) = app(Config::default()).await;
    app.use_header(HeaderName::from_static("accept-encoding"), "gzip");
    let document = app.get("/api/openapi.json").await;
    assert_eq!(document.header("content-encoding"), "gzip");
    let stream = app.open("/live?topics=garden").await;
    assert!(!stream.headers().contains_key("content-encoding"), "a stream is not held back");
    app.forget_headers();
    let page = app.get("/garden").await.text();
    let css = page.split('"').find(|part| part.starts_with("/assets/") && part.ends_with(".css"));
    let css = css.expect("a style sheet");
    let asset = app.get(css).await;
    assert_eq!(asset.header("cache-control"), "public, max-age=31536000, immutable");
    assert_eq!(asset.header("content-type"), "text/css; charset=utf-8");
}

#[tokio::test]
async fn openapi_document_and_swagger_ui_are_served() {
    let (_context, app) = app(Config::default()).await;
    let document: Value = app.get("/api/openapi.json").await.json();
    let add = &document["paths"]["/api/v1/garden/gnomes"]["post"];
    assert_eq!(add["operationId"], "garden_add");
    assert_eq!(add["tags"][0], "garden");
    assert!(add["description"].as_str().unwrap().contains("`garden:write`"), "{add}");
    assert!(add["responses"]["default"]["content"]["application/problem+json"].is_object(), "{add}");
    let list = &document["paths"]["/api/v1/garden/gnomes"]["get"];
    assert_eq!(list["parameters"][0]["name"], "min_height_cm", "{list}");

    assert_eq!(app.get("/api/docs").await.header("location"), "/api/docs/");
    let page = app.get("/api/docs/").await;
    assert!(page.text().contains("swagger-ui"), "{}", page.text());
    assert!(!page.header("content-security-policy").contains("script-src 'self' 'unsafe"));
    let script = app.get("/api/docs/swagger-ui-bundle.js").await;
    assert!(script.text().contains("SwaggerUIBundle"), "the script is not compressed");
    let initializer = app.get("/api/docs/swagger-initializer.js").await;
    assert!(initializer.text().contains("/api/openapi.json"), "{}", initializer.text());
    assert_eq!(app.get("/api/docs/../../etc/passwd").await.status, 404);
}
