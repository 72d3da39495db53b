//! The HTTP server: slow and hostile clients, limits, headers.

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

use crate::garden::{Garden, LARGE_BYTES, routes};
use crate::protected::NEEDS;

async fn app(config: Config) -> (TestContext, TestApp) {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let app = TestApp::start_with_config(&context, Live::fixed(config), |_| routes(Garden::default())).await;
    (context, app)
}

/// Sends some bytes, and reads until the server closes the connection.
async fn exchange(app: &TestApp, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(app.address()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut received = Vec::new();
    let read = tokio::time::timeout(LIMIT, stream.read_to_end(&mut received))
        .await
        .expect("the connection is closed in time");
    // A closed connection may end with a reset.
    let _ = read;
    String::from_utf8_lossy(&received).into_owned()
}

/// Sends many concurrent requests over one HTTP/2 connection, and expects a response to each.
pub(crate) async fn send_concurrently<I>(io: I, origin: &str)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await.expect("an HTTP/2 connection");
    tokio::spawn(connection);
    let send = |n: u32| {
        let mut sender = sender.clone();
        let request = Request::get(format!("{origin}/garden?n={n}")).body(Empty::<Bytes>::new()).unwrap();
        async move {
            let answer = sender.send_request(request).await.expect("a response");
            assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2));
            answer.into_body().collect().await.expect("a complete body").to_bytes().len()
        }
    };
    let lengths = futures_util::future::join_all((0..50).map(send)).await;
    assert!(lengths.iter().all(|length| *length > 0), "{lengths:?}");
}

#[tokio::test]
async fn http_2_with_prior_knowledge_is_served() {
    let (_context, app) = app(Config::default()).await;
    let stream = TcpStream::connect(app.address()).await.unwrap();
    send_concurrently(stream, &format!("http://{}", app.address())).await;
}

#[tokio::test]
async fn client_with_an_unfinished_head_is_disconnected() {
    let config = Config { header_timeout: Period::from_millis(200), ..Config::default() };
    let (_context, app) = app(config).await;
    for bytes in
        [b"".as_slice(), b"P", b"PRI * HTTP/2.0\r\n\r\nSM", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "]
    {
        let received = exchange(&app, bytes).await;
        assert!(received.is_empty() || received.starts_with("HTTP/1.1 408"), "{received}");
    }
}

#[tokio::test]
async fn unfinished_body_times_out() {
    let config = Config { request_timeout: Period::from_millis(300), ..Config::default() };
    let (_context, app) = app(config).await;
    let head = "POST /api/v1/garden/gnomes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 1000\r\nConnection: close\r\n\r\n{\"name\":";
    let received = exchange(&app, head.as_bytes()).await;
    assert!(received.starts_with("HTTP/1.1 408"), "{received}");
    assert!(received.contains("application/problem+json"), "{received}");
}

#[tokio::test]
async fn head_that_is_too_large_is_refused() {
    let (_context, app) = app(Config::default()).await;
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: {}\r\n\r\n", "x".repeat(200_000));
    let received = exchange(&app, head.as_bytes()).await;
    assert!(
        received.is_empty() || received.starts_with("HTTP/1.1 431"),
        "{}",
        &received[..received.len().min(200)]
    );
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let config = Config { write_timeout: Period::from_millis(200), max_connections: 1, ..Config::default() };
    let (_context, app) = app(config).await;
    let mut slow = TcpStream::connect(app.address()).await.unwrap();
    slow.write_all(b"GET /garden/hay HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    // The limit is one connection: the next client is served after the slow one is disconnected.
    assert_eq!(app.get("/assets/none").await.status, 404);
    let mut received = Vec::new();
    let _ = tokio::time::timeout(LIMIT, slow.read_to_end(&mut received))
        .await
        .expect("the connection is closed in time");
    assert!(received.len() < LARGE_BYTES, "the response is incomplete");
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
    assert!(waited.is_err(), "the second connection waits");
    drop(first);
    tokio::time::timeout(LIMIT, second.read_exact(&mut answer))
        .await
        .expect("the second connection is accepted in time")
        .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 404");
}

#[tokio::test]
async fn requests_over_the_limit_are_rejected() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let garden = Garden::default();
    let config = Live::fixed(Config { max_requests: 1, ..Config::default() });
    let app = TestApp::start_with_config(&context, config, |_| routes(garden.clone())).await;
    let (first, busy) = tokio::join!(app.get("/garden/nap"), async {
        wait_for("the first request to start", LIMIT, async || garden.waiting() == 1).await;
        let answer = app.get("/api/v1/garden/gnomes").await;
        garden.release_one();
        answer
    });
    assert_eq!(first.text(), "awake");
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
    wait_for("the request to start", LIMIT, async || garden.waiting() == 1).await;
    let stopped = tokio::spawn(app.stop());
    let mut received = String::new();
    garden.release_one();
    stream.read_to_string(&mut received).await.unwrap();
    assert!(received.ends_with("awake"), "{received}");
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
    wait_for("the request to start", LIMIT, async || garden.waiting() == 1).await;
    app.stop().await;
    let mut received = String::new();
    let _ = stream.read_to_string(&mut received).await;
    assert_eq!(received, "");
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
        assert_eq!(answer.header("strict-transport-security"), "", "sent only with TLS");
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
    assert!(!stream.headers().contains_key("content-encoding"), "a stream is not compressed");
    app.forget_headers();
    let page = app.get("/garden").await.text();
    let css = page.split('"').find(|part| part.starts_with("/assets/") && part.ends_with(".css"));
    let css = css.expect("a style sheet");
    let asset = app.get(css).await;
    assert_eq!(asset.header("cache-control"), "public, max-age=31536000, immutable");
    assert_eq!(asset.header("content-type"), "text/css; charset=utf-8");
}

#[tokio::test]
async fn openapi_document_and_its_pages_are_served() {
    let (_context, app) = app(Config::default()).await;
    let document: Value = app.get("/api/openapi.json").await.json();
    let add = &document["paths"]["/api/v1/garden/gnomes"]["post"];
    assert_eq!(add["operationId"], "garden_add");
    assert_eq!(add["tags"][0], "garden");
    assert!(add["description"].as_str().unwrap().contains("`garden:write`"), "{add}");
    assert!(add["responses"]["default"]["content"]["application/problem+json"].is_object(), "{add}");
    let list = &document["paths"]["/api/v1/garden/gnomes"]["get"];
    assert_eq!(list["parameters"][0]["name"], "min_height_cm", "{list}");

    let index = app.get("/api/docs").await.text();
    assert!(
        index.contains(r#"<a href="/api/docs/garden_add"><code>/api/v1/garden/gnomes</code></a>"#),
        "{index}"
    );
    let page = app.get("/api/docs/garden_add").await.text();
    for part in [
        "<h1>POST /api/v1/garden/gnomes</h1>",
        "Requires the scope <code>garden:write</code>.",
        "curl &quot;$HOB_SERVER/api/v1/garden/gnomes&quot;",
        r##"<a href="#type-Problem">Problem</a>"##,
        r#"id="type-Problem""#,
        r#"id="type-FieldError""#,
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(app.get("/api/docs/garden_remove_everything").await.status, 404);
    assert_eq!(app.get("/api/docs/../../etc/passwd").await.status, 404);
}
