//! Redis loses all data, or goes back in time, as after a failover that lost writes or a restart from an old snapshot.

use std::sync::atomic::{AtomicBool, Ordering};

use hob_chat::keys::UserId;
use hob_chat::{Chat, Config, ReceiptKind};
use hob_database::{Read as _, Transaction, sql};
use hob_fixtures::{TestApp, TestContext, TestStore, every_service};
use hob_service::{Period, ServiceContext};
use hob_store::{BusEvent, ChannelFilter, Subscription, Value as StoreValue, cmd};
use hob_testkit::{LIMIT, TestDatabase, wait_for};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{
    NEEDS, config, done, get, keys, killable_node, open, room, say, short_lease, start, user,
};

/// Commands that write a key as it was.
struct Saved(Vec<hob_store::Cmd>);

impl Saved {
    /// Saves all keys that contain this text.
    async fn save(context: &TestContext, text: &str) -> Self {
        let mut names: Vec<String> = Vec::new();
        for master in context.store.masters().await.unwrap() {
            names.extend(
                master.run::<Vec<String>>(cmd("KEYS").arg(format!("*{text}*")).take()).await.unwrap(),
            );
        }
        // By its witness a node notices the loss. It must find the older values then, and not repair them half restored.
        names.sort_by_key(|name| name.contains("witness"));
        let mut saved = Vec::new();
        for name in &names {
            let kind: String = context.store.run(cmd("TYPE").arg(name).take()).await.unwrap();
            let (read, write): (&[&str], &str) = match kind.as_str() {
                "string" => (&["GET"], "SET"),
                "hash" => (&["HGETALL"], "HSET"),
                "set" => (&["SMEMBERS"], "SADD"),
                "zset" => (&["ZRANGE", "0", "-1", "WITHSCORES"], "ZADD"),
                _ => continue,
            };
            let mut call = cmd(read[0]);
            call.arg(name).arg(&read[1..]);
            let mut values: Vec<String> = match context.store.run(call).await.unwrap() {
                StoreValue::Array(_) if kind == "string" => panic!("{name} is not a string"),
                value if kind == "string" => {
                    vec![hob_store::FromRedisValue::from_redis_value(value).unwrap()]
                }
                value if kind == "set" => hob_store::FromRedisValue::from_redis_value(value).unwrap(),
                value => {
                    let pairs: Vec<(String, String)> =
                        hob_store::FromRedisValue::from_redis_value(value).unwrap();
                    pairs.into_iter().flat_map(|(one, two)| [one, two]).collect()
                }
            };
            if kind == "zset" {
                // A score is read after its member and written before it.
                values.chunks_exact_mut(2).for_each(<[String]>::reverse);
            }
            saved.push(cmd("DEL").arg(name).take());
            saved.push(cmd(write).arg(name).arg(values).take());
        }
        Self(saved)
    }

    /// Writes the keys as they were. Later keys stay.
    async fn restore(&self, context: &TestContext) {
        for command in &self.0 {
            context.test_store().as_outsider(command.clone()).await;
        }
    }
}

/// A lease that a machine that stalls does not lose.
async fn start_node(context: &ServiceContext) -> (Chat, TestApp) {
    let chat = start(context, Config { node_lease: Period::from_secs(9), ..config() }).await;
    let app = TestApp::start(context, chat.routes()).await;
    wait_for("a node with a lease", LIMIT, async || !chat.nodes().await.unwrap().is_empty()).await;
    (chat, app)
}

async fn wait_for_presence(chat: &Chat, who: &UserId, online: bool) {
    wait_for(format_args!("{who} to be online: {online}"), LIMIT, async || {
        chat.is_user_online(who).await.unwrap() == online
    })
    .await;
}

/// Waits until the node has looked at all shards, so that it can find out that they lost data.
async fn wait_for_looks(context: &ServiceContext) {
    let keys = keys(context);
    for shard in keys.space().shards() {
        wait_for("the node to look at a shard", LIMIT, async || {
            let looks = cmd("ZCARD").arg(keys.witness(shard).as_bytes()).take();
            context.store.run::<u64>(looks).await.unwrap() > 0
        })
        .await;
    }
}

