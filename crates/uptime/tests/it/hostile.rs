//! Hostile targets: every check ends in time, reads a bounded amount, and reports the failure.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hob_uptime::probe::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::identity::{Authority, Flaw};
use crate::target::{Target, answer, check, get, only, outcome, probe, read_head, run, run_within};

/// Timeout of checks that will time out.
const SHORT: Duration = Duration::from_millis(300);

/// More than the socket buffers of both sides hold.
const IN_FLIGHT: usize = 16 << 20;

/// Sends `begin`, and then `more` until the connection is closed.
async fn pour(mut stream: TcpStream, begin: &'static str, more: &'static [u8], poured: Arc<AtomicUsize>) {
    read_head(&mut stream).await;
    let mut next = begin.as_bytes();
    while stream.write_all(next).await.is_ok() {
        poured.fetch_add(next.len(), Ordering::SeqCst);
        next = more;
    }
}

/// Sends `begin`, and then `more` byte by byte with pauses.
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

/// The failure of a check, with an assertion on the body.
async fn failure<F>(serve: impl Fn(TcpStream) -> F + Send + 'static, timeout: Duration) -> (String, String)
where
    F: Future<Output = ()> + Send + 'static,
{
    let target = Target::raw(serve).await;
    let limits = Limits { max_body_bytes: 64 * 1024, ..Limits::default() };
    outcome(&run_within(&probe(limits), &get(&target.url("/")), &["body contains \"x\""], timeout).await)
}

const NO_TIMEOUT: Duration = hob_testkit::LIMIT;

#[tokio::test]
async fn silent_target_times_out() {
    let (class, message) = failure(
        |mut stream| async move {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        },
        SHORT,
    )
    .await;
    assert_eq!((class.as_str(), message.as_str()), ("timeout", "no response after 300ms"));
}

#[tokio::test]
async fn slow_response_times_out() {
    let head = failure(|stream| drip(stream, "HTTP/1.1 200 OK\r\nx: ", b"y"), SHORT).await;
    assert_eq!(head, ("timeout".to_owned(), "no response after 300ms".to_owned()));
    // On a busy machine the head may take long to arrive.
    let timeout = Duration::from_secs(3);
    let body = failure(|stream| drip(stream, "HTTP/1.1 200 OK\r\n\r\n", b"y"), timeout).await;
    assert_eq!(body, ("timeout".to_owned(), "the response was not complete after 3s".to_owned()));
}

#[tokio::test]
async fn endless_provisional_responses_time_out() {
    let poured = Arc::default();
    let serve = move |stream| pour(stream, "", b"HTTP/1.1 102 Processing\r\n\r\n", Arc::clone(&poured));
    assert_eq!(failure(serve, SHORT).await.0, "timeout");
}

#[tokio::test]
async fn reset_is_a_closed_connection() {
    let serve = |mut stream: TcpStream| async move {
        read_head(&mut stream).await;
        let _ = stream.set_zero_linger();
    };
    assert_eq!(failure(serve, NO_TIMEOUT).await.0, "closed");
}

#[tokio::test]
async fn missing_response_is_a_closed_connection() {
    let serve = |mut stream: TcpStream| async move {
        read_head(&mut stream).await;
    };
    assert_eq!(failure(serve, NO_TIMEOUT).await.0, "closed");
}

#[tokio::test]
async fn truncated_body_is_a_closed_connection() {
    for begin in [
        "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\nshort",
    ] {
        let serve = move |mut stream: TcpStream| async move {
            read_head(&mut stream).await;
            let _ = stream.write_all(begin.as_bytes()).await;
        };
        assert_eq!(failure(serve, NO_TIMEOUT).await.0, "closed", "{begin}");
    }
}

#[tokio::test]
async fn malformed_response_is_a_protocol_failure() {
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
        assert_eq!(failure(serve, NO_TIMEOUT).await.0, "protocol", "{nonsense:?}");
    }
}

#[tokio::test]
async fn endless_body_is_a_failure() {
    static MORE: [u8; 8192] = [b'y'; 8192];
    let poured = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&poured);
    let serve = move |stream| pour(stream, "HTTP/1.1 200 OK\r\n\r\n", &MORE, Arc::clone(&count));
    let (class, message) = failure(serve, NO_TIMEOUT).await;
    assert_eq!((class.as_str(), message.as_str()), ("protocol", "the body has more than 65536 bytes"));
    assert!(poured.load(Ordering::SeqCst) < IN_FLIGHT);
}

