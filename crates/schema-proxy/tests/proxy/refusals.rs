//! The place of a refusal among the replies.

use super::*;

const UNDECLARED: &str = "-SCHEMA undeclared-key: \"other:1\" does not belong to a declared family\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn refusal_has_its_place_in_a_pipeline() {
    let guarded = Guarded::start(Mode::Enforce).await;
    let mut connection = guarded.connect().await;
    let commands = ["SET count:1 1", "SET other:1 x", "GET count:1", "SET other:1 x", "PING"];
    let expected = format!("+OK\r\n{UNDECLARED}$1\r\n1\r\n{UNDECLARED}+PONG\r\n");
    assert_eq!(connection.send(&commands).await, expected);
    // The same in pieces of each size.
    let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(&words(command))).collect();
    for size in 1..bytes.len() {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        assert_eq!(String::from_utf8_lossy(&connection.send_pieces(&pieces).await), expected, "{size}");
    }
    guarded.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_refusals_wait_for_their_replies() {
    let guarded = Guarded::start(Mode::Enforce).await;
    let mut connection = guarded.connect().await;
    let commands = vec!["SET other:1 x"; 25_000];
    assert_eq!(connection.send(&commands).await, UNDECLARED.repeat(25_000));
    guarded.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_with_a_refused_command_is_discarded() {
    let guarded = Guarded::start(Mode::Enforce).await;
    let mut connection = guarded.connect().await;
    let replies =
        connection.send(&["MULTI", "SET count:1 1", "SET other:1 x", "EXEC", "EXISTS count:1"]).await;
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    assert_eq!(replies, format!("+OK\r\n+QUEUED\r\n{UNDECLARED}{aborted}:0\r\n"));
    guarded.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_follows_the_state_of_the_connection() {
    let guarded = Guarded::start(Mode::Enforce).await;
    let mut connection = guarded.connect().await;
    let refused = "SET other:1 x";
    // Without replies, there is no refusal either.
    let replies = connection
        .send(&["CLIENT REPLY OFF", refused, "CLIENT REPLY ON", "CLIENT REPLY SKIP", refused, refused])
        .await;
    assert_eq!(replies, format!("+OK\r\n{UNDECLARED}"));
    // Messages of a subscription come between replies.
    let replies = connection.send(&["HELLO 3"]).await;
    assert!(replies.starts_with("%7\r\n"), "{replies}");
    let replies = connection.send(&["SUBSCRIBE c", "PUBLISH c x", refused, "PUBLISH c y"]).await;
    let message = |text: &str| format!(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n{text}\r\n");
    let subscribed = ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
    let expected = format!("{subscribed}{}:1\r\n{UNDECLARED}{}:1\r\n", message("x"), message("y"));
    assert_eq!(replies, expected);
    // A refusal waits for a blocking command before it.
    let mut blocked = guarded.connect().await;
    let commands = ["BLPOP queue:1 0", refused];
    let (replies, ()) = tokio::join!(blocked.send(&commands), async {
        wait_for("the blocking command", LIMIT, async || {
            guarded.redis.command::<String>(&["INFO", "clients"]).contains("blocked_clients:1")
        })
        .await;
        guarded.redis.command::<()>(&["LPUSH", "queue:1", "x"]);
    });
    assert_eq!(replies, format!("*2\r\n$7\r\nqueue:1\r\n$1\r\nx\r\n{UNDECLARED}"));
    guarded.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_values_pass_or_are_refused_without_being_kept() {
    let guarded = Guarded::start(Mode::Enforce).await;
    let mut connection = guarded.connect().await;
    let value = vec![b'v'; 20 << 20];
    let sent = |key: &[u8]| [encode(&[b"SET", key, &value]), encode(&[b"STRLEN", key])].concat();
    let replies = connection.send_pieces(&[&sent(b"blob:1")]).await;
    assert_eq!(String::from_utf8_lossy(&replies), format!("+OK\r\n:{}\r\n", value.len()));
    for (key, violation) in [
        (&b"other:1"[..], "undeclared-key: \"other:1\" does not belong to a declared family".to_owned()),
        (b"queue:1", "wrong-type: \"queue:1\" is a string, but is declared as a list".to_owned()),
        (b"session:1", format!("misfit-value: \"session:1\" has {} bytes, more than 20", value.len())),
        (b"count:1", format!("misfit-value: \"count:1\" has {} bytes, more than 0", value.len())),
    ] {
        let replies = connection.send_pieces(&[&sent(key)]).await;
        assert_eq!(String::from_utf8_lossy(&replies), format!("-SCHEMA {violation}\r\n:0\r\n"));
    }
    // Keys that come after the part that can be judged.
    let mset = encode(&[b"MSET", b"blob:1", &value, b"other:1", b"x"]);
    let replies = String::from_utf8_lossy(&connection.send_pieces(&[&mset]).await).into_owned();
    assert!(
        replies.starts_with("-SCHEMA unreadable: ") && replies.ends_with("split the command\r\n"),
        "{replies}"
    );
    assert_eq!(guarded.redis.command::<u64>(&["EXISTS", "other:1"]), 0);
    guarded.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inline_commands_are_judged() {
    let guarded = Guarded::start(Mode::Enforce).await;
    let mut connection = guarded.connect().await;
    let replies =
        connection.send_pieces(&[b"PING\r\nSET other:1 x\r\n\r\nSET \"count:1\" '7'\nGET count:1\r\n"]).await;
    let expected = format!("+PONG\r\n{UNDECLARED}+OK\r\n$1\r\n7\r\n");
    assert_eq!(String::from_utf8_lossy(&replies), expected);
    guarded.proxy.stop().await;
}

/// A spelling that only the server accepts must not hide a command.
#[tokio::test(flavor = "multi_thread")]
async fn unusual_protocol_ends_the_connection() {
    let guarded = Guarded::start(Mode::Enforce).await;
    for bytes in
        [&b"*3\r\n$3\r\nSET\r\n$7\rXother:1\r\n$1\r\nx\r\n"[..], b"*1\r\n+PING\r\n", b"*01\r\n$4\r\nPING\r\n"]
    {
        let mut connection = guarded.connect().await;
        let sent = [&encode(&[b"PING"])[..], bytes].concat();
        connection.stream.write_all(&sent).await.unwrap();
        let mut replies = String::new();
        connection.stream.read_to_string(&mut replies).await.unwrap();
        assert!(
            replies.starts_with("+PONG\r\n-ERR Protocol error: ") && replies.ends_with("\r\n"),
            "{replies}"
        );
        assert_eq!(replies.lines().count(), 2, "{replies}");
    }
    assert_eq!(guarded.redis.command::<u64>(&["DBSIZE"]), 0);
    guarded.proxy.stop().await;
}
