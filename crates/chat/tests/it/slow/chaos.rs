//! Three nodes under load, of which some die, over a Redis that restarts empty: no ghost, no loss, no double.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use hob_chat::keys::UserId;
use hob_chat::{Chat, Config, Presence};
use hob_house::SecretRef;
use hob_testkit::{Database, LIMIT, Server, Store, TestApp, TestHouse, budget, wait_for};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

use crate::client::message_of;
use crate::world::{NEEDS, config, message, room, start, user};

const MEMBERS: usize = 10;

/// A node in a runtime of its own, so that it can be killed with everything that it holds.
struct Node {
    chat: Chat,
    address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Node {
    async fn start(house: &TestHouse, config: Config) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let other = house.another_node().await;
        let serving = runtime.spawn(async move {
            let chat = start(&other, config);
            let app = TestApp::start(&other, chat.routes()).await;
            let address = app.address();
            // Served until the runtime is gone.
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(app);
            });
            (chat, address)
        });
        let (chat, address) = serving.await.unwrap();
        Self { chat, address, runtime: Some(runtime) }
    }

    fn kill(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Where clients may connect at the moment.
type Doors = Arc<Mutex<Vec<SocketAddr>>>;
type Held = Arc<Mutex<BTreeMap<u64, String>>>;

/// Stays subscribed whatever happens, and comes back from the offset that it has seen last.
async fn stay(doors: Doors, token: String, channel: String, held: Held, mut turn: usize) {
    loop {
        turn += 1;
        let address = {
            let doors = doors.lock().unwrap();
            doors[turn % doors.len()]
        };
        let _ = listen(address, &token, &channel, &held).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn listen(address: SocketAddr, token: &str, channel: &str, held: &Held) -> Option<()> {
    let url = format!("ws://{address}/connection/websocket");
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.ok()?;
    let offset = held.lock().unwrap().keys().last().copied().unwrap_or(0);
    let subscribe = json!({ "channel": channel, "recover": true, "offset": offset });
    let hello = format!(
        "{}\n{}",
        json!({ "id": 1, "connect": { "token": token } }),
        json!({ "id": 2, "subscribe": subscribe })
    );
    socket.send(Message::text(hello)).await.ok()?;
    while let Some(Ok(frame)) = socket.next().await {
        let Message::Text(text) = frame else { return None };
        for line in text.split('\n') {
            let frame: Value = serde_json::from_str(line).unwrap();
            if frame == json!({}) {
                socket.send(Message::text("{}")).await.ok()?;
            }
            if frame["error"].is_object() {
                return None;
            }
            let recovered = frame["subscribe"]["publications"].as_array();
            for publication in recovered.into_iter().flatten().chain([&frame["push"]["pub"]]) {
                take(held, publication);
            }
        }
    }
    Some(())
}

fn take(held: &Held, publication: &Value) {
    if publication["data"]["type"] == "message" {
        let (offset, content) = message_of(publication);
        let mut held = held.lock().unwrap();
        assert!(held.keys().last().is_none_or(|last| *last < offset), "{offset} came twice, or out of order");
        held.insert(offset, content);
    }
}

/// Sends to all rooms, one after the other, until it is told to stop; answers with what was acknowledged.
async fn talk(chat: Chat, rooms: usize, stop: CancellationToken) -> Vec<BTreeMap<u64, String>> {
    let mut acknowledged = vec![BTreeMap::new(); rooms];
    for n in 0.. {
        if stop.is_cancelled() {
            break;
        }
        let at = n % rooms;
        let mut new = message(
            &crate::world::conversation(&format!("room{at}")),
            &format!("user{at}-0"),
            &format!("message {n}"),
        );
        new.client_id = Some(format!("{n}"));
        if let Ok(Ok(message)) = chat.send(&new).await {
            acknowledged[at].insert(message.sequence, message.content);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    acknowledged
}

#[test]
fn nodes_die_and_the_store_restarts_under_load() {
    hob_testkit::run(chaos());
}

async fn chaos() {
    let house = TestHouse::over(NEEDS, Store::redis().await, Database::sqlite()).await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "a secret that all nodes share").unwrap();
    let config = Config { token_secret: Some(SecretRef::File(secret.path().to_owned())), ..config() };
    let lasting = Node::start(&house, config.clone()).await;
    let mut doomed =
        vec![Node::start(&house, config.clone()).await, Node::start(&house, config.clone()).await];
    let doors: Doors = Arc::new(Mutex::new(
        [lasting.address].into_iter().chain(doomed.iter().map(|node| node.address)).collect(),
    ));

    let rooms = budget(30, 300);
    let mut held: Vec<(usize, Held)> = Vec::new();
    let clients = CancellationToken::new();
    for at in 0..rooms {
        let members: Vec<String> = (0..MEMBERS).map(|n| format!("user{at}-{n}")).collect();
        let names: Vec<&str> = members.iter().map(String::as_str).collect();
        room(&lasting.chat, &format!("room{at}"), &names).await;
        for (n, name) in members.iter().enumerate() {
            let token = lasting.chat.issue_token(&user(name), Duration::from_secs(3600)).unwrap();
            let mine = Held::default();
            held.push((at, Arc::clone(&mine)));
            let client = stay(Arc::clone(&doors), token, format!("conv:room{at}"), mine, at + n);
            tokio::spawn(clients.clone().run_until_cancelled_owned(client));
        }
    }
    let everybody: Vec<UserId> =
        (0..rooms).flat_map(|at| (0..MEMBERS).map(move |n| user(&format!("user{at}-{n}")))).collect();
    all_are(&lasting.chat, &everybody, true).await;

    let stop = CancellationToken::new();
    let talking = tokio::spawn(talk(lasting.chat.clone(), rooms, stop.clone()));
    let Server::Redis(redis) = house.store().server() else { unreachable!("it was started above") };
    for _ in 0..budget(3, 8) {
        let mut dead = doomed.remove(0);
        doors.lock().unwrap().retain(|door| *door != dead.address);
        dead.kill();
        tokio::time::sleep(Duration::from_millis(500)).await;
        redis.kill();
        tokio::time::sleep(Duration::from_millis(500)).await;
        redis.restart();
        let next = Node::start(&house, config.clone()).await;
        doors.lock().unwrap().push(next.address);
        doomed.push(next);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    stop.cancel();
    let acknowledged = talking.await.unwrap();

    let sent: usize = acknowledged.iter().map(BTreeMap::len).sum();
    assert!(sent > 100, "only {sent} messages were acknowledged");
    for (at, held) in &held {
        wait_for(format_args!("a client of room {at} to hold everything"), LIMIT * 2, async || {
            let held = held.lock().unwrap();
            // What was sent but not acknowledged may be there, too.
            let missing = acknowledged[*at]
                .iter()
                .filter(|(offset, content)| held.get(offset) != Some(content))
                .count();
            if missing == 0 { Ok(()) } else { Err(missing) }
        })
        .await;
        let held = held.lock().unwrap();
        let distinct: HashSet<&String> = held.values().collect();
        assert_eq!(distinct.len(), held.len(), "something came twice");
    }
    all_are(&lasting.chat, &everybody, true).await;
    clients.cancel();
    all_are(&lasting.chat, &everybody, false).await;
}

async fn all_are(chat: &Chat, users: &[UserId], online: bool) {
    wait_for(format_args!("everybody's presence to be {online}"), LIMIT * 2, async || {
        let presences: Vec<Presence> = chat.presence(users).await.unwrap_or_default();
        let right = presences.iter().filter(|presence| presence.online == online).count();
        if right == users.len() { Ok(()) } else { Err(right) }
    })
    .await;
}
