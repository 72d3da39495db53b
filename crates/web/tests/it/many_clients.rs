//! Thousands of idle clients.

use hob_fixtures::{Layout, TestApp, TestContext};
use hob_testkit::{LIMIT, wait_for};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::garden::{Garden, routes};
use crate::protected::NEEDS;

const CLIENTS: usize = 2_500;
/// Includes both ends of the connection, because the clients run in the same process. Measured: 29 KiB.
const MAX_KIB_EACH: usize = 64;

/// The resident memory of this process.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn listen(app: &TestApp) -> TcpStream {
    let mut stream = TcpStream::connect(app.address()).await.unwrap();
    let request = b"GET /live?topics=garden HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    stream
}

/// Reads until the received text contains `expected`.
async fn read_until(stream: &mut TcpStream, expected: &str) {
    let mut received = String::new();
    let mut buffer = [0; 1024];
    while !received.contains(expected) {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the stream ended: {received}");
        received.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_idle_clients_use_little_memory_and_all_are_notified() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let app = TestApp::start(&context, routes(Garden::default())).await;
    drop(listen(&app).await);
    let before = resident_kib();
    let mut clients = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        let mut stream = listen(&app).await;
        read_until(&mut stream, "retry:").await;
        clients.push(stream);
    }
    let each = resident_kib().saturating_sub(before) / CLIENTS;
    assert!(each <= MAX_KIB_EACH, "{each} KiB for each of {CLIENTS} clients");

    app.web().changes().notify("garden");
    let mut readers = JoinSet::new();
    for mut stream in clients {
        readers.spawn(async move {
            read_until(&mut stream, "data: garden\n\n").await;
            stream
        });
    }
    let clients =
        tokio::time::timeout(LIMIT, readers.join_all()).await.expect("all clients are notified in time");
    assert_eq!(app.get("/garden").await.status, 200);
    drop(clients);
    // The server detects closed connections when it writes to them.
    wait_for("all clients to be removed", LIMIT, async || {
        app.web().changes().notify("garden");
        app.web().changes().listeners() == 0
    })
    .await;
}
