//! Checks of well-behaved targets.

use std::convert::Infallible;

use hob_service::config::{Live, Secrets};
use hob_uptime::probe::{Limits, Probe};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::identity::{Authority, Flaw};
use crate::secrets::secret;
use crate::target::{Target, answer, check, get, outcome, probe, run};

#[tokio::test]
async fn phases_are_timed() {
    let target = Target::responding(|_| answer(200, "", "hello")).await;
    let seen = run(&probe(Limits::default()), &get(&target.url("/")), &[]).await;
    assert_eq!(outcome(&seen), ("ok".to_owned(), "200".to_owned()));
    assert_eq!((seen.phases.dns, seen.phases.tls), (None, None), "an address is not resolved");
    let parts = seen.phases.connect.unwrap() + seen.phases.first_byte.unwrap();
    assert!(parts <= seen.phases.total.unwrap());
    assert_eq!(seen.address, Some(target.address));
}

#[tokio::test]
async fn every_assertion_has_a_result() {
    let target =
        Target::responding(|_| answer(200, "content-type: application/json\r\n", r#"{"ok":true,"n":3}"#))
            .await;
    let asserted = [
        "status in 200..299",
        "json $.n > 5",
        "header content-type contains \"json\"",
        "body contains \"ok\"",
        "latency < 60s",
    ];
    let seen = run(&probe(Limits::default()), &get(&target.url("/")), &asserted).await;
    let holds: Vec<bool> = seen.assertions.iter().map(|result| result.holds).collect();
    assert_eq!(holds, [true, false, true, true, true]);
    assert_eq!(outcome(&seen), ("assertion".to_owned(), "json $.n > 5: found 3".to_owned()));
}

#[tokio::test]
async fn status_from_400_on_is_a_failure_unless_asserted() {
    let target = Target::responding(|_| answer(503, "", "")).await;
    let (probe, check) = (probe(Limits::default()), get(&target.url("/")));
    let seen = run(&probe, &check, &[]).await;
    assert_eq!(outcome(&seen), ("assertion".to_owned(), "the status is 503".to_owned()));
    assert_eq!(outcome(&run(&probe, &check, &["status == 503"]).await).0, "ok");
}

#[tokio::test]
async fn check_sends_its_request_on_a_new_connection() {
    let target = Target::responding(|_| answer(201, "", "")).await;
    let json = format!(
        r#"{{"kind":"http","target":"{}","http":{{"method":"POST","body":"ping","headers":{{"x-one":"1"}}}}}}"#,
        target.url("/hook?a=b")
    );
    let (probe, check) = (probe(Limits::default()), check(&json));
    for _ in 0..2 {
        assert_eq!(outcome(&run(&probe, &check, &[]).await).1, "201");
    }
    let requests = target.requests();
    assert!(requests[0].starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{}", requests[0]);
    for header in [format!("host: {}", target.address), "x-one: 1".to_owned(), "connection: close".to_owned()]
    {
        assert!(requests[0].contains(&header), "{header} in {}", requests[0]);
    }
    assert_eq!(target.connections(), 2);
}

#[tokio::test]
async fn secrets_are_read_when_the_check_runs_and_not_sent_after_a_redirect() {
    let folder = tempfile::tempdir().unwrap();
    let listed = secret(&folder, "s3cret\n", &["uptime"], &["127.0.0.1"]);
    let probe = Probe::new(Limits::default(), Secrets::new(Live::fixed(listed)));

    let elsewhere = Target::responding(|_| answer(200, "", "")).await;
    let location = format!("location: {}\r\n", elsewhere.url("/"));
    let target = Target::responding(move |_| answer(302, &location, "")).await;
    let json = format!(
        r#"{{"kind":"http","target":"{}","http":{{"auth":{{"basic":{{"user":"ann","password":"token"}}}}}}}}"#,
        target.url("/")
    );
    assert_eq!(outcome(&run(&probe, &check(&json), &[]).await).0, "ok");
    assert!(
        target.requests()[0].contains("authorization: Basic YW5uOnMzY3JldA=="),
        "{:?}",
        target.requests()
    );
    assert!(!elsewhere.requests()[0].contains("authorization"), "{:?}", elsewhere.requests());

    std::fs::remove_file(folder.path().join("token")).unwrap();
    let (class, message) = outcome(&run(&probe, &check(&json), &[]).await);
    assert_eq!(class, "misconfigured");
    assert!(!message.contains("s3cret"));
}

#[tokio::test]
async fn redirects_are_followed_up_to_the_limit() {
    let target = Target::responding(|head| match head.split(' ').nth(1) {
        Some("/a") => answer(302, "location: b\r\n", "moved"),
        Some("/b") => answer(307, "location: /c\r\n", "moved"),
        _ => answer(200, "", "here"),
    })
    .await;
    let probe = probe(Limits::default());
    let seen = run(&probe, &get(&target.url("/a")), &["body == \"here\""]).await;
    assert_eq!((outcome(&seen).0.as_str(), target.connections()), ("ok", 3));
    for (redirects, expected) in [(0, "ok"), (1, "redirect"), (2, "ok")] {
        let json = format!(
            r#"{{"kind":"http","target":"{}","http":{{"redirects":{redirects}}}}}"#,
            target.url("/a")
        );
        assert_eq!(outcome(&run(&probe, &check(&json), &[]).await).0, expected, "{redirects} redirects");
    }
}

#[tokio::test]
async fn certificate_is_trusted_and_its_expiry_is_reported() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(Flaw::None, &["http/1.1"]);
    let target = Target::responding_over_tls(acceptor, |_| answer(200, "", "")).await;
    let probe = probe(Limits { roots: vec![authority.root()], ..Limits::default() });
    let seen = run(&probe, &get(&format!("https://{}/", target.address)), &["certificate days > 1000"]).await;
    assert_eq!(outcome(&seen).0, "ok", "{seen:?}");
    assert!(seen.phases.tls.is_some() && seen.certificate.unwrap().days_left() > 1000);

    let bare = check(&format!(r#"{{"kind":"certificate","target":"{}"}}"#, target.address));
    let seen = run(&probe, &bare, &["certificate days > 1000000"]).await;
    assert_eq!(outcome(&seen).0, "assertion");
}

#[tokio::test]
async fn http2_is_used_if_the_server_offers_it() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(Flaw::None, &["h2"]);
    let target = Target::raw(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let answer =
                hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                    let echo = format!("{:?} {}", request.version(), request.uri());
                    Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from(echo))))
                });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), answer).await;
        }
    })
    .await;
    let probe = probe(Limits { roots: vec![authority.root()], ..Limits::default() });
    let url = format!("https://{}/x?y", target.address);
    let expected = format!("body == \"HTTP/2.0 {url}\"");
    for version in ["auto", "2"] {
        let json = format!(r#"{{"kind":"http","target":"{url}","http":{{"version":"{version}"}}}}"#);
        let seen = run(&probe, &check(&json), &[&expected]).await;
        assert_eq!(outcome(&seen).0, "ok", "{version}: {seen:?}");
    }
    let json = format!(r#"{{"kind":"http","target":"{url}","http":{{"version":"1.1"}}}}"#);
    assert_eq!(outcome(&run(&probe, &check(&json), &[]).await).0, "protocol");
}

#[tokio::test]
async fn open_port_is_up() {
    let target = Target::raw(|stream| async { drop(stream) }).await;
    let address = target.address;
    let check = check(&format!(r#"{{"kind":"tcp","target":"{address}"}}"#));
    let probe = probe(Limits::default());
    let seen = run(&probe, &check, &[]).await;
    assert_eq!(outcome(&seen), ("ok".to_owned(), "0".to_owned()));
    assert!(seen.phases.connect.is_some());
}

#[tokio::test]
async fn closed_port_is_a_connect_failure() {
    // Bound but not listening, so that no other process gets the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let check = check(&format!(r#"{{"kind":"tcp","target":"{address}"}}"#));
    let seen = run(&probe(Limits::default()), &check, &[]).await;
    assert_eq!(outcome(&seen).0, "connect");
}
