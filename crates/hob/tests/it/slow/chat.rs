//! The chat service on three nodes with Redis and PostgreSQL, under load, while nodes are killed and Redis restarts empty:
//! no stale presence, no lost message, no duplicate.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hob_chat::keys::UserId;
use hob_chat::token::Tokens;
use hob_service::SecretRef;
use hob_testkit::{LIMIT, Postgres, RedisServer, budget, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clients::{Addresses, Client, Received};
use crate::program::{Server, hob};

const MEMBERS: usize = 10;
/// The time until all users of a killed node are offline on all nodes, with the default lease.
const OFFLINE_WITHIN: Duration = Duration::from_secs(12);
const CONVERSATIONS: &str = "/api/v1/chat/conversations";

/// The Redis, the database and the configuration that all nodes share.
struct Cluster {
    redis: RedisServer,
    postgres: Postgres,
    folder: TempDir,
    tokens: Tokens,
}

impl Cluster {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "a secret that all nodes share").unwrap();
        let settings = format!(
            "[chat]\ntoken_secret = \"file:{}\"\nmessage_rate_limit = 1000000\nconnects_per_minute = 1000000\n",
            secret.display()
        );
        std::fs::write(folder.path().join("hob.toml"), settings).unwrap();
        let config =
            hob_chat::Config { token_secret: Some(SecretRef::File(secret)), ..hob_chat::Config::default() };
        let tokens = Tokens::from_config(&config, &hob_net::Outbound::default()).unwrap();
        Self { redis: RedisServer::start(), postgres: Postgres::start(), folder, tokens }
    }

    fn node(&self) -> Server {
        let config = self.folder.path().join("hob.toml").display().to_string();
        let (store, database) = (self.redis.url(), self.postgres.url());
        let arguments = ["--only", "chat", "--redis", &store, "--database", &database];
        Server::start_with(&arguments, &[("HOB_CONFIG", &config), ("HOB_LOG", "error")])
    }

    fn client(&self, user: &str, room: &str, received: &Received) -> Client {
        let token = self.tokens.issue(&UserId::new(user).unwrap(), i64::MAX / 4).unwrap();
        Client { token, channel: format!("conv:{room}"), received: Arc::clone(received) }
    }

    /// The number of users that are online, according to the documented keys.
    fn online(&self, users: &[String]) -> usize {
        let keys: Vec<String> = users.iter().map(|user| format!("user:{user}:online")).collect();
        let mut command = vec!["MGET"];
        command.extend(keys.iter().map(String::as_str));
        let values: Vec<Option<String>> = self.redis.try_command(&command).unwrap_or_default();
        values.iter().filter(|value| value.as_deref() == Some("true")).count()
    }

    fn keys(&self, pattern: &str) -> Vec<String> {
        let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let (next, keys): (String, Vec<String>) =
                self.redis.command(&["SCAN", &cursor, "MATCH", pattern, "COUNT", "1000"]);
            found.extend(keys);
            cursor = next;
            if cursor == "0" {
                return found;
            }
        }
    }
}

fn open_room(node: &Server, room: &str, members: &[String]) {
    let body =
        json!({ "id": room, "title": room, "created_by": members[0], "members": &members[1..] }).to_string();
    let response = node.post(CONVERSATIONS, &body);
    assert_eq!(response.status, 201, "{}", response.body);
}

/// Counts the published offline events of each user.
fn count_offline(redis: &RedisServer) -> Arc<Mutex<BTreeMap<String, usize>>> {
    let counts = Arc::new(Mutex::new(BTreeMap::new()));
    let (counting, mut connection) = (Arc::clone(&counts), redis.connect());
    connection.set_read_timeout(None).unwrap();
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bus = connection.as_pubsub();
        bus.subscribe("events:user.offline").unwrap();
        ready.send(()).unwrap();
        // Until the server stops.
        while let Ok(message) = bus.get_message() {
            let event: Value = serde_json::from_slice(message.get_payload_bytes()).unwrap();
            let user = event["userId"].as_str().unwrap().to_owned();
            *counting.lock().unwrap().entry(user).or_default() += 1;
        }
    });
    is_ready.recv().unwrap();
    counts
}

