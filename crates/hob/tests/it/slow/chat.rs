//! The chat on three processes over Redis and Postgres, under load, while processes are killed and Redis restarts empty:
//! no ghost, no loss, no double.

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

use crate::crowd::{Client, Doors, Held};
use crate::program::{Server, hob};

const MEMBERS: usize = 10;
/// How soon all users of a killed node are offline on all nodes, with the lease as it is by default.
const OFFLINE_WITHIN: Duration = Duration::from_secs(12);
const CONVERSATIONS: &str = "/api/v1/chat/conversations";

/// What the processes stand on.
struct World {
    redis: RedisServer,
    postgres: Postgres,
    folder: TempDir,
    tokens: Tokens,
}

impl World {
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
        let tokens = Tokens::from_config(&config).unwrap();
        Self { redis: RedisServer::start(), postgres: Postgres::start(), folder, tokens }
    }

    fn node(&self) -> Server {
        let config = self.folder.path().join("hob.toml").display().to_string();
        let (store, database) = (self.redis.url(), self.postgres.url());
        let place = ["--only", "chat", "--redis", &store, "--database", &database];
        Server::start_with(&place, &[("HOB_CONFIG", &config), ("HOB_LOG", "error")])
    }

    fn client(&self, user: &str, room: &str, held: &Held) -> Client {
        let token = self.tokens.issue(&UserId::new(user).unwrap(), i64::MAX / 4).unwrap();
        Client { token, channel: format!("conv:{room}"), held: Arc::clone(held) }
    }

    /// Who is online, read as anybody would.
    fn online(&self, users: &[String]) -> usize {
        let keys: Vec<String> = users.iter().map(|user| format!("user:{user}:online")).collect();
        let mut words = vec!["MGET"];
        words.extend(keys.iter().map(String::as_str));
        let values: Vec<Option<String>> = self.redis.try_command(&words).unwrap_or_default();
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
        json!({ "id": room, "title": room, "createdBy": members[0], "members": &members[1..] }).to_string();
    let answer = node.post(CONVERSATIONS, &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
}

/// The users whose offline events were published, with their number.
fn count_offline(redis: &RedisServer) -> Arc<Mutex<BTreeMap<String, usize>>> {
    let counts = Arc::new(Mutex::new(BTreeMap::new()));
    let (counting, mut connection) = (Arc::clone(&counts), redis.connect());
    connection.set_read_timeout(None).unwrap();
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bus = connection.as_pubsub();
        bus.subscribe("events:user.offline").unwrap();
        ready.send(()).unwrap();
        // Until the server is gone.
        while let Ok(message) = bus.get_message() {
            let event: Value = serde_json::from_slice(message.get_payload_bytes()).unwrap();
            let user = event["userId"].as_str().unwrap().to_owned();
            *counting.lock().unwrap().entry(user).or_default() += 1;
        }
    });
    is_ready.recv().unwrap();
    counts
}

/// C1 C11: those on a node that is killed are offline everywhere within twelve seconds, each with one event.
#[tokio::test(flavor = "multi_thread")]
async fn users_of_a_killed_process_are_offline_everywhere_in_time() {
    let world = World::new();
    let (first, second, mut third) = (world.node(), world.node(), world.node());
    let users: Vec<String> = (0..budget(100, 1_000)).map(|n| format!("user{n}")).collect();
    open_room(&first, "room", &users);
    let doors: Doors = Arc::new(Mutex::new(vec![third.listen]));
    let mut clients = JoinSet::new();
    for user in &users {
        clients.spawn(world.client(user, "room", &Held::default()).stay(Arc::clone(&doors), 0));
    }
    wait_for("all users to be online", LIMIT * 2, async || {
        let online = world.online(&users);
        if online == users.len() { Ok(()) } else { Err(online) }
    })
    .await;
    let told = count_offline(&world.redis);
    // No client reconnects.
    doors.lock().unwrap().clear();
    let killed = Instant::now();
    third.kill();
    wait_for("all users to be offline", LIMIT * 2, async || {
        let online = world.online(&users);
        if online == 0 { Ok(()) } else { Err(online) }
    })
    .await;
    let took = killed.elapsed();
    // A busy machine may stand still for a while; one that is left alone has no excuse.
    let within = budget(OFFLINE_WITHIN * 2, OFFLINE_WITHIN);
    assert!(took <= within, "it took {took:?}");
    let asked = json!({ "users": users[..100] }).to_string();
    for node in [&first, &second] {
        let answer = node.post("/api/v1/chat/users/presence", &asked).body;
        assert!(!answer.contains("\"online\":true"), "{answer}");
    }
    wait_for("an event for every user", LIMIT, async || told.lock().unwrap().len() == users.len()).await;
    assert!(told.lock().unwrap().values().all(|times| *times == 1), "{:?}", told.lock().unwrap());
    wait_for("nothing of it to be left", LIMIT, async || {
        let left =
            [world.keys("user:*:sockets"), world.keys("socket:*:user"), world.keys("chat:node:*:users")];
        if left.iter().all(Vec::is_empty) { Ok(()) } else { Err(left.concat()) }
    })
    .await;
}

