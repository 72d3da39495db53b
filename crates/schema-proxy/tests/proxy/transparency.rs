//! A client that breaks no rule, or is only observed, gets the replies of a direct connection.

use hob_testkit::budget;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

type Command = Vec<Vec<u8>>;

fn word() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(vec!["count:1", "session:1", "other", "queue:1", "1", "-1", "x", ""])
            .prop_map(|word| word.as_bytes().to_vec()),
        Just(b"a\r\nb-ERR unknown command 'hob-schema-".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
        (1_000..100_000_usize).prop_map(|length| vec![b'-'; length]),
    ]
}

/// Commands whose replies depend only on the commands before, not on the order of a server's hash tables.
fn command() -> impl Strategy<Value = Command> {
    let names = [
        "GET",
        "SET",
        "SETEX",
        "INCR",
        "APPEND",
        "LPUSH",
        "RPOP",
        "LRANGE",
        "HSET",
        "HLEN",
        "ZADD",
        "DEL",
        "EXISTS",
        "TYPE",
        "EXPIRE",
        "MSET",
        "ECHO",
        "PING",
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH",
        "NOSUCH",
        "SELECT",
        "STRLEN",
        "SUBSCRIBE",
        "PUBLISH",
        "XADD",
        "CLIENT",
        "",
    ];
    let any_words = (prop::sample::select(names.to_vec()), prop::collection::vec(word(), 0..5)).prop_map(
        |(name, words)| std::iter::once(name.as_bytes().to_vec()).chain(words).collect::<Command>(),
    );
    let line = |text: &'static str| words(text).into_iter().map(<[u8]>::to_vec).collect::<Command>();
    let whole = prop::sample::select(vec![
        line("EVAL return{1,KEYS[1],'x'} 1 count:1"),
        line("EVAL return(redis.call('SET',KEYS[1],'y')) 1 other"),
        line("CLIENT REPLY SKIP"),
        line("CLIENT SETNAME me"),
        line("CLIENT GETNAME"),
        line("LRANGE queue:1 0 -1"),
        line("SET count:1 5"),
        line("SUBSCRIBE c d"),
        line("UNSUBSCRIBE d"),
        line("PUBLISH c x"),
        line("MULTI"),
        line("EXEC"),
    ]);
    prop_oneof![2 => any_words, 1 => whole]
}

#[derive(Clone, Debug)]
struct Conversation {
    protocol: u8,
    commands: Vec<Command>,
    /// Where the bytes are cut.
    cuts: Vec<prop::sample::Index>,
}

fn conversation() -> impl Strategy<Value = Conversation> {
    let commands = prop::collection::vec(command(), 1..30);
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..20);
    (2..=3_u8, commands, cuts).prop_map(|(protocol, commands, cuts)| Conversation {
        protocol,
        commands,
        cuts,
    })
}

/// The replies to a conversation on an empty server.
async fn replies(redis: &RedisServer, address: SocketAddr, conversation: &Conversation) -> Vec<u8> {
    redis.flush_all();
    let mut connection = Connection::open(address).await;
    // Its reply contains the id of the connection.
    connection.send(&[&format!("HELLO {}", conversation.protocol)]).await;
    let mut bytes: Vec<u8> = conversation
        .commands
        .iter()
        .flat_map(|command| encode(&command.iter().map(Vec::as_slice).collect::<Vec<_>>()))
        .collect();
    // Ends a transaction, a subscription and silence.
    bytes.extend(encode(&[b"RESET"]));
    let mut cuts: Vec<usize> = conversation.cuts.iter().map(|cut| cut.index(bytes.len())).collect();
    cuts.push(0);
    cuts.push(bytes.len());
    cuts.sort_unstable();
    let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
    connection.send_pieces(&pieces).await
}

#[test]
fn observed_client_gets_the_replies_of_a_direct_connection() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let direct = RedisServer::start();
    let guarded = runtime.block_on(Guarded::start(Mode::Observe));
    let direct_address = SocketAddr::from((Ipv4Addr::LOCALHOST, direct.port()));
    let mut runner = TestRunner::new(Config { cases: budget(200, 5_000), ..Config::default() });
    let outcome = runner.run(&conversation(), |conversation| {
        let (expected, seen) = runtime.block_on(async {
            let expected = replies(&direct, direct_address, &conversation).await;
            (expected, replies(&guarded.redis, guarded.proxy.address(), &conversation).await)
        });
        prop_assert_eq!(String::from_utf8_lossy(&seen), String::from_utf8_lossy(&expected));
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    runtime.block_on(guarded.proxy.stop());
}

/// What the server says about a mistake in the protocol.
#[tokio::test(flavor = "multi_thread")]
async fn observed_client_gets_the_protocol_errors_of_the_server() {
    let guarded = Guarded::start(Mode::Observe).await;
    let direct = SocketAddr::from((Ipv4Addr::LOCALHOST, guarded.redis.port()));
    for bytes in [&b"PING\r\n*1\r\n+PING\r\n"[..], b"*1\r\n$-9\r\n", b"SET \"a\r\n", b"*99999999999\r\n"] {
        let mut seen = Vec::new();
        for address in [direct, guarded.proxy.address()] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            let mut replies = String::new();
            stream.read_to_string(&mut replies).await.unwrap();
            seen.push(replies);
        }
        assert!(seen[0].contains("Protocol error"), "{seen:?}");
        assert_eq!(seen[0], seen[1]);
    }
    guarded.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn monitor_passes() {
    let guarded = Guarded::start(Mode::Enforce).await;
    let mut monitor = TcpStream::connect(guarded.proxy.address()).await.unwrap();
    monitor.write_all(&encode(&[b"MONITOR"])).await.unwrap();
    let mut seen = Vec::new();
    wait_for("MONITOR to begin", LIMIT, async || monitor.read_buf(&mut seen).await.unwrap() > 0).await;
    guarded.connect().await.send(&["SET count:1 1"]).await;
    while !String::from_utf8_lossy(&seen).contains("\"SET\" \"count:1\" \"1\"") {
        let read = tokio::time::timeout(LIMIT, monitor.read_buf(&mut seen)).await.unwrap().unwrap();
        assert!(read > 0);
    }
    guarded.proxy.stop().await;
}
