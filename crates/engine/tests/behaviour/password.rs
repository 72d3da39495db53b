//! The password of the listener: its replacement, and the limit of wrong ones.

use std::io::Read as _;

use hob_engine::Config;

use crate::server::{Server, ask, read_to, send};

fn protected() -> Server {
    Server::start(Config { password: Some("old".to_owned()), ..Config::default() })
}

#[test]
fn new_password_disconnects_clients_of_the_old_one() {
    let server = protected();
    let (mut client, mut subscriber) = (server.connect(), server.connect());
    for stream in [&mut client, &mut subscriber] {
        assert_eq!(ask(stream, "AUTH old", "\r\n"), "+OK\r\n");
    }
    assert_eq!(ask(&mut client, "SET k v", "\r\n"), "+OK\r\n");
    send(&mut subscriber, "SUBSCRIBE news");
    read_to(&mut subscriber, ":1\r\n");

    server.engine.set_password(Some("old".to_owned()));
    assert_eq!(ask(&mut client, "GET k", "v\r\n"), "$1\r\nv\r\n", "the same password disconnects no client");

    server.engine.set_password(Some("new".to_owned()));
    let mut rest = String::new();
    for stream in [&mut client, &mut subscriber] {
        assert_eq!(stream.read_to_string(&mut rest).unwrap(), 0, "{rest}");
    }
    let mut client = server.connect();
    assert!(ask(&mut client, "AUTH old", "\r\n").starts_with("-WRONGPASS"));
    assert!(ask(&mut client, "GET k", "\r\n").starts_with("-NOAUTH"));
    assert_eq!(ask(&mut client, "AUTH new", "\r\n"), "+OK\r\n");
    assert_eq!(ask(&mut client, "GET k", "v\r\n"), "$1\r\nv\r\n");
    server.stop();
}

/// An engine without a password gets one.
#[test]
fn first_password_disconnects_all_clients() {
    let server = Server::start(Config::default());
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "SET k v", "\r\n"), "+OK\r\n");
    server.engine.set_password(Some("new".to_owned()));
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    assert!(ask(&mut server.connect(), "GET k", "\r\n").starts_with("-NOAUTH"));
    server.stop();
}

#[test]
fn wrong_passwords_are_limited_per_address() {
    let server = protected();
    let mut known = server.connect();
    assert_eq!(ask(&mut known, "AUTH old", "\r\n"), "+OK\r\n");
    let mut client = server.connect();
    for _ in 0..50 {
        assert!(ask(&mut client, "AUTH stale", "\r\n").starts_with("-WRONGPASS"));
    }
    for number in 0..9 {
        let line =
            if number % 2 == 0 { format!("AUTH {number}") } else { format!("HELLO 2 AUTH default {number}") };
        assert!(ask(&mut client, &line, "\r\n").starts_with("-WRONGPASS"), "{line}");
    }
    for line in ["AUTH old", "AUTH default old", "HELLO 3 AUTH default old"] {
        let refused = ask(&mut server.connect(), line, "\r\n");
        assert!(refused.starts_with("-ERR too many wrong credentials"), "{line}: {refused}");
    }
    assert_eq!(ask(&mut known, "PING", "\r\n"), "+PONG\r\n", "authenticated clients are not disturbed");
    server.stop();
}
