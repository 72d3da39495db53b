//! Thousands who only listen.

use hob_fixtures::{Layout, TestApp, TestContext};
use hob_testkit::{LIMIT, wait_for};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::door::NEEDS;
use crate::garden::{Garden, routes};

const CROWD: usize = 2_500;
/// Of both ends of a connection, since the test holds the other one: 29 KiB when it was measured.
const MOST_KIB_EACH: usize = 64;

/// What this process holds in memory.
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

/// Reads until a text was seen.
async fn hear(stream: &mut TcpStream, wanted: &str) {
    let mut heard = String::new();
    let mut buffer = [0; 1024];
    while !heard.contains(wanted) {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the stream ended: {heard}");
        heard.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_idle_clients_use_little_memory_and_all_are_notified() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let app = TestApp::start(&context, routes(Garden::default())).await;
    drop(listen(&app).await);
    let before = resident_kib();
    let mut crowd = Vec::with_capacity(CROWD);
    for _ in 0..CROWD {
        let mut stream = listen(&app).await;
        hear(&mut stream, "retry:").await;
        crowd.push(stream);
    }
    let each = resident_kib().saturating_sub(before) / CROWD;
    assert!(each <= MOST_KIB_EACH, "{each} KiB for each of {CROWD} listeners");

    app.web().changes().notify("garden");
    let mut told = JoinSet::new();
    for mut stream in crowd {
        told.spawn(async move {
            hear(&mut stream, "data: garden\n\n").await;
            stream
        });
    }
    let crowd = tokio::time::timeout(LIMIT, told.join_all()).await.expect("all clients are notified in time");
    assert_eq!(app.get("/garden").await.status, 200);
    drop(crowd);
    // Gone ones are noticed by writing to them.
    wait_for("all to have left", LIMIT, async || {
        app.web().changes().notify("garden");
        app.web().changes().listeners() == 0
    })
    .await;
}
