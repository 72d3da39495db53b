//! One redis-server.

use std::time::{Duration, Instant};

use hob_testkit::{Connections, LIMIT, RedisOptions, RedisServer, wait_for, wait_until};
use redis::{Client, Commands, TlsCertificates};

fn responds(client: &Client) -> bool {
    let Ok(mut connection) = client.get_connection() else {
        return false;
    };
    redis::cmd("PING").query::<String>(&mut connection).is_ok_and(|reply| reply == "PONG")
}

#[test]
fn servers_share_neither_port_nor_data() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    assert_ne!(one.port(), other.port());
    one.command::<()>(&["SET", "key", "value"]);
    assert_eq!(one.command::<usize>(&["DBSIZE"]), 1);
    assert_eq!(other.command::<usize>(&["DBSIZE"]), 0);
}

/// On a busy machine, not every start is that quick.
#[test]
fn server_starts_within_200_ms() {
    wait_until("a start within 200 ms", || {
        let started = Instant::now();
        drop(RedisServer::start());
        let took = started.elapsed();
        if took < Duration::from_millis(200) { Ok(()) } else { Err(took) }
    });
}

#[test]
fn server_requires_its_password() {
    let options = RedisOptions { password: Some("secret".to_owned()), ..RedisOptions::default() };
    let server = RedisServer::start_with(&options);
    assert!(responds(&Client::open(server.url()).unwrap()));
    assert!(responds(&Client::open(server.unix_url()).unwrap()));
    assert!(!responds(&Client::open(format!("redis://127.0.0.1:{}", server.port())).unwrap()));
}

#[test]
fn arguments_are_passed_to_the_server() {
    let arguments = ["--maxmemory", "10mb"].map(str::to_owned).to_vec();
    let server = RedisServer::start_with(&RedisOptions { arguments, ..RedisOptions::default() });
    assert_eq!(server.info("memory").get::<u64>("maxmemory"), Some(10 * 1024 * 1024));
}

#[test]
fn unix_socket_responds() {
    let server = RedisServer::start();
    assert!(responds(&Client::open(server.unix_url()).unwrap()));
}

#[test]
fn tls_port_responds_to_clients_that_trust_its_authority() {
    let server = RedisServer::start_with(&RedisOptions { tls: true, ..RedisOptions::default() });
    let trusting = |root_cert| {
        Client::build_with_tls(server.tls_url(), TlsCertificates { client_tls: None, root_cert }).unwrap()
    };
    assert!(responds(&trusting(Some(server.authority_pem().as_bytes().to_vec()))));
    assert!(!responds(&trusting(None)));
}

#[test]
fn restarted_server_is_empty_and_has_the_same_port() {
    let server = RedisServer::start();
    let client = Client::open(server.url()).unwrap();
    for stop in [RedisServer::stop, RedisServer::kill] {
        server.command::<()>(&["SET", "key", "value"]);
        stop(&server);
        assert!(!responds(&client));
        server.restart();
        assert_eq!(server.command::<usize>(&["DBSIZE"]), 0);
    }
}

#[test]
fn frozen_server_keeps_its_connections_and_resumes() {
    let server = RedisServer::start();
    let mut connection = server.connect();
    server.freeze();
    connection.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let error = redis::cmd("PING").exec(&mut connection).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    server.unfreeze();
    assert_eq!(server.command::<String>(&["PING"]), "PONG");
}

#[test]
fn frozen_server_can_be_stopped() {
    let server = RedisServer::start();
    server.freeze();
    server.stop();
    server.restart();
    assert_eq!(server.command::<String>(&["PING"]), "PONG");
}

#[test]
fn flush_deletes_data_or_scripts() {
    let server = RedisServer::start();
    let mut connection = server.connect();
    let () = connection.set("key", "value").unwrap();
    let sha: String = server.command(&["SCRIPT", "LOAD", "return 1"]);
    server.flush_all();
    assert_eq!(server.command::<usize>(&["DBSIZE"]), 0);
    assert_eq!(server.command::<Vec<bool>>(&["SCRIPT", "EXISTS", &sha]), [true]);
    server.flush_scripts();
    assert_eq!(server.command::<Vec<bool>>(&["SCRIPT", "EXISTS", &sha]), [false]);
}

#[tokio::test]
async fn connections_are_closed_by_kind() {
    let server = RedisServer::start();
    let mut normal = server.connect();
    let mut subscriber = server.connect();
    let mut pubsub = subscriber.as_pubsub();
    pubsub.subscribe("channel").unwrap();

    assert_eq!(server.disconnect_clients(Connections::PubSub), 1);
    assert!(pubsub.get_message().is_err());
    redis::cmd("PING").exec(&mut normal).unwrap();

    assert_eq!(server.disconnect_clients(Connections::Normal), 1);
    wait_for("the connection to be closed", LIMIT, async || redis::cmd("PING").exec(&mut normal).is_err())
        .await;
}
