//! The proxy: forwarded and removed headers, streams, and failures of upstreams.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use hob_fixtures::{Layout, TestContext};
use hob_testkit::{LIMIT, wait_for};
use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_tungstenite::tungstenite::Message;

use crate::kit::NEEDS;
use crate::upstream::{TestProxy, Upstream};

/// An address that refuses connections: its socket is bound but does not listen, so no other process gets the port.
fn closed_address() -> (tokio::net::TcpSocket, SocketAddr) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[tokio::test]
async fn requests_and_responses_are_forwarded_with_their_bodies() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "").await;
    assert_eq!(proxy.get("/any/path?x=1").await.2, "hello");
    let (status, _, _) = proxy.get("/status/404").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let sent = "x".repeat(300_000);
    let response = proxy.send(http::Request::put(proxy.url("/echo")), &sent).await;
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), sent);
}

#[tokio::test]
async fn upstream_gets_the_real_client_address() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "").await;
    let request = http::Request::get(proxy.url("/headers"))
        .header("x-forwarded-for", "6.6.6.6")
        .header("connection", "x-secret")
        .header("x-secret", "1")
        .header("host", "shop.example");
    let body = proxy.send(request, "").await.into_body().collect().await.unwrap().to_bytes();
    let received = String::from_utf8(body.to_vec()).unwrap();
    for line in [
        "x-forwarded-for: 127.0.0.1\n",
        "x-forwarded-proto: http\n",
        "host: shop.example\n",
        "x-real-ip: 127.0.0.1\n",
    ] {
        assert!(received.contains(line), "{line} is missing in\n{received}");
    }
    assert!(!received.contains("x-secret") && !received.contains("6.6.6.6"), "{received}");
}

#[tokio::test]
async fn streams_are_forwarded_without_buffering() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "").await;
    let mut body = proxy.send(http::Request::get(proxy.url("/stream")), "").await.into_body();
    let mut seen = Vec::new();
    // The stream never ends: a proxy that buffers would never forward it.
    while seen.len() < "onetwothree".len() {
        let frame = tokio::time::timeout(LIMIT, body.frame()).await.unwrap().unwrap().unwrap();
        seen.extend_from_slice(frame.data_ref().unwrap());
    }
    assert_eq!(seen, b"onetwothree");
}

#[tokio::test]
async fn websocket_is_forwarded_both_ways() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "").await;
    let url = format!("ws://{}/socket", proxy.address);
    let (mut socket, response) = tokio_tungstenite::connect_async(url).await.unwrap();
    assert_eq!(response.status(), 101);
    for text in ["hello", "again"] {
        socket.send(Message::text(text)).await.unwrap();
        let echoed = tokio::time::timeout(LIMIT, socket.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(echoed, Message::text(text));
    }
    socket.close(None).await.unwrap();
}

#[tokio::test]
async fn http2_clients_are_forwarded_as_http1() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "").await;
    let executor = hyper_util::rt::TokioExecutor::new();
    let client: hyper_util::client::legacy::Client<_, http_body_util::Empty<bytes::Bytes>> =
        hyper_util::client::legacy::Client::builder(executor).http2_only(true).build_http();
    let request = http::Request::get(proxy.url("/headers")).header("cookie", "a=1").header("cookie", "b=2");
    let response = client.request(request.body(http_body_util::Empty::new()).unwrap()).await.unwrap();
    assert_eq!(response.version(), http::Version::HTTP_2);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let received = String::from_utf8(body.to_vec()).unwrap();
    assert!(
        received.contains("cookie: a=1; b=2\n") && received.contains(&format!("host: {}\n", proxy.address)),
        "{received}"
    );
}

