//! Passwords, TLS, limits, and the end of a proxy.

use super::*;
use hob_schema_proxy::Error;
use hob_testkit::RedisOptions;

#[tokio::test(flavor = "multi_thread")]
async fn clients_need_their_own_credentials() {
    let options = RedisOptions { password: Some("secret".into()), ..RedisOptions::default() };
    let redis = RedisServer::start_with(&options);
    let proxy = Proxy::start(catalog(SCHEMA), super::options(Mode::Enforce, &redis.url())).await.unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let commands: [&[&[u8]]; 4] = [
        &[b"GET", b"count:1"],
        &[b"SET", b"other:1", b"x"],
        &[b"AUTH", b"secret"],
        &[b"SET", b"count:1", b"1"],
    ];
    let bytes: Vec<u8> = commands.iter().flat_map(|words| encode(words)).collect();
    stream.write_all(&bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).await.unwrap();
    let replies: Vec<&str> = replies.lines().collect();
    assert!(replies[0].starts_with("-NOAUTH") && replies[1].starts_with("-SCHEMA"), "{replies:?}");
    assert_eq!(&replies[2..], ["+OK", "+OK"]);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_may_use_tls() {
    let redis = RedisServer::start_with(&RedisOptions { tls: true, ..RedisOptions::default() });
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, redis.authority_pem()).unwrap();
    let url = format!("{}?ca={}", redis.tls_url().trim_end_matches('/'), ca.display());
    let proxy = Proxy::start(catalog(SCHEMA), options(Mode::Enforce, &url)).await.unwrap();
    let mut connection = Connection::open(proxy.address()).await;
    let replies = connection.send(&["SET count:1 7", "SET other:1 x", "GET count:1"]).await;
    assert!(replies.starts_with("+OK\r\n-SCHEMA ") && replies.ends_with("$1\r\n7\r\n"), "{replies}");
    let value = vec![b'v'; 5 << 20];
    let replies =
        connection.send_pieces(&[&encode(&[b"SET", b"blob:1", &value]), &encode(&[b"GET", b"blob:1"])]).await;
    assert_eq!(replies.len(), 5 + 10 + value.len() + 2);
    proxy.stop().await;
}

/// A server that trusts its own machine must not become reachable for others.
#[tokio::test(flavor = "multi_thread")]
async fn open_server_is_not_exposed() {
    let redis = RedisServer::start();
    let anywhere =
        |url: &str| Options { listen: "0.0.0.0:0".parse().unwrap(), ..options(Mode::Observe, url) };
    let refused = Proxy::start(catalog(SCHEMA), anywhere(&redis.url())).await.unwrap_err();
    assert!(matches!(refused, Error::Open(_)), "{refused}");
    let options = RedisOptions { password: Some("secret".into()), ..RedisOptions::default() };
    let closed = RedisServer::start_with(&options);
    Proxy::start(catalog(SCHEMA), anywhere(&closed.url())).await.unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_clients_is_limited() {
    let guarded = Guarded::start_with(|options| options.max_connections = 1).await;
    let mut first = guarded.connect().await;
    assert_eq!(first.send(&["PING"]).await, "+PONG\r\n");
    let mut second = TcpStream::connect(guarded.proxy.address()).await.unwrap();
    let mut refusal = String::new();
    second.read_to_string(&mut refusal).await.unwrap();
    assert_eq!(refusal, "-ERR max number of clients reached\r\n");
    drop(first);
    wait_for("the first connection to end", LIMIT, async || {
        metric(&guarded.totals(), "hob_schema_proxy_connections ") == 0
    })
    .await;
    assert_eq!(guarded.connect().await.send(&["PING"]).await, "+PONG\r\n");
    guarded.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_learns_that_the_upstream_is_away() {
    let guarded = Guarded::start(Mode::Observe).await;
    guarded.redis.kill();
    let mut stream = TcpStream::connect(guarded.proxy.address()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert_eq!(reply, "-ERR the schema proxy cannot connect to its upstream\r\n");
    guarded.redis.restart();
    assert_eq!(guarded.connect().await.send(&["PING"]).await, "+PONG\r\n");
    guarded.proxy.stop().await;
}

/// Keys that were written last are read before the report.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_wait_are_read_at_the_end() {
    let guarded = Guarded::start_with(|options| options.mode = Mode::Observe).await;
    let totals = guarded.totals();
    guarded.connect().await.send(&["SET session:1 x"]).await;
    guarded.proxy.stop().await;
    assert_eq!(violations(&totals, "shop.session", "missing-ttl", "after"), 1, "{}", totals.report());
}

/// Only the database of the upstream's URL is read; commands are judged in all of them.
#[tokio::test(flavor = "multi_thread")]
async fn other_databases_are_judged_by_commands_only() {
    let guarded = Guarded::start(Mode::Observe).await;
    let totals = guarded.totals();
    guarded.connect().await.send(&["SELECT 3", "SET session:1 x", "SET other:1 x"]).await;
    guarded.proxy.stop().await;
    assert_eq!(violations(&totals, "undeclared", "undeclared-key", "before"), 1);
    assert_eq!(violations(&totals, "shop.session", "missing-ttl", "after"), 0);
}
