//! Silent and slow clients are disconnected, and a stop ends all connections.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use hob_testkit::{LIMIT, wait_for};
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::upstream::{TestProxy, Upstream};

const SHORT_HEAD_TIMEOUT: &str = "header_timeout = \"200ms\"\n";
/// For clients that must be served: on a busy machine their requests may take long to arrive.
const HEAD_TIMEOUT: &str = "header_timeout = \"2s\"\n";

/// Reads until the gateway closes the connection.
async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut read = Vec::new();
    // A connection that is cut off may end with a reset.
    let _ = tokio::time::timeout(LIMIT, stream.read_to_end(&mut read))
        .await
        .expect("the connection is closed in time");
    read
}

async fn connect(proxy: &TestProxy, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// With `max_connections = 2`, a third client is served once two silent connections are closed.
#[tokio::test]
async fn silent_connections_are_closed() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], &format!("{HEAD_TIMEOUT}max_connections = 2")).await;
    let mut silent = [connect(&proxy, b"").await, connect(&proxy, b"").await];
    assert_eq!(proxy.get("/").await.0, StatusCode::OK);
    for stream in &mut silent {
        assert_eq!(read_to_end(stream).await, b"");
    }
}

/// A client that sends only a part of a head is disconnected.
#[tokio::test]
async fn connections_with_an_unfinished_head_are_closed() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], SHORT_HEAD_TIMEOUT).await;
    for bytes in [
        b"P".as_slice(),
        b"PRI * HTTP/2.0\r\n\r\nSM",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        b"GET / HTTP/1.1\r\nhost: a\r\nx-slow: ",
    ] {
        let mut stream = connect(&proxy, bytes).await;
        let read = read_to_end(&mut stream).await;
        assert!(!read.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&read));
    }
    assert_eq!(upstream.hits(), 0);
}

/// A head that arrives byte by byte must be complete within the timeout too.
#[tokio::test]
async fn client_with_a_slow_head_is_disconnected() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], SHORT_HEAD_TIMEOUT).await;
    let mut stream = connect(&proxy, b"GET / HTTP/1.1\r\nhost: a\r\n").await;
    wait_for("the slow client to be disconnected", LIMIT, async || {
        tokio::time::sleep(Duration::from_millis(20)).await;
        stream.write_all(b"x: y\r\n").await.is_err()
    })
    .await;
}

/// With HTTP/1.1 and HTTP/2.
#[tokio::test]
async fn idle_connections_are_closed() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], HEAD_TIMEOUT).await;
    let mut http1 = connect(&proxy, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(read_to_end(&mut http1).await.ends_with(b"hello"));

    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let ended = tokio::spawn(connection);
    let request = http::Request::get(proxy.url("/")).body(Empty::<bytes::Bytes>::new()).unwrap();
    let body = sender.send_request(request).await.unwrap().into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
    let _ = tokio::time::timeout(LIMIT, ended).await.expect("the connection is closed in time").unwrap();
}

/// A request that takes longer than `header_timeout` is in progress, and so is a response that never ends.
#[tokio::test]
async fn connections_in_use_stay_open() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], HEAD_TIMEOUT).await;
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let mut connection = tokio::spawn(connection);
    let request = http::Request::get(proxy.url("/stream")).body(Empty::<bytes::Bytes>::new()).unwrap();
    let _endless = sender.send_request(request).await.unwrap();
    // An idle connection is closed within twice the limit.
    let ended = tokio::time::timeout(Duration::from_secs(5), &mut connection).await;
    assert!(ended.is_err(), "{ended:?}");
}

#[tokio::test]
async fn clients_that_do_not_read_are_disconnected() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "write_timeout = \"200ms\"\nmax_connections = 1").await;
    let mut slow = connect(&proxy, b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await;
    // There is one permit: the next client is served once this one is disconnected.
    assert_eq!(proxy.get("/").await.0, StatusCode::OK);
    assert!(read_to_end(&mut slow).await.len() < crate::upstream::LARGE_BYTES);
}

/// A WebSocket holds its permit, and is counted as a connection, until it is closed.
#[tokio::test]
async fn upgraded_connection_keeps_its_permit() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "max_connections = 1").await;
    let (mut socket, _) =
        tokio_tungstenite::connect_async(format!("ws://{}/socket", proxy.address)).await.unwrap();
    let mut waiting = connect(&proxy, b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    // After these messages the upgrade is complete, and the accept loop had time to accept the next client.
    for _ in 0..10 {
        socket.send(Message::text("hello")).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("hello"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    wait_for("the socket to be counted as the one connection", LIMIT, async || {
        proxy.gateway.statistics().summary().await.unwrap().connections == 1
    })
    .await;
    assert_eq!(upstream.hits(), 1);
    drop(socket);
    assert!(read_to_end(&mut waiting).await.ends_with(b"hello"));
}

/// Requests and WebSockets that never end are cut off when the gateway stops.
#[tokio::test]
async fn stop_ends_requests_and_upgraded_connections() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(&[upstream.address], "drain_timeout = \"200ms\"").await;
    let (mut socket, _) =
        tokio_tungstenite::connect_async(format!("ws://{}/socket", proxy.address)).await.unwrap();
    let mut endless = connect(&proxy, b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n").await;
    wait_for("both to reach the upstream", LIMIT, async || upstream.hits() == 2).await;
    assert_eq!(proxy.context.tasks.stop(LIMIT).await, Vec::<String>::new());
    read_to_end(&mut endless).await;
    let ended = tokio::time::timeout(LIMIT, socket.next()).await.expect("the connection is closed in time");
    assert!(!matches!(ended, Some(Ok(_))), "{ended:?}");
}
