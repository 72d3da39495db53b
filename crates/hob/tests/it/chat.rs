//! The chat service of a complete server, checked through its documented Redis keys.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hob_testkit::{LIMIT, RedisOptions, RedisServer, wait_for};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::clients::{Addresses, Client, Received};
use crate::program::{Server, hob};

/// Opens a socket for a user and waits until the documented keys show the user as online.
async fn open_socket(server: &Server, redis: &RedisServer) {
    let response = server.post("/api/v1/chat/users/anna/sockets", &json!({ "socket_id": "s1" }).to_string());
    assert_eq!(response.status, 200, "{}", response.body);
    wait_for("anna to be online", LIMIT, async || {
        redis.command::<Option<String>>(&["GET", "user:anna:online"]).as_deref() == Some("true")
    })
    .await;
    assert_eq!(redis.command::<Vec<String>>(&["SMEMBERS", "user:anna:sockets"]), ["s1"]);
    assert_eq!(redis.command::<String>(&["GET", "socket:s1:user"]), "anna");
}

/// C14: `REDIS_HOST`, `REDIS_PORT` and `REDIS_PASSWORD` select the store.
#[tokio::test]
async fn documented_variables_name_the_store() {
    let redis = RedisServer::start_with(&RedisOptions {
        password: Some("your_secure_password".into()),
        ..RedisOptions::default()
    });
    let port = redis.port().to_string();
    let variables =
        [("REDIS_HOST", "127.0.0.1"), ("REDIS_PORT", &port), ("REDIS_PASSWORD", "your_secure_password")];
    let server = Server::start_with(&["--only", "chat"], &variables);
    open_socket(&server, &redis).await;
}

/// C15: the chat service recovers automatically after an outage of the store of any length.
#[tokio::test]
async fn chat_survives_the_loss_of_its_store() {
    let redis = RedisServer::start();
    let server = Server::start(&["--only", "chat", "--redis", &redis.url()]);
    open_socket(&server, &redis).await;
    redis.kill();
    server.wait_for_status("/readyz", 503).await;
    redis.restart();
    server.wait_for_status("/readyz", 200).await;
    // The socket is still open, so its node writes the keys again.
    wait_for("anna to be online again", LIMIT, async || {
        redis.command::<Option<String>>(&["GET", "user:anna:online"]).as_deref() == Some("true")
    })
    .await;
}

/// C17: the documented monitoring commands also work on the embedded store.
#[test]
fn store_supports_the_documented_monitoring_commands() {
    let server = Server::start(&["--only", "chat"]);
    for user in 0..20 {
        let path = format!("/api/v1/chat/users/u{user}/sockets");
        assert_eq!(server.post(&path, &json!({ "socket_id": format!("s{user}") }).to_string()).status, 200);
        assert_eq!(server.post(&format!("/api/v1/chat/users/u{user}/limit"), "{}").status, 200);
    }
    let client = redis::Client::open(("127.0.0.1", server.store_port.unwrap())).unwrap();
    let mut connection = client.get_connection().unwrap();
    assert_eq!(redis::cmd("PING").query::<String>(&mut connection).unwrap(), "PONG");
    let info: String = redis::cmd("INFO").arg("stats").query(&mut connection).unwrap();
    assert!(info.contains("total_commands_processed:"), "{info}");
    assert!(redis::cmd("DBSIZE").query::<u64>(&mut connection).unwrap() > 60);
    redis::cmd("MEMORY").arg("STATS").query::<redis::Value>(&mut connection).unwrap();
    for pattern in ["user:*:online", "rate:message:*"] {
        let (mut cursor, mut found) = ("0".to_owned(), 0);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(100);
            let (next, keys): (String, Vec<String>) = scan.query(&mut connection).unwrap();
            (cursor, found) = (next, found + keys.len());
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(found, 20, "{pattern}");
    }
    assert!(server.get("/health").body.contains("embedded"));
}

