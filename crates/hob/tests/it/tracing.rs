//! Traces through the real binary, received by a collector.

mod collector;

use hob_testkit::{LIMIT, wait_for};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::json;

use crate::program::{Response, Server, send};
use collector::{Collector, ReceivedSpan, Upstream};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// The parts of a `traceparent` of version 00: trace, span and flags.
#[track_caller]
fn parts(traceparent: &str) -> (String, String, String) {
    let parts: Vec<&str> = traceparent.split('-').collect();
    let [version, trace, span, flags] = parts[..] else { panic!("{traceparent:?}") };
    assert_eq!((version, trace.len(), span.len(), flags.len()), ("00", 32, 16, 2), "{traceparent}");
    (trace.to_owned(), span.to_owned(), flags.to_owned())
}

fn config(upstream: &Upstream, tracing: &str) -> String {
    format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nupstream = [\"{}\"]\ncount_loopback = true\nroutes = [\"/:status/:name\"]\n\
         [[gateway.rules]]\nname = \"one-call\"\nroute = \"/200/limited\"\nwindows = \"1/1h\"\n[tracing]\n{tracing}\n",
        upstream.url()
    )
}

/// Sends a request through the gateway.
fn call(server: &Server, path: &str, headers: &str) -> Response {
    let address = server.gateway.expect("the gateway has an upstream");
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: api.example:8080\r\n{headers}Connection: close\r\n\r\n");
    send(address, &request).expect("no response from the gateway")
}

fn with_path(path: &str) -> impl Fn(&ReceivedSpan) -> bool {
    move |span| span.get("url.path") == path
}