/// The looks of the node at all shards, with their times.
async fn looks(context: &ServiceContext) -> Vec<Vec<String>> {
    let keys = keys(context);
    let mut looks = Vec::new();
    for shard in keys.space().shards() {
        let all = cmd("ZRANGE").arg(keys.witness(shard).as_bytes()).arg(0).arg(-1).arg("WITHSCORES").take();
        looks.push(context.store.run(all).await.unwrap());
    }
    looks
}

/// Waits until the node has looked at all shards again: it finds out that they lost only what is older than its last look.
async fn wait_for_later_looks(context: &ServiceContext, before: &[Vec<String>]) {
    wait_for("the node to look again", LIMIT, async || {
        looks(context).await.iter().zip(before).all(|(now, before)| now != before)
    })
    .await;
}

async fn presence_events(context: &ServiceContext) -> Subscription {
    let keys = keys(context);
    let topics = [
        ChannelFilter::channel(keys.user_online_channel()),
        ChannelFilter::channel(keys.user_offline_channel()),
    ];
    context.store.bus().subscribe(&topics).await.unwrap()
}

/// The events until one of this user, as (user, online).
async fn events_until(events: &mut Subscription, last: &str) -> Vec<(String, bool)> {
    let mut seen = Vec::new();
    loop {
        let event = tokio::time::timeout(LIMIT, events.next()).await;
        let event = event.unwrap_or_else(|_| panic!("no event of {last}, only {seen:?}"));
        let Some(BusEvent::Message { channel, payload, .. }) = event else { panic!("{event:?}") };
        let payload: Value = serde_json::from_slice(&payload).unwrap();
        let who = payload["userId"].as_str().unwrap().to_owned();
        seen.push((who.clone(), channel.ends_with(b"online")));
        if who == last {
            return seen;
        }
    }
}