/// New upstreams are used for the next request after a reload.
#[tokio::test]
async fn upstreams_are_reloaded() {
    let (before, after) = (Upstream::start().await, Upstream::start().await);
    let read = |upstream: &str| {
        let toml = format!("listen = \"127.0.0.1:0\"\nupstream = [\"{upstream}\"]");
        toml::from_str::<hob_gateway::Config>(&toml).unwrap()
    };
    let (live, replace) = hob_service::Live::new(read(&format!("http://{}", before.address)));
    let proxy = TestProxy::with_config(live).await;
    assert_eq!(proxy.get("/").await.0, StatusCode::OK);
    // An invalid configuration changes nothing.
    replace.replace(read("nonsense"));
    replace.replace(read(&format!("http://{}", after.address)));
    wait_for("the other upstream to be called", LIMIT, async || {
        assert_eq!(proxy.get("/").await.0, StatusCode::OK);
        after.hits() > 0
    })
    .await;
    let hits = before.hits();
    proxy.get("/").await;
    assert_eq!(before.hits(), hits);
}

/// A request keeps the policy that it was admitted by.
#[tokio::test]
async fn reload_during_a_request_keeps_its_client_address() {
    let upstream = Upstream::start().await;
    let config = |more: &str| {
        let rule = "[[rules]]\nname = \"api\"\nwindows = \"100/1m\"\nalgorithm = \"gcra\"\n";
        let toml = format!(
            "listen = \"127.0.0.1:0\"\nupstream = [\"http://{}\"]\nstore_timeout = \"30s\"\n{more}\n{rule}",
            upstream.address
        );
        toml::from_str::<hob_gateway::Config>(&toml).unwrap()
    };
    let trusting = config("trusted_proxies = [\"127.0.0.0/8\"]");
    // The store replaces the policy during the check of the first request.
    let admission = std::sync::Arc::new(std::sync::OnceLock::<hob_admission::Admission>::new());
    let (reloaded, suspicious) = (std::sync::Arc::clone(&admission), config(""));
    let guard = hob_engine::Guard::new(move |changes| {
        let is_check = changes.keys().iter().any(|key| key.starts_with(b"ha:gateway:limit:api:"));
        if let Some(admission) = reloaded.get().filter(|_| is_check) {
            admission.replace(hob_admission::Policy::new(&suspicious.policy()).unwrap(), LIMIT);
        }
        Ok(())
    });
    let engine = hob_engine::Engine::new(hob_engine::Config { guard: Some(guard), ..Default::default() });
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut node = context.context().clone();
    node.store = hob_store::Store::embedded(&engine);
    let proxy = TestProxy::on_node(context, &node, hob_service::Live::fixed(trusting)).await;
    admission.set(proxy.gateway.admission().clone()).unwrap();

    let received = async || {
        let request = http::Request::get(proxy.url("/headers")).header("x-forwarded-for", "203.0.113.9");
        let body = proxy.send(request, "").await.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    };
    let first = received().await;
    assert!(first.contains("x-real-ip: 203.0.113.9\n"), "{first}");
    assert!(first.contains("x-forwarded-for: 203.0.113.9, 127.0.0.1\n"), "{first}");
    let next = received().await;
    assert!(next.contains("x-real-ip: 127.0.0.1\n") && !next.contains("203.0.113.9"), "{next}");
}

/// Also after responses without a length.
#[tokio::test]
async fn upstream_connections_are_reused() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = std::sync::Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let answer = hyper::service::service_fn(async |request: http::Request<_>| {
                let chunked = request.uri().path() == "/chunked";
                let parts = futures_util::stream::iter(["one", "two"].map(|part| {
                    Ok::<_, std::convert::Infallible>(hyper::body::Frame::data(bytes::Bytes::from(part)))
                }));
                let body = if chunked {
                    http_body_util::Either::Left(http_body_util::StreamBody::new(parts))
                } else {
                    http_body_util::Either::Right(http_body_util::Full::new(bytes::Bytes::from("onetwo")))
                };
                drop::<http::Request<hyper::body::Incoming>>(request);
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            });
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(hyper_util::rt::TokioIo::new(stream), answer);
            tokio::spawn(served);
        }
    });
    let proxy = TestProxy::start(&[address], "").await;
    for path in ["/chunked", "/", "/chunked", "/"] {
        for _ in 0..5 {
            assert_eq!(proxy.get(path).await.2, "onetwo");
        }
    }
    assert_eq!(connections.load(std::sync::atomic::Ordering::SeqCst), 1);
}

