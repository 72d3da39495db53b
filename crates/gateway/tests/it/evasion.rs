//! Requests that look different to the gateway than to the upstream: spellings of a path, two hosts, and upgrades to
//! other protocols.

use hob_testkit::LIMIT;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::recorder::{Recorder, exchange};
use crate::upstream::TestProxy;

const LOGIN: &str = "[[rules]]\nname = \"login\"\nwindows = \"1/1h\"\nroute = \"/api/auth/login\"\n";

/// Spellings of `/api/auth/login` that servers accept.
const SPELLINGS: [&str; 14] = [
    "/api/auth/login",
    "/API/Auth/LOGIN",
    "/api/auth/login/",
    "//api/auth/login",
    "/api//auth/login",
    "/api/auth/%6cogin",
    "/api/auth/%6Cogin",
    "/%61pi/auth/login",
    "/./api/auth/login",
    "/api/%2e/auth/login",
    "/x/../api/auth/login",
    "/x/%2E%2e/api/auth/login",
    "/api/auth/login;x",
    "/api;v=1/auth/login;jsessionid=1?q=1",
];

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
}

/// The status of a response.
fn status(response: &str) -> u16 {
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("no response: {response:?}"))
}

async fn status_of(proxy: &TestProxy, request: &str) -> u16 {
    status(&exchange(proxy.address, request.as_bytes()).await)
}

/// A limit on a route applies to every spelling of its path.
#[tokio::test]
async fn limit_applies_to_every_spelling_of_a_path() {
    let upstream = Recorder::start().await;
    let proxy = TestProxy::start(&[upstream.address], &format!("count_loopback = true\n{LOGIN}")).await;
    assert_eq!(status_of(&proxy, &get("/api/auth/login")).await, 200);
    let mut passed = Vec::new();
    for path in SPELLINGS {
        if status_of(&proxy, &get(path)).await != 429 {
            passed.push(path);
        }
    }
    assert!(passed.is_empty(), "{passed:?}");
    assert_eq!(upstream.received().len(), 1);
    proxy.context.tasks.stop(LIMIT).await;
    let endpoints = proxy.gateway.statistics().endpoints().await.unwrap();
    let counted: u64 = endpoints.iter().map(|endpoint| endpoint.requests).sum();
    assert_eq!(counted, 15, "{endpoints:?}");
    // Names keep their case.
    assert_eq!(endpoints.len(), 2, "{endpoints:?}");
}

/// A server that does not resolve dot segments sees the route in front of them.
#[tokio::test]
async fn limit_applies_to_a_prefix_before_dot_segments() {
    let upstream = Recorder::start().await;
    let rule = "[[rules]]\nname = \"graphql\"\nwindows = \"1/1h\"\nroute = \"/graphql/*\"\n";
    let proxy = TestProxy::start(&[upstream.address], rule).await;
    assert_eq!(status_of(&proxy, &get("/graphql")).await, 200);
    for path in ["/graphql/..", "/graphql/x/../..", "/graphql/%2e%2e/", "/graphql/..?q"] {
        assert_eq!(status_of(&proxy, &get(path)).await, 429, "{path}");
    }
    assert_eq!(status_of(&proxy, &get("/other/..")).await, 200);
}

#[tokio::test]
async fn routes_are_case_sensitive_if_configured() {
    let upstream = Recorder::start().await;
    let proxy =
        TestProxy::start(&[upstream.address], &format!("case_sensitive_routes = true\n{LOGIN}")).await;
    assert_eq!(status_of(&proxy, &get("/api/auth/login")).await, 200);
    assert_eq!(status_of(&proxy, &get("/api/auth/%6cogin/")).await, 429);
    assert_eq!(status_of(&proxy, &get("/API/auth/login")).await, 200);
}