/// C1 C11: users of a killed node are offline on all nodes within twelve seconds, each with exactly one event.
#[tokio::test(flavor = "multi_thread")]
async fn users_of_a_killed_process_are_offline_everywhere_in_time() {
    let cluster = Cluster::new();
    let (first, second, mut third) = (cluster.node(), cluster.node(), cluster.node());
    let users: Vec<String> = (0..budget(100, 1_000)).map(|n| format!("user{n}")).collect();
    open_room(&first, "room", &users);
    let addresses: Addresses = Arc::new(Mutex::new(vec![third.listen]));
    let mut clients = JoinSet::new();
    for user in &users {
        clients.spawn(cluster.client(user, "room", &Received::default()).run(Arc::clone(&addresses), 0));
    }
    wait_for("all users to be online", LIMIT * 2, async || {
        let online = cluster.online(&users);
        if online == users.len() { Ok(()) } else { Err(online) }
    })
    .await;
    let events = count_offline(&cluster.redis);
    // No client reconnects.
    addresses.lock().unwrap().clear();
    let killed = Instant::now();
    third.kill();
    wait_for("all users to be offline", LIMIT * 2, async || {
        let online = cluster.online(&users);
        if online == 0 { Ok(()) } else { Err(online) }
    })
    .await;
    let took = killed.elapsed();
    // A busy machine may stall, so the limit is doubled; an otherwise idle machine has the exact limit.
    let within = budget(OFFLINE_WITHIN * 2, OFFLINE_WITHIN);
    assert!(took <= within, "it took {took:?}");
    let request = json!({ "users": users[..100] }).to_string();
    for node in [&first, &second] {
        let response = node.post("/api/v1/chat/users/presence", &request).body;
        assert!(!response.contains("\"online\":true"), "{response}");
    }
    wait_for("an event for every user", LIMIT, async || events.lock().unwrap().len() == users.len()).await;
    assert!(events.lock().unwrap().values().all(|times| *times == 1), "{:?}", events.lock().unwrap());
    wait_for("the keys of the node to be removed", LIMIT, async || {
        let left = [
            cluster.keys("user:*:sockets"),
            cluster.keys("socket:*:user"),
            cluster.keys("chat:node:*:users"),
        ];
        if left.iter().all(Vec::is_empty) { Ok(()) } else { Err(left.concat()) }
    })
    .await;
}