/// An upstream may respond before it has read the whole request. The rest of the upload must not block the next
/// request.
#[tokio::test]
async fn early_response_to_an_upload_does_not_block_the_pool() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut lines = BufReader::new(stream).lines();
                // Every head is answered at once; the body is read as further lines.
                while let Ok(Some(line)) = lines.next_line().await {
                    if line.is_empty() {
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        lines.get_mut().write_all(answer).await.unwrap();
                    }
                }
            });
        }
    });
    let proxy = TestProxy::start(&[address], "response_timeout = \"10s\"\nretries = 0").await;
    let mut uploads = Vec::new();
    for length in ["content-length: 1000", "transfer-encoding: chunked"] {
        let mut upload = tokio::net::TcpStream::connect(proxy.address).await.unwrap();
        upload.write_all(format!("POST / HTTP/1.1\r\nhost: a\r\n{length}\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        tokio::time::timeout(LIMIT, upload.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        // The upload is neither finished nor closed.
        uploads.push(upload);
        let (status, _, body) = proxy.get("/").await;
        assert_eq!((status, body.as_str()), (StatusCode::OK, "ok"), "after {length}");
    }
}

/// If an upstream closes idle connections, a new one is used, also for requests that must not be repeated.
#[tokio::test]
async fn closed_upstream_connection_is_not_reused() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (closed, mut closes) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 1024];
            // The response allows keep-alive, but the connection is closed after it.
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            let _ = stream.shutdown().await;
            let _ = closed.send(());
        }
    });
    let proxy = TestProxy::start(&[address], "retries = 0").await;
    for _ in 0..5 {
        let response = proxy.send(http::Request::post(proxy.url("/")), "body").await;
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap();
        closes.recv().await.unwrap();
        // Wait until the close has arrived.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn retryable_request_goes_to_another_upstream() {
    let (upstream, (_socket, closed)) = (Upstream::start().await, closed_address());
    let proxy = TestProxy::start(&[closed, upstream.address], "").await;
    for _ in 0..20 {
        assert_eq!(proxy.get("/").await.0, StatusCode::OK);
    }
    assert_eq!(upstream.hits(), 20);
}

#[tokio::test]
async fn request_that_may_have_been_processed_is_not_repeated() {
    // Accepts connections and closes them without a response.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (request_sender, mut received_requests) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut head = [0; 1024];
            stream.readable().await.unwrap();
            let _ = stream.try_read(&mut head);
            request_sender.send(()).unwrap();
        }
    });
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[address, upstream.address], "retries = 3").await;
    let mut broken = 0;
    for _ in 0..4 {
        let response = proxy.send(http::Request::post(proxy.url("/")), "").await;
        broken += u32::from(response.status() == StatusCode::BAD_GATEWAY);
    }
    let mut received = 0;
    while received_requests.try_recv().is_ok() {
        received += 1;
    }
    assert!(broken > 0 && broken == received, "{broken} refused, {received} received");
    assert_eq!(upstream.hits() + broken, 4);
}

