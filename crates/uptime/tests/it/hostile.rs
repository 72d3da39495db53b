//! Targets that wish us ill. Each check of them ends in time, takes in no more than it should, and says what was
//! wrong.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hob_uptime::probe::{Limits, Targets};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::identity::{Authority, Flaw};
use crate::target::{Target, answer, check, get, outcome, probe, read_head, run, run_within};

/// The time of checks that will use it all.
const SHORT: Duration = Duration::from_millis(300);

/// What the target's part of a connection can hold: the buffers of both sides.
const IN_FLIGHT: usize = 16 << 20;

/// Says `begin`, and then `more` for as long as anybody takes it.
async fn pour(mut stream: TcpStream, begin: &'static str, more: &'static [u8], poured: Arc<AtomicUsize>) {
    read_head(&mut stream).await;
    let mut next = begin.as_bytes();
    while stream.write_all(next).await.is_ok() {
        poured.fetch_add(next.len(), Ordering::SeqCst);
        next = more;
    }
}

/// Says `begin`, and then `more` byte by byte, with pauses.
async fn drip(mut stream: TcpStream, begin: &'static str, more: &'static [u8]) {
    read_head(&mut stream).await;
    if stream.write_all(begin.as_bytes()).await.is_err() {
        return;
    }
    for byte in more.iter().cycle() {
        if stream.write_all(&[*byte]).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The failure of a check of a target that serves like this, with a body that is kept.
async fn failure<F>(serve: impl Fn(TcpStream) -> F + Send + 'static, timeout: Duration) -> (String, String)
where
    F: Future<Output = ()> + Send + 'static,
{
    let target = Target::raw(serve).await;
    let limits = Limits { max_body_bytes: 64 * 1024, ..Limits::default() };
    outcome(&run_within(&probe(limits), &get(&target.url("/")), &["body contains \"x\""], timeout).await)
}

const PATIENT: Duration = hob_testkit::LIMIT;

#[tokio::test]
async fn silence_ends_with_the_checks_time() {
    let (class, message) = failure(
        |mut stream| async move {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        },
        SHORT,
    )
    .await;
    assert_eq!((class.as_str(), message.as_str()), ("timeout", "there was no answer after 300ms"));
}

#[tokio::test]
async fn an_answer_that_drips_ends_with_the_checks_time() {
    let head = failure(|stream| drip(stream, "HTTP/1.1 200 OK\r\nx: ", b"y"), SHORT).await;
    assert_eq!(head, ("timeout".to_owned(), "there was no answer after 300ms".to_owned()));
    let body = failure(|stream| drip(stream, "HTTP/1.1 200 OK\r\n\r\n", b"y"), SHORT).await;
    assert_eq!(body, ("timeout".to_owned(), "the answer had not ended after 300ms".to_owned()));
}

#[tokio::test]
async fn endless_provisional_answers_end_with_the_checks_time() {
    let poured = Arc::default();
    let serve = move |stream| pour(stream, "", b"HTTP/1.1 102 Processing\r\n\r\n", Arc::clone(&poured));
    assert_eq!(failure(serve, SHORT).await.0, "timeout");
}

#[tokio::test]
async fn a_reset_is_a_connection_that_was_closed() {
    let serve = |mut stream: TcpStream| async move {
        read_head(&mut stream).await;
        let _ = stream.set_zero_linger();
    };
    assert_eq!(failure(serve, PATIENT).await.0, "closed");
}

#[tokio::test]
async fn an_end_before_the_answer_is_a_connection_that_was_closed() {
    let serve = |mut stream: TcpStream| async move {
        read_head(&mut stream).await;
    };
    assert_eq!(failure(serve, PATIENT).await.0, "closed");
}

#[tokio::test]
async fn a_body_shorter_than_its_length_is_a_connection_that_was_closed() {
    for begin in [
        "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\nshort",
    ] {
        let serve = move |mut stream: TcpStream| async move {
            read_head(&mut stream).await;
            let _ = stream.write_all(begin.as_bytes()).await;
        };
        assert_eq!(failure(serve, PATIENT).await.0, "closed", "{begin}");
    }
}

#[tokio::test]
async fn what_is_not_http_is_told_apart() {
    for nonsense in [
        "\u{1}\u{2}\u{3}garbage\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/1.1 9999 What\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
    ] {
        let serve = move |mut stream: TcpStream| async move {
            read_head(&mut stream).await;
            let _ = stream.write_all(nonsense.as_bytes()).await;
        };
        assert_eq!(failure(serve, PATIENT).await.0, "protocol", "{nonsense:?}");
    }
}

#[tokio::test]
async fn an_endless_body_is_cut() {
    static MORE: [u8; 8192] = [b'y'; 8192];
    let poured = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&poured);
    let serve = move |stream| pour(stream, "HTTP/1.1 200 OK\r\n\r\n", &MORE, Arc::clone(&count));
    let (class, message) = failure(serve, PATIENT).await;
    assert_eq!((class.as_str(), message.as_str()), ("protocol", "the body has more than 65536 bytes"));
    assert!(poured.load(Ordering::SeqCst) < IN_FLIGHT);
}

#[tokio::test]
async fn a_flood_of_headers_is_cut() {
    static LONG: [u8; 8192] = [b'y'; 8192];
    for (begin, more) in [("HTTP/1.1 200 OK\r\nx: ", LONG.as_slice()), ("HTTP/1.1 200 OK\r\n", b"x: y\r\n")] {
        let poured = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&poured);
        let (class, message) =
            failure(move |stream| pour(stream, begin, more, Arc::clone(&count)), PATIENT).await;
        assert_eq!((class.as_str(), message.as_str()), ("protocol", "the head of the answer is too large"));
        assert!(poured.load(Ordering::SeqCst) < IN_FLIGHT);
    }
}

#[tokio::test]
async fn endless_redirects_end() {
    let count = Arc::new(AtomicUsize::new(0));
    let next = Arc::clone(&count);
    let target = Target::responding(move |_| {
        let n = next.fetch_add(1, Ordering::SeqCst);
        answer(302, &format!("location: /{n}\r\n"), "")
    })
    .await;
    let seen = run(&probe(Limits::default()), &get(&target.url("/")), &[]).await;
    assert_eq!((outcome(&seen).0.as_str(), target.connections()), ("redirect", 6));
}

#[tokio::test]
async fn two_targets_that_point_at_each_other_end() {
    let first = Target::responding(|head| {
        let port = head.lines().find_map(|line| line.strip_prefix("host: 127.0.0.1:")).unwrap().to_owned();
        answer(307, &format!("location: http://127.0.0.1:{port}/again\r\n"), "")
    })
    .await;
    let seen = run(&probe(Limits::default()), &get(&first.url("/")), &[]).await;
    assert_eq!(outcome(&seen).0, "redirect");
}

#[tokio::test]
async fn a_redirect_out_of_the_allowed_network_is_not_followed() {
    let private = Target::on(Ipv4Addr::new(127, 0, 0, 3).into(), |stream| async { drop(stream) }).await;
    let location = format!("location: http://{}/\r\n", private.address);
    let target = Target::responding(move |_| answer(301, &location, "")).await;
    let allowed = vec!["127.0.0.1/32".parse().unwrap()];
    let probe = probe(Limits { targets: Targets::Public { allowed }, ..Limits::default() });
    let seen = run(&probe, &get(&target.url("/")), &[]).await;
    assert_eq!((outcome(&seen).0.as_str(), private.connections()), ("forbidden", 0));
}

#[tokio::test]
async fn bad_certificates_are_told_apart() {
    let authority = Authority::new();
    let probe = probe(Limits { roots: vec![authority.root()], ..Limits::default() });
    for (flaw, told) in [
        (Flaw::Expired, "the certificate has expired"),
        (Flaw::WrongHost, "the certificate is for other names: other.example"),
        (Flaw::SelfSigned, "the certificate is signed by nobody whom we trust"),
    ] {
        let target =
            Target::responding_over_tls(authority.acceptor(flaw, &[]), |_| answer(200, "", "")).await;
        let bare = check(&format!(r#"{{"kind":"certificate","target":"{}"}}"#, target.address));
        for check in [get(&format!("https://{}/", target.address)), bare] {
            let seen = run(&probe, &check, &[]).await;
            assert_eq!(outcome(&seen), ("tls".to_owned(), told.to_owned()));
            assert_eq!(seen.certificate_days.is_some_and(|days| days < -1000), flaw == Flaw::Expired);
        }
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_told_apart() {
    let target = Target::raw(|mut stream| async move {
        let _ = stream.write_all(answer(400, "", "speak HTTP").as_bytes()).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let seen = run(&probe(Limits::default()), &get(&format!("https://{}/", target.address)), &[]).await;
    assert_eq!(outcome(&seen).0, "tls");
    let silent = Target::raw(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let check = get(&format!("https://{}/", silent.address));
    let seen = run_within(&probe(Limits::default()), &check, &[], SHORT).await;
    assert_eq!(outcome(&seen).1, "the TLS handshake was not done after 300ms");
    assert!(seen.phases.connect.is_some(), "what was timed before the time was up is told");
}

#[tokio::test]
async fn nonsense_behind_a_good_handshake_is_told_apart() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(Flaw::None, &["h2"]);
    let target = Target::responding_over_tls(acceptor, |_| "no frames at all".repeat(100)).await;
    let probe = probe(Limits { roots: vec![authority.root()], ..Limits::default() });
    let seen = run(&probe, &get(&format!("https://{}/", target.address)), &[]).await;
    assert_eq!(outcome(&seen).0, "protocol", "{seen:?}");
}

#[tokio::test]
async fn a_document_of_a_million_brackets_is_no_json() {
    let target = Target::responding(|_| answer(200, "", &"[".repeat(1_000_000))).await;
    let seen = run(&probe(Limits::default()), &get(&target.url("/")), &["json $[0] exists"]).await;
    assert_eq!(outcome(&seen), ("assertion".to_owned(), "json $[0] exists: found no JSON".to_owned()));
}