/// A rule for `POST` applies to `post`, which some servers accept.
#[tokio::test]
async fn limit_applies_to_a_method_in_lower_case() {
    let upstream = Recorder::start().await;
    let proxy = TestProxy::start(&[upstream.address], &format!("{LOGIN}methods = [\"POST\"]\n")).await;
    let post = |method: &str| {
        format!(
            "{method} /api/auth/login HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
    };
    assert_eq!(status_of(&proxy, &post("POST")).await, 200);
    assert_eq!(status_of(&proxy, &post("post")).await, 429);
    assert_eq!(status_of(&proxy, &get("/api/auth/login")).await, 200);
}

/// The upstream gets the target byte for byte.
#[tokio::test]
async fn forwarded_target_is_unchanged() {
    let upstream = Recorder::start().await;
    let proxy = TestProxy::start(&[upstream.address], "ambiguous_paths = \"allow\"").await;
    let targets = [
        "/API//a/../%6cogin;x=1/?q=%6c//../%2f",
        "/./",
        "//a",
        "/a%2fb%5c%00%",
        "/\u{e9}?\u{e9}",
        "/a\\b|{c}",
        "*",
    ];
    for target in targets {
        let request = get(target).replace("GET *", "OPTIONS *");
        assert_eq!(status_of(&proxy, &request).await, 200, "{target}");
    }
    let received = upstream.received();
    let sent: Vec<&str> =
        received.iter().map(|request| request.target().split_once(' ').unwrap().1).collect();
    assert_eq!(sent, targets);
}

/// Refused requests are counted, and do not occupy an endpoint.
#[tokio::test]
async fn ambiguous_paths_are_refused() {
    let upstream = Recorder::start().await;
    let proxy = TestProxy::start(&[upstream.address], "count_loopback = true").await;
    let paths =
        ["/api%2flogin", "/api%5Clogin", "/api\\login", "/api%00", "/api%0a", "/api%", "/a%zz", "/a//../b"];
    for path in paths {
        let answer = exchange(proxy.address, get(path).as_bytes()).await;
        assert_eq!(status(&answer), 400, "{path}");
        assert!(answer.contains("path"), "{answer}");
    }
    // A query is not a path.
    assert_eq!(status_of(&proxy, &get("/a?b=%2f%00%zz\\")).await, 200);
    assert_eq!(upstream.received().len(), 1);
    proxy.context.tasks.stop(LIMIT).await;
    let statistics = proxy.gateway.statistics();
    let summary = statistics.summary().await.unwrap();
    assert_eq!((summary.total, summary.accepted, summary.limited), (9, 1, 8));
    let endpoints = statistics.endpoints().await.unwrap();
    let names: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
    assert_eq!(names, ["other", "GET /a"], "{endpoints:?}");
}

/// With ambiguous paths, a limit applies to both readings.
#[tokio::test]
async fn allowed_ambiguous_path_is_limited() {
    let upstream = Recorder::start().await;
    let proxy = TestProxy::start(&[upstream.address], &format!("ambiguous_paths = \"allow\"\n{LOGIN}")).await;
    assert_eq!(status_of(&proxy, &get("/api/auth/login")).await, 200);
    for path in ["/api/auth%2flogin", "/api%5Cauth/login", "/api/auth\\login", "/api/auth/x%2f../login"] {
        assert_eq!(status_of(&proxy, &get(path)).await, 429, "{path}");
    }
    assert_eq!(status_of(&proxy, &get("/other%2flogin")).await, 200);
}

/// Two servers could choose different hosts.
#[tokio::test]
async fn requests_without_exactly_one_host_are_refused() {
    let upstream = Recorder::start().await;
    let proxy = TestProxy::start(&[upstream.address], "count_loopback = true").await;
    let refused = [
        "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n",
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nhost: a, b\r\n",
        "GET / HTTP/1.1\r\nhost: a/b\r\n",
        "GET / HTTP/1.1\r\nhost: user@a\r\n",
        "GET / HTTP/1.1\r\nhost: a b\r\n",
        "GET http://a/ HTTP/1.1\r\n",
        "GET http://a/ HTTP/1.1\r\nhost: b\r\n",
        "GET http://a:81/ HTTP/1.1\r\nhost: a\r\n",
        "GET http://user@a/ HTTP/1.1\r\nhost: a\r\n",
        "GET / HTTP/1.0\r\nhost: a\r\nhost: b\r\n",
    ];
    for head in refused {
        let answer = exchange(proxy.address, format!("{head}connection: close\r\n\r\n").as_bytes()).await;
        assert_eq!(status(&answer), 400, "{head}");
        assert!(answer.contains("Host"), "{answer}");
    }
    let forwarded = [
        ("GET / HTTP/1.1\r\nhost: a.example:81\r\n", "a.example:81"),
        ("GET / HTTP/1.1\r\nhost: [::1]:81\r\n", "[::1]:81"),
        ("GET / HTTP/1.1\r\nhost:\r\n", ""),
        ("GET http://A.example/ HTTP/1.1\r\nhost: a.example:80\r\n", "A.example"),
        ("GET / HTTP/1.0\r\n", &upstream.address.to_string()),
    ];
    for (head, host) in forwarded {
        let request = format!("{head}connection: close\r\n\r\n");
        assert_eq!(status_of(&proxy, &request).await, 200, "{head}");
        assert_eq!(upstream.received().last().unwrap().header("host"), [host], "{head}");
    }
    assert_eq!(upstream.received().len(), forwarded.len());
    proxy.context.tasks.stop(LIMIT).await;
    let summary = proxy.gateway.statistics().summary().await.unwrap();
    assert_eq!((summary.accepted, summary.limited), (forwarded.len() as u64, refused.len() as u64));
}

fn upgrade(lines: &str) -> String {
    format!("GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\n{lines}\r\n\r\n")
}

/// After an upgrade, a client could send requests that are neither counted nor limited.
#[tokio::test]
async fn other_protocols_than_websocket_are_not_upgraded() {
    let upstream = Recorder::start().await;
    let proxy = TestProxy::start(
        &[upstream.address],
        "count_loopback = true\nheader_timeout = \"5s\"\n[[rules]]\nname = \"all\"\nwindows = \"4/1h\"\n",
    )
    .await;
    let hidden = get("/hidden");
    for protocol in ["upgrade: h2c", "upgrade: TLS/1.0, HTTP/2.0"] {
        // The second request does not pass as the bytes of another protocol.
        let answer = exchange(proxy.address, format!("{}{hidden}", upgrade(protocol)).as_bytes()).await;
        assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 2, "{answer}");
    }
    let received = upstream.received();
    assert_eq!(received.len(), 4);
    assert!(received.iter().all(|request| request.header("upgrade").is_empty()), "{received:?}");
    // The limit is reached; it applies to a WebSocket, too.
    let answer = exchange(proxy.address, upgrade("upgrade: websocket").as_bytes()).await;
    assert_eq!(status(&answer), 429);
    proxy.context.tasks.stop(LIMIT).await;
    let summary = proxy.gateway.statistics().summary().await.unwrap();
    assert_eq!((summary.accepted, summary.limited), (4, 1));
}