#[tokio::test]
async fn failed_upstream_is_502_and_slow_upstream_is_504() {
    let (_socket, closed) = closed_address();
    let proxy = TestProxy::start(&[closed], "").await;
    assert_eq!(proxy.get("/").await.0, StatusCode::BAD_GATEWAY);
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "response_timeout = \"100ms\"").await;
    assert_eq!(proxy.get("/slow").await.0, StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn unhealthy_upstream_gets_no_requests() {
    let well = Upstream::start().await;
    // Its health path is a 404, which is below 500, until it stops.
    let unwell = Upstream::start().await;
    let proxy = TestProxy::start(
        &[well.address, unwell.address],
        "health_path = \"/status/404\"\nhealth_interval = \"20ms\"",
    )
    .await;
    drop(unwell);
    // Once the health check has failed, no request goes to it.
    wait_for("20 successful responses in a row", LIMIT, async || {
        for _ in 0..20 {
            if proxy.send(http::Request::post(proxy.url("/")), "body").await.status() != StatusCode::OK {
                return false;
            }
        }
        true
    })
    .await;
}

#[tokio::test]
async fn client_over_its_limit_gets_all_headers() {
    let upstream = Upstream::start().await;
    let rules = "x_ratelimit = true\n[[rules]]\nname = \"api\"\nwindows = \"2/1m\"\nroute = \"/api/*\"\n";
    let proxy = TestProxy::start(&[upstream.address], rules).await;
    let (_, headers, _) = proxy.get("/api/a").await;
    assert_eq!(headers["ratelimit"], "\"api\";r=1;t=60");
    assert_eq!(headers["ratelimit-policy"], "\"api\";q=2;w=60");
    proxy.get("/api/b").await;
    let (status, headers, body) = proxy.get("/api/c").await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(
        headers["retry-after"].to_str().unwrap().parse::<u64>().is_ok_and(|after| (1..=60).contains(&after))
    );
    assert_eq!(headers["x-ratelimit-remaining"], "0");
    assert!(body.contains("Too many"));
    assert_eq!(upstream.hits(), 2);
    // The rule does not match other routes.
    assert!(!proxy.get("/other").await.1.contains_key("ratelimit"));
}

/// G1 G4: connections are counted while they are open, requests when they are answered.
#[tokio::test]
async fn forwarded_requests_are_counted() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "count_loopback = true").await;
    for _ in 0..5 {
        proxy.get("/a").await;
    }
    wait_for("the counts", LIMIT, async || {
        let summary = proxy.gateway.statistics().summary().await.unwrap();
        if summary.total == 5 && summary.connections == 1 { Ok(()) } else { Err(summary) }
    })
    .await;
}

/// A client that disconnects before the response is counted with status 499.
#[tokio::test]
async fn client_that_disconnects_is_counted() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "count_loopback = true").await;
    let mut stream = tokio::net::TcpStream::connect(proxy.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    wait_for("the request to reach the upstream", LIMIT, async || upstream.hits() == 1).await;
    drop(stream);
    wait_for("the request to be counted", LIMIT, async || {
        proxy.gateway.statistics().statuses().await.unwrap() == [(499, 1)].into()
    })
    .await;
}

#[tokio::test]
async fn stop_finishes_requests_and_loses_no_count() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "count_loopback = true").await;
    proxy.get("/").await;
    let started = Instant::now();
    assert_eq!(proxy.context.tasks.stop(LIMIT).await, Vec::<String>::new());
    assert!(started.elapsed() < LIMIT - Duration::from_secs(1));
    assert_eq!(proxy.gateway.statistics().summary().await.unwrap().total, 1);
}

/// Sends the head of an upload and its parts, with a pause before each; returns the status line of the response.
async fn upload(proxy: &TestProxy, length: usize, parts: &[&str], pause: Duration) -> String {
    let mut stream = tokio::net::TcpStream::connect(proxy.address).await.unwrap();
    let head = format!("PUT /length HTTP/1.1\r\nhost: shop.example\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    for part in parts {
        tokio::time::sleep(pause).await;
        stream.write_all(part.as_bytes()).await.unwrap();
    }
    let mut line = String::new();
    tokio::time::timeout(LIMIT, BufReader::new(stream).read_line(&mut line)).await.unwrap().unwrap();
    line
}

/// The timeout for the response does not end an upload while the client is sending.
#[tokio::test]
async fn long_upload_does_not_time_out() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "response_timeout = \"6s\"").await;
    let status = upload(&proxy, 8, &["x"; 8], Duration::from_secs(1)).await;
    assert!(status.starts_with("HTTP/1.1 200"), "{status}");
}

#[tokio::test]
async fn client_that_stops_sending_gets_status_408() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "response_timeout = \"1s\"").await;
    for _ in 0..5 {
        let status = upload(&proxy, 8, &["x"], Duration::ZERO).await;
        assert!(status.starts_with("HTTP/1.1 408"), "{status}");
    }
    // It is not a failure of the upstream, which would get no requests for some seconds otherwise.
    assert_eq!(proxy.get("/").await.0, StatusCode::OK);
}