/// Sends to all rooms in turns through whatever door is open, each message until it is acknowledged.
fn talk(
    doors: &Doors,
    rooms: usize,
    count: &AtomicUsize,
    stop: &CancellationToken,
) -> Vec<BTreeMap<u64, String>> {
    let mut acknowledged = vec![BTreeMap::new(); rooms];
    for n in 0.. {
        let at = n % rooms;
        let body = json!({ "senderId": format!("user{at}-0"), "content": format!("message {n}"), "clientId": n.to_string() });
        let (path, body) = (format!("{CONVERSATIONS}/room{at}/messages"), body.to_string());
        for turn in 0.. {
            let door = {
                let doors = doors.lock().unwrap();
                doors[(n + turn) % doors.len()]
            };
            match crate::program::post(door, &path, &body) {
                Ok(answer) if answer.status == 201 => {
                    let message: Value = serde_json::from_str(&answer.body).unwrap();
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

/// No ghost, no loss, no double, whatever is killed; and the store is as declared in the end.
#[tokio::test(flavor = "multi_thread")]
async fn processes_are_killed_and_the_store_restarts_under_load() {
    let world = World::new();
    let mut nodes = vec![world.node(), world.node(), world.node()];
    let doors: Doors = Arc::new(Mutex::new(nodes.iter().map(|node| node.listen).collect()));
    let rooms = budget(30, 300);
    let mut held: Vec<(usize, Held)> = Vec::new();
    let (mut clients, mut everybody) = (JoinSet::new(), Vec::new());
    for at in 0..rooms {
        let members: Vec<String> = (0..MEMBERS).map(|n| format!("user{at}-{n}")).collect();
        open_room(&nodes[0], &format!("room{at}"), &members);
        for (n, name) in members.into_iter().enumerate() {
            let mine = Held::default();
            clients.spawn(world.client(&name, &format!("room{at}"), &mine).stay(Arc::clone(&doors), at + n));
            held.push((at, mine));
            everybody.push(name);
        }
    }
    all_are(&world, &everybody, everybody.len()).await;

    let stop = CancellationToken::new();
    let sent = Arc::new(AtomicUsize::new(0));
    let (open, counted, stopped) = (Arc::clone(&doors), Arc::clone(&sent), stop.clone());
    let talking = tokio::task::spawn_blocking(move || talk(&open, rooms, &counted, &stopped));
    for _ in 0..budget(2, 6) {
        let mut dead = nodes.remove(0);
        doors.lock().unwrap().retain(|door| *door != dead.listen);
        dead.kill();
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.redis.kill();
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.redis.restart();
        let next = world.node();
        doors.lock().unwrap().push(next.listen);
        nodes.push(next);
        let before = sent.load(Ordering::SeqCst);
        wait_for("messages to be acknowledged again", LIMIT * 2, async || {
            sent.load(Ordering::SeqCst) > before + 10
        })
        .await;
    }
    stop.cancel();
    let acknowledged = talking.await.unwrap();

    let sent = sent.load(Ordering::SeqCst);
    let contents: HashSet<&String> = acknowledged.iter().flat_map(BTreeMap::values).collect();
    assert_eq!(contents.len(), sent, "a repeated message is one message");
    for (at, held) in &held {
        wait_for(
            format_args!("a client of room {at} to hold exactly what was acknowledged"),
            LIMIT * 2,
            async || {
                let held = held.lock().unwrap();
                let expected: BTreeSet<_> = acknowledged[*at].iter().collect();
                let came: BTreeSet<_> = held.iter().collect();
                if came == expected { Ok(()) } else { Err((came.len(), expected.len())) }
            },
        )
        .await;
    }
    all_are(&world, &everybody, everybody.len()).await;
    clients.shutdown().await;
    all_are(&world, &everybody, 0).await;
    wait_for("no socket to be left", LIMIT * 2, async || {
        let left = [world.keys("user:*:sockets"), world.keys("socket:*:user")].concat();
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    // Counters that were lost with the store are written again one by one, and may be under way.
    wait_for("an audit without a finding", LIMIT * 2, async || {
        let audit = hob().args(["schema", "audit", &world.redis.url()]).output().unwrap();
        if audit.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&audit.stdout).into_owned()) }
    })
    .await;
}

/// Waits until so many are online: all of them, or none.
async fn all_are(world: &World, users: &[String], online: usize) {
    wait_for(format_args!("{online} of {} to be online", users.len()), LIMIT * 2, async || {
        let seen = world.online(users);
        if seen == online { Ok(()) } else { Err(seen) }
    })
    .await;
}
