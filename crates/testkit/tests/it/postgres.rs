//! PostgreSQL.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use hob_testkit::{LIMIT, Postgres, wait_for};

/// Logs in with version 3 of the protocol, and reads up to `ReadyForQuery`.
fn log_in(server: &Postgres) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let parameters = b"user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(8 + parameters.len()).unwrap();
    socket.write_all(&[&length.to_be_bytes()[..], &196_608_u32.to_be_bytes(), parameters].concat()).unwrap();
    while read_message(&mut socket) != b'Z' {}
    socket
}

fn read_message(socket: &mut TcpStream) -> u8 {
    let mut head = [0; 5];
    socket.read_exact(&mut head).unwrap();
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    socket.read_exact(&mut vec![0; length as usize - 4]).unwrap();
    head[0]
}

fn send_query(socket: &mut TcpStream) {
    let query = b"SELECT 1\0";
    let length = u32::try_from(4 + query.len()).unwrap();
    socket.write_all(&[&b"Q"[..], &length.to_be_bytes(), query].concat()).unwrap();
}

#[test]
fn servers_share_neither_port_nor_data() {
    let (one, other) = (Postgres::start(), Postgres::start());
    assert_ne!(one.port(), other.port());
    one.psql("CREATE TABLE seen (n int)");
    assert_eq!(one.psql("SELECT to_regclass('seen')"), "seen");
    assert_eq!(other.psql("SELECT to_regclass('seen')"), "");
}

#[test]
fn server_accepts_tls() {
    let server = Postgres::start_with_tls();
    let ssl = std::process::Command::new("psql")
        .args(["--no-psqlrc", "--no-align", "--tuples-only", "--dbname", &server.tls_url()])
        .args(["--command", "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ssl.stdout), "t\n", "{}", String::from_utf8_lossy(&ssl.stderr));
    assert_eq!(server.psql("SELECT 1"), "1");
}

#[test]
fn committed_rows_survive_a_stop_and_a_kill() {
    let server = Postgres::start();
    server.psql("CREATE TABLE seen (n int)");
    for (n, stop) in [Postgres::stop, Postgres::kill].into_iter().enumerate() {
        server.psql(&format!("INSERT INTO seen VALUES ({n})"));
        stop(&server);
        assert!(TcpStream::connect(("127.0.0.1", server.port())).is_err());
        server.restart();
    }
    assert_eq!(server.psql("SELECT n FROM seen ORDER BY n"), "0\n1");
}

#[test]
fn killed_server_with_open_connections_can_be_restarted() {
    let server = Postgres::start();
    let _open = log_in(&server);
    server.kill();
    server.restart();
    assert_eq!(server.psql("SELECT 1"), "1");
}

#[test]
fn frozen_server_keeps_its_connections_and_resumes() {
    let server = Postgres::start();
    let mut socket = log_in(&server);
    server.freeze();
    send_query(&mut socket);
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(socket.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    server.unfreeze();
    socket.set_read_timeout(None).unwrap();
    while read_message(&mut socket) != b'Z' {}
}

#[tokio::test]
async fn connections_are_closed() {
    let server = Postgres::start();
    let mut socket = log_in(&server);
    assert_eq!(server.disconnect_clients(), 1);
    // The server may send a message first.
    wait_for("the connection to end", LIMIT, async || socket.read(&mut [0; 512]).is_ok_and(|read| read == 0))
        .await;
}