/// Sends messages to all rooms in turn through any available node, and retries each until it is acknowledged.
fn send_messages(
    addresses: &Addresses,
    rooms: usize,
    count: &AtomicUsize,
    stop: &CancellationToken,
) -> Vec<BTreeMap<u64, String>> {
    let mut acknowledged = vec![BTreeMap::new(); rooms];
    for n in 0.. {
        let at = n % rooms;
        let body = json!({ "sender_id": format!("user{at}-0"), "content": format!("message {n}"), "client_id": n.to_string() });
        let (path, body) = (format!("{CONVERSATIONS}/room{at}/messages"), body.to_string());
        for attempt in 0.. {
            let address = {
                let addresses = addresses.lock().unwrap();
                addresses[(n + attempt) % addresses.len()]
            };
            match crate::program::post(address, &path, &body) {
                // A repeated message is answered with 200.
                Ok(response) if matches!(response.status, 200 | 201) => {
                    let message: Value = serde_json::from_str(&response.body).unwrap();
                    let sequence = message["sequence"].as_u64().unwrap();
                    acknowledged[at].insert(sequence, format!("message {n}"));
                    count.fetch_add(1, Ordering::SeqCst);
                    break;
                }
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        if stop.is_cancelled() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    acknowledged
}

/// After all kills, no presence is stale, no message is lost or duplicated, and the store matches its schema.
#[tokio::test(flavor = "multi_thread")]
async fn processes_are_killed_and_the_store_restarts_under_load() {
    let cluster = Cluster::new();
    let mut nodes = vec![cluster.node(), cluster.node(), cluster.node()];
    let addresses: Addresses = Arc::new(Mutex::new(nodes.iter().map(|node| node.listen).collect()));
    let rooms = budget(30, 300);
    let mut received: Vec<(usize, Received)> = Vec::new();
    let (mut clients, mut users) = (JoinSet::new(), Vec::new());
    for at in 0..rooms {
        let members: Vec<String> = (0..MEMBERS).map(|n| format!("user{at}-{n}")).collect();
        open_room(&nodes[0], &format!("room{at}"), &members);
        for (n, name) in members.into_iter().enumerate() {
            let messages = Received::default();
            clients.spawn(
                cluster.client(&name, &format!("room{at}"), &messages).run(Arc::clone(&addresses), at + n),
            );
            received.push((at, messages));
            users.push(name);
        }
    }
    wait_for_online(&cluster, &users, users.len()).await;

    let stop = CancellationToken::new();
    let sent = Arc::new(AtomicUsize::new(0));
    let (targets, counted, stopped) = (Arc::clone(&addresses), Arc::clone(&sent), stop.clone());
    let sending = tokio::task::spawn_blocking(move || send_messages(&targets, rooms, &counted, &stopped));
    for _ in 0..budget(2, 6) {
        let mut dead = nodes.remove(0);
        addresses.lock().unwrap().retain(|address| *address != dead.listen);
        dead.kill();
        tokio::time::sleep(Duration::from_millis(500)).await;
        cluster.redis.kill();
        tokio::time::sleep(Duration::from_millis(500)).await;
        cluster.redis.restart();
        let next = cluster.node();
        addresses.lock().unwrap().push(next.listen);
        nodes.push(next);
        let before = sent.load(Ordering::SeqCst);
        wait_for("messages to be acknowledged again", LIMIT * 2, async || {
            sent.load(Ordering::SeqCst) > before + 10
        })
        .await;
    }
    stop.cancel();
    let acknowledged = sending.await.unwrap();

    let sent = sent.load(Ordering::SeqCst);
    let contents: HashSet<&String> = acknowledged.iter().flat_map(BTreeMap::values).collect();
    assert_eq!(contents.len(), sent, "a repeated message is one message");
    for (at, received) in &received {
        wait_for(
            format_args!("a client of room {at} to have exactly the acknowledged messages"),
            LIMIT * 2,
            async || {
                let received = received.lock().unwrap();
                let expected: BTreeSet<_> = acknowledged[*at].iter().collect();
                let actual: BTreeSet<_> = received.iter().collect();
                if actual == expected { Ok(()) } else { Err((actual.len(), expected.len())) }
            },
        )
        .await;
    }
    wait_for_online(&cluster, &users, users.len()).await;
    clients.shutdown().await;
    wait_for_online(&cluster, &users, 0).await;
    wait_for("all socket keys to be removed", LIMIT * 2, async || {
        let left = [cluster.keys("user:*:sockets"), cluster.keys("socket:*:user")].concat();
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    // Lost counters are rewritten one by one, which may take some time.
    wait_for("an audit without findings", LIMIT * 2, async || {
        let audit = hob().args(["schema", "audit", &cluster.redis.url()]).output().unwrap();
        if audit.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&audit.stdout).into_owned()) }
    })
    .await;
}

/// Waits until exactly `online` of the users are online.
async fn wait_for_online(cluster: &Cluster, users: &[String], online: usize) {
    wait_for(format_args!("{online} of {} to be online", users.len()), LIMIT * 2, async || {
        let actual = cluster.online(users);
        if actual == online { Ok(()) } else { Err(actual) }
    })
    .await;
}