/// Opens an upgraded connection, and returns the protocol that the upstream was asked for.
async fn upgraded(proxy: &TestProxy, upstream: &Recorder, lines: &str) -> String {
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(upgrade(lines).as_bytes()).await.unwrap();
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        let byte = tokio::time::timeout(LIMIT, stream.read_u8()).await.unwrap().unwrap();
        answer.push(byte.into());
    }
    assert_eq!(status(&answer), 101, "{answer}");
    stream.write_all(b"hello").await.unwrap();
    let mut echoed = [0; 5];
    tokio::time::timeout(LIMIT, stream.read_exact(&mut echoed)).await.unwrap().unwrap();
    assert_eq!(&echoed, b"hello");
    upstream.received().last().unwrap().header("upgrade").join("|")
}

#[tokio::test]
async fn listed_protocols_are_upgraded() {
    let upstream = Recorder::start().await;
    let proxy = TestProxy::start(&[upstream.address], "").await;
    for lines in ["upgrade: websocket", "upgrade: h2c, WebSocket", "upgrade: h2c\r\nupgrade: websocket"] {
        let protocol = upgraded(&proxy, &upstream, lines).await;
        assert!(protocol.eq_ignore_ascii_case("websocket"), "{lines}: {protocol}");
    }
    let proxy = TestProxy::start(&[upstream.address], "upgrades = [\"irc/6.9\"]").await;
    assert_eq!(upgraded(&proxy, &upstream, "upgrade: websocket, IRC/6.9").await, "IRC/6.9");
}

/// An upstream cannot switch to a protocol that was not asked for.
#[tokio::test]
async fn upgrade_to_another_protocol_than_requested_is_refused() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream
                .write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
                .await;
        }
    });
    let proxy = TestProxy::start(&[address], "header_timeout = \"5s\"").await;
    let answer = exchange(proxy.address, upgrade("upgrade: websocket").as_bytes()).await;
    assert_eq!(status(&answer), 502, "{answer}");
}