fn counter(server: &Server, name: &str) -> u64 {
    let page = server.get("/metrics").body;
    let line = page.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.and_then(|line| line.rsplit_once(' ')).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_continues_the_trace_of_a_request() {
    let (collector, upstream) = (Collector::start().await, Upstream::start().await);
    let settings = format!("endpoint = \"{}\"\nservice_name = \"edge\"", collector.url());
    let server = Server::start_configured("127.0.0.1:0", &config(&upstream, &settings));
    let headers = format!("traceparent: {}\r\ntracestate: a=1,b=2\r\n", traceparent("01"));
    assert_eq!(call(&server, "/200/continued?key=hunter2", &headers).status, 200);
    let span = collector.wait_for("the span of the request", with_path("/200/continued")).await;
    let (trace, id) = span.ids();
    assert_eq!((trace.as_str(), span.parent()), (TRACE, PARENT.to_owned()));
    // The upstream has the gateway as its parent.
    assert_eq!(parts(&upstream.header("continued", "traceparent")), (trace, id, "01".to_owned()));
    assert_eq!(upstream.header("continued", "tracestate"), "a=1,b=2");
    assert_eq!((span.span.trace_state.as_str(), span.span.kind()), ("a=1,b=2", SpanKind::Server));
    assert_eq!(span.name(), "GET /:status/:name");
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.route", "/:status/:name"),
        ("http.response.status_code", "200"),
        ("url.scheme", "http"),
        ("server.address", "api.example"),
        ("server.port", "8080"),
        ("client.address", "127.0.0.1"),
        ("error.type", ""),
    ] {
        assert_eq!(span.get(key), value, "{key}");
    }
    assert_eq!(
        (span.resource("service.name"), span.resource("service.version")),
        ("edge", env!("CARGO_PKG_VERSION"))
    );
    assert!(!format!("{:?}", collector.spans()).contains("hunter2"), "the query is not exported");
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_starts_a_trace_if_there_is_no_valid_one() {
    let (collector, upstream) = (Collector::start().await, Upstream::start().await);
    let settings = format!("endpoint = \"{}\"", collector.url());
    let server = Server::start_configured("127.0.0.1:0", &config(&upstream, &settings));
    let zeros = format!("traceparent: 00-{}-{PARENT}-01\r\ntracestate: a=1\r\n", "0".repeat(32));
    let twice = format!("traceparent: {0}\r\ntraceparent: {0}\r\n", traceparent("01"));
    for (name, headers) in [("none", ""), ("zeros", &zeros), ("twice", &twice)] {
        let path = format!("/200/{name}");
        call(&server, &path, headers);
        let span = collector.wait_for(name, with_path(&path)).await;
        let (trace, id) = span.ids();
        assert!(trace != TRACE && span.parent().is_empty(), "{name}: {span:?}");
        assert_eq!(parts(&upstream.header(name, "traceparent")), (trace, id, "01".to_owned()), "{name}");
        assert_eq!(upstream.header(name, "tracestate"), "", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_of_the_client_not_to_sample_is_respected() {
    let (collector, upstream) = (Collector::start().await, Upstream::start().await);
    let settings = format!("endpoint = \"{}\"", collector.url());
    let server = Server::start_configured("127.0.0.1:0", &config(&upstream, &settings));
    call(&server, "/200/unsampled", &format!("traceparent: {}\r\n", traceparent("00")));
    let (trace, id, flags) = parts(&upstream.header("unsampled", "traceparent"));
    assert_eq!((trace.as_str(), flags.as_str()), (TRACE, "00"));
    assert_ne!(id, PARENT, "the gateway is the parent of the upstream also in a trace that is not recorded");
    // Spans are exported in the order in which they ended.
    call(&server, "/200/sampled", "");
    collector.wait_for("a later span", with_path("/200/sampled")).await;
    assert!(!collector.spans().iter().any(with_path("/200/unsampled")));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_refusals_are_in_the_span() {
    let (collector, upstream) = (Collector::start().await, Upstream::start().await);
    let settings = format!("endpoint = \"{}\"", collector.url());
    let server = Server::start_configured("127.0.0.1:0", &config(&upstream, &settings));
    let status = |span: &ReceivedSpan| span.span.status.clone().unwrap_or_default().code();
    call(&server, "/503/failed", "");
    let failed = collector.wait_for("the failed request", with_path("/503/failed")).await;
    assert_eq!((failed.get("error.type"), status(&failed)), ("503", StatusCode::Error));
    call(&server, "/404/missing", "");
    let missing = collector.wait_for("the missing page", with_path("/404/missing")).await;
    assert_eq!((missing.get("http.response.status_code"), status(&missing)), ("404", StatusCode::Unset));
    assert_eq!(call(&server, "/200/limited", "").status, 200);
    assert_eq!(call(&server, "/200/limited", "").status, 429);
    let is_refused = |span: &ReceivedSpan| span.get("hob.refusal") == "limited";
    let refused = collector.wait_for("the refused request", is_refused).await;
    assert_eq!(
        (refused.get("hob.rate_limit.rule"), refused.get("http.response.status_code")),
        ("one-call", "429")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_the_context_is_passed_on() {
    let upstream = Upstream::start().await;
    let server = Server::start_configured("127.0.0.1:0", &config(&upstream, "sample_ratio = 0"));
    for (name, value) in [
        ("sampled", traceparent("01")),
        ("unsampled", traceparent("00")),
        // Of a later version.
        ("later", format!("cc-{TRACE}-{PARENT}-03-more")),
    ] {
        call(&server, &format!("/200/{name}"), &format!("traceparent: {value}\r\ntracestate: a=1\r\n"));
        assert_eq!(upstream.header(name, "traceparent"), value);
        assert_eq!(upstream.header(name, "tracestate"), "a=1");
    }
    for (name, headers) in [("none", ""), ("invalid", "traceparent: 00-1-2-3\r\ntracestate: a=1\r\n")] {
        call(&server, &format!("/200/{name}"), headers);
        let (trace, _, flags) = parts(&upstream.header(name, "traceparent"));
        assert!(trace != TRACE && flags == "00", "{name}: {trace} {flags}");
        assert_eq!(upstream.header(name, "tracestate"), "", "{name}");
    }
    let tasks = server.get("/metrics").body;
    assert!(tasks.contains("hob_trace_spans_exported_total 0"), "{tasks}");
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_calls_and_messages_have_spans() {
    let collector = Collector::start().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2%3D".to_owned()),
        ("OTEL_SERVICE_NAME", "demo".to_owned()),
        ("OTEL_TRACES_SAMPLER_ARG", "1.0".to_owned()),
    ];
    // The demo has monitors, a pipeline and users who chat.
    let server = Server::launch("127.0.0.1:0", |command| command.arg("--demo").envs(variables));
    let check = collector
        .wait_for("a check", |span| {
            span.get("hob.check.kind") == "http" && !span.get("hob.check.result").is_empty()
        })
        .await;
    assert_eq!((check.name(), check.span.kind()), ("check http", SpanKind::Client));
    assert!(
        !check.get("hob.monitor.id").is_empty() && check.get("server.address") == "127.0.0.1",
        "{check:?}"
    );
    let called = collector.wait_for("a call of a pipeline", |span| span.name().starts_with("call ")).await;
    assert_eq!(called.span.kind(), SpanKind::Client);
    for key in [
        "hob.pipeline.run",
        "hob.pipeline.step",
        "hob.pipeline.item",
        "hob.pipeline.attempt",
        "hob.quota.name",
        "hob.quota.wait_ms",
        "http.request.method",
        "server.port",
    ] {
        assert!(!called.get(key).is_empty(), "{key} is missing in {called:?}");
    }
    let sent = collector.wait_for("a message", |span| span.name() == "send message").await;
    assert_eq!((sent.span.kind(), sent.resource("service.name")), (SpanKind::Producer, "demo"));
    assert!(!sent.get("messaging.destination.name").is_empty(), "{sent:?}");
    assert_eq!(collector.headers()["api-key"], "hunter2=");
    assert!(counter(&server, "hob_trace_spans_exported_total") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_sent_over_http_is_below_the_request() {
    let collector = Collector::start().await;
    let settings = format!("[tracing]\nendpoint = \"{}\"\n", collector.url());
    let server = Server::start_configured("127.0.0.1:0", &settings);
    let room = json!({ "id": "room", "title": "Room", "created_by": "ann", "members": ["bob"] }).to_string();
    let room = server.post("/api/v1/chat/conversations", &room);
    assert_eq!(room.status, 201, "{}", room.body);
    let body = json!({ "sender_id": "ann", "content": "hunter2" }).to_string();
    let sent = send(
        server.listen,
        &format!(
            "POST /api/v1/chat/conversations/room/messages HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\ntraceparent: {}\r\n\r\n{body}",
            server.listen,
            body.len(),
            traceparent("01")
        ),
    );
    assert_eq!(sent.unwrap().status, 201);
    let message = collector.wait_for("the message", |span| span.name() == "send message").await;
    let is_request = |span: &ReceivedSpan| span.name() == "POST /api/v1/chat/conversations/{id}/messages";
    let request = collector.wait_for("the request", is_request).await;
    assert_eq!((request.ids().0.as_str(), request.parent()), (TRACE, PARENT.to_owned()));
    assert_eq!((message.ids().0.as_str(), message.parent()), (TRACE, request.ids().1));
    assert_eq!(
        (message.get("messaging.destination.name"), request.get("http.response.status_code")),
        ("room", "201")
    );
    assert!(!format!("{:?}", collector.spans()).contains("hunter2"), "the content is not exported");
    server.get("/healthz");
    server.get("/api/v1/chat/conversations");
    collector.wait_for("a later request", |span| span.name() == "GET /api/v1/chat/conversations").await;
    assert!(!collector.spans().iter().any(with_path("/healthz")), "probes are not traced");
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_sent_again_and_at_the_end() {
    let (collector, upstream) = (Collector::start_failing(1).await, Upstream::start().await);
    let settings = format!("endpoint = \"{}\"", collector.url());
    let mut server = Server::start_configured("127.0.0.1:0", &config(&upstream, &settings));
    call(&server, "/200/again", "");
    collector.wait_for("the span that was refused at first", with_path("/200/again")).await;
    // The span waits for others when the process stops.
    call(&server, "/200/last", "");
    assert!(server.terminate().success());
    assert!(collector.spans().iter().any(with_path("/200/last")));
    let log = server.log();
    assert!(log.contains("failed to export spans") && log.contains("collector accepts spans again"), "{log}");
}

/// A collector that never answers. The kernel accepts the connections.
#[tokio::test(flavor = "multi_thread")]
async fn collector_that_hangs_delays_neither_requests_nor_the_end() {
    let hanging = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = Upstream::start().await;
    let settings =
        format!("endpoint = \"http://{}\"\nheaders = \"file:headers\"", hanging.local_addr().unwrap());
    let mut server = Server::launch("127.0.0.1:0", |command| {
        let folder = command.get_current_dir().unwrap().to_owned();
        std::fs::write(folder.join("headers"), "api-key=hunter2\n").unwrap();
        std::fs::write(folder.join("hob.toml"), config(&upstream, &settings)).unwrap();
        command
            .env("HOB_LOG", "trace")
            .stderr(std::fs::File::create(folder.join(crate::program::LOG)).unwrap())
    });
    hanging.set_nonblocking(true).unwrap();
    assert_eq!(call(&server, "/200/first", "").status, 200);
    let _connection = wait_for("an export to begin", LIMIT, async || hanging.accept().ok()).await;
    for _ in 0..10 {
        assert_eq!(call(&server, "/200/quick", "").status, 200);
    }
    // The export had not ended, with or without success, when the requests had.
    assert_eq!(counter(&server, "hob_trace_spans_exported_total"), 0);
    assert_eq!(counter(&server, "hob_trace_spans_dropped_total"), 0);
    assert!(server.terminate().success());
    let log = server.log();
    assert!(log.contains("spans were not exported before the process stopped"), "{log}");
    assert!(!log.contains("hunter2"), "a secret is in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_counted_if_the_collector_is_away() {
    let upstream = Upstream::start().await;
    // A port on which nothing listens.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = format!("endpoint = \"http://{closed}\"");
    let server = Server::start_configured("127.0.0.1:0", &config(&upstream, &settings));
    assert_eq!(call(&server, "/200/lost", "").status, 200);
    wait_for("the span to be counted as dropped", LIMIT, async || {
        counter(&server, "hob_trace_spans_dropped_total") > 0
    })
    .await;
    assert_eq!(server.log().matches("failed to export spans").count(), 1);
}