#[tokio::test]
async fn endless_headers_are_a_failure() {
    static LONG: [u8; 8192] = [b'y'; 8192];
    for (begin, more) in [("HTTP/1.1 200 OK\r\nx: ", LONG.as_slice()), ("HTTP/1.1 200 OK\r\n", b"x: y\r\n")] {
        let poured = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&poured);
        let (class, message) =
            failure(move |stream| pour(stream, begin, more, Arc::clone(&count)), NO_TIMEOUT).await;
        assert_eq!((class.as_str(), message.as_str()), ("protocol", "the response head is too large"));
        assert!(poured.load(Ordering::SeqCst) < IN_FLIGHT);
    }
}

#[tokio::test]
async fn redirects_are_bounded() {
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
async fn redirect_loop_is_a_failure() {
    let first = Target::responding(|head| {
        let port = head.lines().find_map(|line| line.strip_prefix("host: 127.0.0.1:")).unwrap().to_owned();
        answer(307, &format!("location: http://127.0.0.1:{port}/again\r\n"), "")
    })
    .await;
    let seen = run(&probe(Limits::default()), &get(&first.url("/")), &[]).await;
    assert_eq!(outcome(&seen).0, "redirect");
}

#[tokio::test]
async fn redirect_out_of_the_allowed_network_is_refused() {
    let private = Target::on(Ipv4Addr::new(127, 0, 0, 3).into(), |stream| async { drop(stream) }).await;
    let location = format!("location: http://{}/\r\n", private.address);
    let target = Target::responding(move |_| answer(301, &location, "")).await;
    let probe = probe(Limits { outbound: only(&["127.0.0.1"]), ..Limits::default() });
    let seen = run(&probe, &get(&target.url("/")), &[]).await;
    assert_eq!((outcome(&seen).0.as_str(), private.connections()), ("forbidden", 0));
}

#[tokio::test]
async fn invalid_certificates_are_reported() {
    let authority = Authority::new();
    let probe = probe(Limits { roots: vec![authority.root()], ..Limits::default() });
    for (flaw, message) in [
        (Flaw::Expired, "the certificate has expired"),
        (Flaw::WrongHost, "the certificate is for other names: other.example"),
        (Flaw::SelfSigned, "the certificate is signed by an unknown issuer"),
        (
            Flaw::SelfSignedAuthority,
            "the certificate is self-signed, or is that of an authority instead of a server",
        ),
    ] {
        let target =
            Target::responding_over_tls(authority.acceptor(flaw, &[]), |_| answer(200, "", "")).await;
        let bare = check(&format!(r#"{{"kind":"certificate","target":"{}"}}"#, target.address));
        for check in [get(&format!("https://{}/", target.address)), bare] {
            let seen = run(&probe, &check, &[]).await;
            assert_eq!(outcome(&seen), ("tls".to_owned(), message.to_owned()));
            assert_eq!(
                seen.certificate.is_some_and(|certificate| certificate.days_left() < -1000),
                flaw == Flaw::Expired
            );
        }
    }
}

#[tokio::test]
async fn server_without_tls_is_reported() {
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
    assert_eq!(outcome(&seen).1, "the TLS handshake was not complete after 300ms");
    assert!(seen.phases.connect.is_some(), "phases before the timeout are reported");
}

#[tokio::test]
async fn malformed_http2_is_a_protocol_failure() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(Flaw::None, &["h2"]);
    let target = Target::responding_over_tls(acceptor, |_| "no frames at all".repeat(100)).await;
    let probe = probe(Limits { roots: vec![authority.root()], ..Limits::default() });
    let seen = run(&probe, &get(&format!("https://{}/", target.address)), &[]).await;
    assert_eq!(outcome(&seen).0, "protocol", "{seen:?}");
}

#[tokio::test]
async fn deeply_nested_json_is_refused() {
    let target = Target::responding(|_| answer(200, "", &"[".repeat(1_000_000))).await;
    let seen = run(&probe(Limits::default()), &get(&target.url("/")), &["json $[0] exists"]).await;
    assert_eq!(outcome(&seen), ("assertion".to_owned(), "json $[0] exists: found no JSON".to_owned()));
}