every_service! {
    NEEDS;

    /// C1 C2 C3 C11: a user who left in the lost time goes offline again, one who came is online again.
    async fn presence_is_confirmed_by_the_node_that_owns_the_socket(context: TestContext) {
        let (chat, app) = start_node(&context).await;
        let anna = Client::connect(&app, &chat, "anna").await;
        let _bert = Client::connect(&app, &chat, "bert").await;
        wait_for_looks(&context).await;
        let saved = Saved::save(&context, "").await;
        drop(anna);
        let _carl = Client::connect(&app, &chat, "carl").await;
        wait_for_presence(&chat, &user("anna"), false).await;
        let sockets = Saved::save(&context, "carl").await;

        let mut events = presence_events(&context).await;
        saved.restore(&context).await;
        for command in sockets.0.iter().step_by(2) {
            // carl connected in the lost time.
            context.test_store().as_outsider(command.clone()).await;
        }
        wait_for_presence(&chat, &user("anna"), false).await;
        wait_for_presence(&chat, &user("carl"), true).await;
        assert!(chat.is_user_online(&user("bert")).await.unwrap());
        assert!(chat.sockets(&user("anna")).await.unwrap().is_empty());
        let seen = events_until(&mut events, "anna").await;
        assert_eq!(seen, [("anna".to_owned(), false)], "no other event");
    }

    /// C1 C2: Redis has lost so little that only the socket itself shows it.
    async fn socket_that_was_closed_a_moment_ago_is_closed_again(context: TestContext) {
        let (chat, app) = start_node(&context).await;
        let anna = Client::connect(&app, &chat, "anna").await;
        let saved = Saved::save(&context, "anna").await;
        drop(anna);
        wait_for_presence(&chat, &user("anna"), false).await;
        saved.restore(&context).await;
        assert!(chat.is_user_online(&user("anna")).await.unwrap());
        wait_for_presence(&chat, &user("anna"), false).await;
        wait_for("the socket to be removed", LIMIT, async || chat.sockets(&user("anna")).await.unwrap().is_empty()).await;
    }

    /// C1: Redis evicts the sockets of a user who leaves, twice.
    async fn user_who_leaves_while_redis_evicts_goes_offline(context: TestContext) {
        let (chat, app) = start_node(&context).await;
        let anna = Client::connect(&app, &chat, "anna").await;
        let evict = async || {
            let presence = keys(&context).presence(&user("anna"));
            context.test_store().as_outsider(cmd("DEL").arg(&presence).take()).await;
        };
        evict().await;
        drop(anna);
        wait_for("the node to restore the sockets", LIMIT, async || {
            let presence = keys(&context).presence(&user("anna"));
            context.store.run::<bool>(cmd("EXISTS").arg(&presence).take()).await.unwrap()
        })
        .await;
        evict().await;
        wait_for_presence(&chat, &user("anna"), false).await;
    }

    /// C11 C12
    async fn user_who_leaves_just_after_a_data_loss_goes_offline_with_an_event(context: TestContext) {
        let (chat, app) = start_node(&context).await;
        let anna = Client::connect(&app, &chat, "anna").await;
        wait_for_looks(&context).await;
        let mut events = presence_events(&context).await;
        context.test_store().flush_all().await;
        drop(anna);
        assert_eq!(events_until(&mut events, "anna").await, [("anna".to_owned(), false)]);
        let presence = chat.presence(&[user("anna")]).await.unwrap().remove(0);
        assert!(presence.last_seen.is_some() && !presence.online, "{presence:?}");
    }

    /// C11
    async fn second_device_just_after_a_data_loss_is_not_announced(context: TestContext) {
        let (chat, app) = start_node(&context).await;
        let _phone = Client::connect(&app, &chat, "anna").await;
        wait_for_looks(&context).await;
        let mut events = presence_events(&context).await;
        context.test_store().flush_all().await;
        let _laptop = Client::connect(&app, &chat, "anna").await;
        wait_for("both sockets", LIMIT, async || chat.sockets(&user("anna")).await.unwrap().len() == 2).await;
        let _bert = Client::connect(&app, &chat, "bert").await;
        assert_eq!(events_until(&mut events, "bert").await, [("bert".to_owned(), true)]);
    }

    /// C11: also if the second device connects to another node.
    async fn second_device_on_another_node_just_after_a_data_loss_is_not_announced(context: TestContext) {
        let other = context.another_node().await;
        let ((one, app_one), (two, app_two)) = (start_node(&context).await, start_node(&other).await);
        let _phone = Client::connect(&app_one, &one, "anna").await;
        wait_for("both nodes to look at all shards", LIMIT, async || {
            let mut all = true;
            for shard in keys(&context).space().shards() {
                let looks = cmd("ZCARD").arg(keys(&context).witness(shard).as_bytes()).take();
                all &= context.store.run::<u64>(looks).await.unwrap() == 2;
            }
            all
        })
        .await;
        let mut events = presence_events(&context).await;
        context.test_store().flush_all().await;
        let _laptop = Client::connect(&app_two, &two, "anna").await;
        wait_for("both sockets", LIMIT, async || two.sockets(&user("anna")).await.unwrap().len() == 2).await;
        let _bert = Client::connect(&app_two, &two, "bert").await;
        assert_eq!(events_until(&mut events, "bert").await, [("bert".to_owned(), true)]);
        other.tasks.stop_token().cancel();
    }

    /// C12
    async fn last_seen_of_the_users_of_a_dead_node_survives_a_data_loss(context: TestContext) {
        let survivor = open(&context).await;
        let killable = killable_node(&context, short_lease()).await;
        wait_for("two nodes", LIMIT, async || survivor.nodes().await.unwrap().len() == 2).await;
        killable.add_user_socket(&user("anna"), &hob_chat::keys::SocketId::new("s1").unwrap()).await.unwrap();
        killable.kill();
        wait_for_presence(&survivor, &user("anna"), false).await;
        context.test_store().flush_all().await;
        let presence = survivor.presence(&[user("anna")]).await.unwrap().remove(0);
        assert!(presence.last_seen.is_some(), "{presence:?}");
    }

    /// C8 C9
    async fn unread_counters_that_went_back_are_counted_again(context: TestContext) {
        let (chat, _app) = start_node(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let (anna, total) = (user("anna"), keys(&context).unread_total(&user("anna")));
        let mut last = 0;
        for n in 0..15 {
            last = say(&chat, &id, "bert", &n.to_string()).await.sequence;
        }
        let counted = async |count: &str| {
            wait_for(format_args!("{count} unread messages"), LIMIT, async || {
                let stored = get(&context, &total).await;
                if stored.as_deref() == Some(count) { Ok(()) } else { Err(stored) }
            })
            .await;
        };
        counted("15").await;
        wait_for_looks(&context).await;
        let before = looks(&context).await;
        let saved = Saved::save(&context, "").await;
        let counters = Saved::save(&context, "unread").await;
        done(chat.record_receipt(&id, &anna, last, ReceiptKind::Read).await);
        counted("0").await;
        wait_for_later_looks(&context, &before).await;

        saved.restore(&context).await;
        counted("0").await;

        // Without any other sign of a loss, the next read of the counts corrects the counters.
        counters.restore(&context).await;
        assert_eq!(chat.unread(&anna).await.unwrap().1, 0);
        counted("0").await;
    }

    /// C13
    async fn members_that_another_client_wrote_are_replaced(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let key = keys(&context).participants(&id);
        chat.participants(&id).await.unwrap();
        context.test_store().as_outsider(cmd("DEL").arg(key.as_bytes()).take()).await;
        context.test_store().as_outsider(cmd("SADD").arg(key.as_bytes()).arg(&["anna", "mallory"]).take()).await;
        // The relay may have seen the wrong members as well, and empty the cache a moment later. The next call fills it.
        wait_for("the members in the cache", LIMIT, async || {
            assert_eq!(chat.participants(&id).await.unwrap(), [user("anna"), user("bert")]);
            let cached: Vec<String> = context.store.run(cmd("SMEMBERS").arg(key.as_bytes()).take()).await.unwrap();
            assert!(!cached.contains(&"mallory".to_owned()), "{cached:?}");
            if cached.len() == 2 { Ok(()) } else { Err(cached) }
        })
        .await;
    }
}

/// C1: the node restores its sockets while a client connects, and then the connection fails.
#[test]
fn connection_that_fails_while_sockets_are_restored_is_not_online() {
    hob_testkit::run(async {
        let store = TestStore::redis().await;
        let context = TestContext::start_on(NEEDS, store, TestDatabase::postgres()).await;
        let (chat, app) = start_node(&context).await;
        wait_for_looks(&context).await;
        // The node reads the blocks of a client that connects. It waits for the lock, and then the table is gone.
        let (locked, released) = (&AtomicBool::new(false), &AtomicBool::new(false));
        let lock = context.database.write(|tx: Transaction| async move {
            tx.execute(sql("LOCK TABLE chat_block")).await?;
            locked.store(true, Ordering::SeqCst);
            while !released.load(Ordering::SeqCst) {
                tx.execute(sql("SELECT pg_sleep(0.05)")).await?;
            }
            tx.execute(sql("ALTER TABLE chat_block RENAME TO chat_block_gone")).await
        });
        let connect = async {
            wait_for("the lock", LIMIT, async || locked.load(Ordering::SeqCst)).await;
            let mut anna = Client::open(&app).await;
            let token = chat.issue_token(&user("anna"), LIMIT).unwrap();
            anna.send(json!({ "id": 1, "connect": { "token": token } }).to_string()).await;
            wait_for("the node to wait for the lock", LIMIT, async || {
                let waiting = sql("SELECT count(*) FROM pg_locks WHERE NOT granted");
                context.database.one::<(u64,)>(waiting).await.unwrap().0 > 0
            })
            .await;
            context.test_store().flush_all().await;
            wait_for_presence(&chat, &user("anna"), true).await;
            released.store(true, Ordering::SeqCst);
            wait_for_presence(&chat, &user("anna"), false).await;
        };
        let (lock, ()) = tokio::join!(lock, connect);
        lock.unwrap();
    });
}