/// C18: limits and typing flags can be cleared while the chat is running, whether there are none or thousands.
#[test]
fn limits_and_typing_flags_are_cleared_by_family() {
    let redis = RedisServer::start();
    let server = Server::start(&["--only", "chat", "--redis", &redis.url()]);
    let clean = |family: &str| {
        let output =
            hob().args(["schema", "clean", "--family", family, "--apply", &redis.url()]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    for family in ["chat.typing", "chat.message_rate"] {
        clean(family);
    }
    let allowed = || server.post("/api/v1/chat/users/anna/limit", "{}").body.contains("\"allowed\":true");
    // A store that does not answer in time allows the message, so there can be more than twenty.
    let before_refusal = (0..100).take_while(|_| allowed()).count();
    assert!((20..100).contains(&before_refusal), "{before_refusal}");
    let mut fill = redis::pipe();
    for n in 0..9_000 {
        fill.cmd("SET").arg(format!("typing:c{n}:u")).arg(1).ignore();
    }
    fill.exec(&mut redis.connect()).unwrap();
    for family in ["chat.typing", "chat.message_rate", "chat.message_window"] {
        clean(family);
    }
    assert_eq!(redis.command::<u64>(&["EXISTS", "typing:c1:u", "typing:c8999:u", "rate:message:anna"]), 0);
    assert!(allowed());
}

/// C19: the chat works over TLS with a password, as a user that may access only the keys that the schema declares.
#[tokio::test]
async fn chat_needs_no_more_than_the_schemas_acl_allows() {
    let redis = RedisServer::start_with(&RedisOptions { tls: true, ..RedisOptions::default() });
    let rules =
        String::from_utf8(hob().args(["schema", "acl", "--user", "chat"]).output().unwrap().stdout).unwrap();
    let rules: Vec<&str> = rules.split_whitespace().skip(1).collect();
    redis.command::<()>(&[&["ACL", "SETUSER"], rules.as_slice(), &[">secret"]].concat());
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, redis.authority_pem()).unwrap();
    let url = redis.tls_url().replace("rediss://", "rediss://chat:secret@");
    let server = Server::start(&["--only", "chat", "--redis", &format!("{url}?ca={}", authority.display())]);
    open_socket(&server, &redis).await;
    let room =
        json!({ "id": "room", "title": "Room", "created_by": "anna", "members": ["bert"] }).to_string();
    assert_eq!(server.post("/api/v1/chat/conversations", &room).status, 201);
    let typing = json!({ "user_id": "bert", "typing": true }).to_string();
    assert_eq!(server.post("/api/v1/chat/conversations/room/typing", &typing).status, 204);
    let message = json!({ "sender_id": "bert", "content": "Hello" }).to_string();
    assert_eq!(server.post("/api/v1/chat/conversations/room/messages", &message).status, 201);
    wait_for("the unread counter", LIMIT, async || {
        redis.command::<Option<String>>(&["GET", "unread:anna:total"]).as_deref() == Some("1")
    })
    .await;
    let denied: Vec<redis::Value> = redis.command(&["ACL", "LOG"]);
    assert!(denied.is_empty(), "Redis denied a command: {denied:?}");

    let mut connection = redis.connect();
    redis::cmd("AUTH").arg("chat").arg("secret").exec(&mut connection).unwrap();
    for arguments in [&["SET", "surprise", "1"][..], &["FLUSHALL"], &["KEYS", "*"], &["CONFIG", "GET", "*"]] {
        let mut command = redis::Cmd::new();
        for argument in arguments {
            command.arg(argument);
        }
        let error = command.exec(&mut connection).unwrap_err().to_string();
        assert!(error.contains("permissions") || error.contains("NOPERM"), "{arguments:?}: {error}");
    }
}

/// The commands that clients send to Redis during `time`. INFO cannot be used: it also counts commands called by
/// scripts.
fn client_commands(redis: &RedisServer, time: Duration) -> Vec<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    stream.write_all(b"MONITOR\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut lines = BufReader::new(stream);
    let (started, mut commands, mut line) = (Instant::now(), Vec::new(), String::new());
    while started.elapsed() < time {
        // After a timeout, `line` keeps the partial input.
        if lines.read_line(&mut line).is_ok() {
            if line.contains(" [0 ") && !line.contains(" [0 lua] ") {
                commands.push(line.clone());
            }
            line.clear();
        }
    }
    commands
}

/// An idle node sends fewer than five commands per second to the store, regardless of the number of connected clients.
#[tokio::test(flavor = "multi_thread")]
async fn idle_node_uses_almost_no_store_cpu() {
    let redis = RedisServer::start();
    let server = Server::start(&["--only", "chat", "--redis", &redis.url()]);
    let addresses: Addresses = Arc::new(Mutex::new(vec![server.listen]));
    let mut clients = JoinSet::new();
    for n in 0..500 {
        let response = server.post(&format!("/api/v1/chat/users/u{n}/token"), "{}").body;
        let token = serde_json::from_str::<Value>(&response).unwrap()["token"].as_str().unwrap().to_owned();
        let client = Client { token, channel: format!("user:u{n}"), received: Received::default() };
        // The node ends feeds that were subscribed before it received presence events; their clients subscribe again.
        clients.spawn(client.run(Arc::clone(&addresses), 0));
    }
    wait_for("all clients to be online", LIMIT, async || {
        let subscribed: Vec<String> = redis.command(&["PUBSUB", "CHANNELS", "chat:bus:feed:*"]);
        let online: Vec<String> = redis.command(&["KEYS", "user:*:online"]);
        (subscribed.len(), online.len()) == (500, 500)
    })
    .await;
    // A multiple of the longest period of all periodic tasks, which is three seconds.
    let time = Duration::from_secs(15);
    // Excludes the remaining work for clients that have just connected.
    wait_for("the node to be idle", LIMIT, async || {
        client_commands(&redis, Duration::from_secs(1)).len() < 20
    })
    .await;
    let sent = client_commands(&redis, time);
    let per_second = sent.len() as f64 / time.as_secs_f64();
    assert!(per_second < 5.0, "{per_second} commands per second:\n{}", sent.concat());
    assert_eq!(clients.len(), 500, "all clients are still connected");
}
