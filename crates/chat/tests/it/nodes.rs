//! Several nodes on one Redis and one database.

use hob_web::Service as _;
use std::time::Duration;

use hob_chat::{BlockAction, Chat, Config};
use hob_database::Database;
use hob_fixtures::{Server, TestApp, TestContext, every_service};
use hob_service::{Period, ServiceContext};
use hob_store::{BusEvent, ChannelFilter, Store};
use hob_testkit::{LIMIT, TestDatabase, wait_for};
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{
    NEEDS, config, done, get, keys, killable_node, open, room, say, short_lease, start, user,
    wait_for_heartbeats,
};
use crate::proxy::Proxy;

/// Two nodes, after both have joined.
async fn two(context: &TestContext) -> (Chat, TestApp, ServiceContext, Chat, TestApp) {
    let one = open(context).await;
    let other = context.another_node().await;
    let two = start(&other, config()).await;
    wait_for("two nodes", LIMIT, async || one.nodes().await.unwrap().len() == 2).await;
    let (app_one, app_two) =
        (TestApp::start(context.context(), one.routes()).await, TestApp::start(&other, two.routes()).await);
    (one, app_one, other, two, app_two)
}

/// Stops the other node when the test ends.
struct Stop(ServiceContext);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.tasks.stop_token().cancel();
    }
}

every_service! {
    NEEDS;

    async fn messages_cross_nodes_in_order(context: TestContext) {
        let (one, app_one, other, two, app_two) = two(&context).await;
        let _stop = Stop(other);
        let id = room(&one, "r", &["anna", "bert"]).await;
        let mut anna = Client::connect(&app_one, &one, "anna").await;
        anna.subscribe("conv:r").await;
        // Each node has generated its own secret.
        let mut bert = Client::connect(&app_two, &two, "bert").await;
        bert.subscribe("conv:r").await;
        let mut expected = Vec::new();
        for n in 0..10_u64 {
            say(if n % 2 == 0 { &one } else { &two }, &id, "anna", &n.to_string()).await;
            expected.push((n + 3, n.to_string()));
        }
        assert_eq!(anna.messages(10).await, expected);
        assert_eq!(bert.messages(10).await, expected);
        bert.rpc("typing", json!({ "conversationId": "r", "typing": true })).await;
        anna.push_where(|push| push["pub"]["data"]["typing"] == true).await;
        anna.push_where(|push| push["pub"]["data"]["typing"] == false).await;
    }

    /// C13: a removed or blocked user receives nothing after the change is acknowledged, on any node.
    async fn removed_or_blocked_user_receives_nothing_on_any_node(context: TestContext) {
        let (one, _app_one, other, two, app_two) = two(&context).await;
        let _stop = Stop(other);
        let id = room(&one, "r", &["anna", "bert", "carl", "dave"]).await;
        let mut bert = Client::connect(&app_two, &two, "bert").await;
        let mut carl = Client::connect(&app_two, &two, "carl").await;
        for client in [&mut bert, &mut carl] {
            client.subscribe("conv:r").await;
        }
        done(one.block(&user("anna"), &user("carl"), BlockAction::Block).await);
        done(one.remove_member(&id, &user("bert"), Some(&user("anna"))).await);
        say(&one, &id, "anna", "a secret").await;
        let mut phone = Client::connect(&app_two, &two, "carl").await;
        let silent = phone.recover("conv:r", 4, &Value::from("")).await["subscribe"].take();
        let secrets = |frames: &[Value]| frames.iter().any(|frame| frame.to_string().contains("secret"));
        assert!(!silent.to_string().contains("secret"), "{silent}");
        // At this point the message has reached the other node.
        done(one.add_member(&id, &user("emil"), None).await);
        carl.push_where(|push| push["pub"]["data"]["userId"] == "emil").await;
        assert!(!secrets(&carl.flush().await));
        let received = bert.flush().await;
        assert!(!secrets(&received), "{received:?}");
        assert!(received.iter().any(|frame| frame["push"]["unsubscribe"]["code"] == 2000), "{received:?}");
        assert_eq!(bert.subscribe("conv:r").await["error"]["code"], 103);
    }

    /// A removal does not wait forever for a dead node.
    async fn removal_waits_for_a_dead_node_at_most_until_its_lease_expires(context: TestContext) {
        let one = open(&context).await;
        let killable = killable_node(&context, short_lease()).await;
        wait_for("two nodes", LIMIT, async || one.nodes().await.unwrap().len() == 2).await;
        let id = room(&one, "r", &["anna", "bert"]).await;
        killable.kill();
        done(one.remove_member(&id, &user("bert"), None).await);
    }

    /// C10: published as documented, with an id and a time.
    async fn new_messages_are_published_to_other_services(context: TestContext) {
        let chat = open(&context).await;
        let channel = keys(&context).message_created_channel();
        assert_eq!(channel, "events:message.created");
        let mut events = context.store.bus().subscribe(&[ChannelFilter::channel(channel)]).await.unwrap();
        let id = room(&chat, "conv123", &["anna", "bert"]).await;
        let mut last = 0;
        for n in 0..3 {
            let sent = say(&chat, &id, "anna", &n.to_string()).await;
            let received = tokio::time::timeout(LIMIT, events.next()).await.expect("in time");
            let Some(BusEvent::Message { payload, .. }) = received else { panic!("{received:?}") };
            let event: Value = serde_json::from_slice(&payload).unwrap();
            assert_eq!((&event["conversationId"], &event["messageId"]), (&"conv123".into(), &sent.id.into()));
            assert_eq!((&event["senderId"], &event["participantIds"]), (&"anna".into(), &json!(["anna", "bert"])));
            let number: u64 = event["eventId"].as_str().unwrap().parse().unwrap();
            assert!(number > last && event["timestamp"].is_string(), "{event}");
            last = number;
        }
    }

    /// After a data loss, presence is restored from the open sockets, without events.
    async fn presence_is_restored_after_a_data_loss_without_events(context: TestContext) {
        // Long enough for a machine that stalls, or it would set the users offline; short enough for five heartbeats.
        let lease = Config { node_lease: Period::from_secs(6), ..config() };
        let chat = start(context.context(), lease).await;
        let app = TestApp::start(context.context(), chat.routes()).await;
        let _anna = Client::connect(&app, &chat, "anna").await;
        chat.add_user_socket(&user("bert"), &hob_chat::keys::SocketId::new("elsewhere").unwrap()).await.unwrap();
        wait_for("a node with a lease", LIMIT, async || chat.nodes().await.unwrap().len() == 1).await;
        wait_for("both users to be counted", LIMIT, async || {
            let load = chat.nodes().await.unwrap()[0].load;
            if (load.connections, load.users) == (1, 2) { Ok(()) } else { Err(load) }
        })
        .await;
        // A full round, so that the node has read all witness keys.
        wait_for_heartbeats(&context, &chat, 5).await;
        let keys = keys(&context);
        let topics = [ChannelFilter::channel(keys.user_online_channel()), ChannelFilter::channel(keys.user_offline_channel())];
        let mut events = context.store.bus().subscribe(&topics).await.unwrap();
        context.test_store().flush_all().await;
        for who in ["anna", "bert"] {
            wait_for("presence to be restored", LIMIT, async || chat.is_user_online(&user(who)).await.unwrap()).await;
        }
        let received = tokio::time::timeout(Duration::from_millis(200), events.next()).await;
        assert!(received.is_err(), "{received:?}");
    }
}

/// Two nodes. The second one's connection to Redis can be cut.
async fn two_with_a_proxy(context: &TestContext) -> (Chat, Chat, TestApp, Proxy, Stop) {
    let Server::Redis(redis) = context.test_store().server() else { unreachable!("it is a Redis") };
    let proxy = Proxy::to(([127, 0, 0, 1], redis.port()).into()).await;
    let store = Store::open(&format!("redis://{}/", proxy.address()).parse().unwrap()).unwrap();
    let other = ServiceContext { store, ..context.another_node().await };
    let (one, two) = (open(context).await, start(&other, short_lease()).await);
    wait_for("two nodes", LIMIT, async || one.nodes().await.unwrap().len() == 2).await;
    let app = TestApp::start(&other, two.routes()).await;
    (one, two, app, proxy, Stop(other))
}

/// C13: a node without a lease does not receive control commands, and so reads the database before each delivery.
#[test]
fn node_without_a_lease_delivers_nothing_to_removed_or_blocked_users() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let (one, two, app, proxy, _stop) = two_with_a_proxy(&context).await;
        let id = room(&one, "r", &["anna", "bert", "carl", "dave"]).await;
        let mut clients = Vec::new();
        for who in ["bert", "carl", "dave"] {
            let mut client = Client::connect(&app, &two, who).await;
            client.subscribe("conv:r").await;
            clients.push(client);
        }
        proxy.cut();
        // Acknowledged when the other node's lease has expired.
        done(one.remove_member(&id, &user("bert"), None).await);
        done(one.block(&user("anna"), &user("carl"), BlockAction::Block).await);
        say(&two, &id, "anna", "a secret").await;
        let [bert, carl, dave] = clients.as_mut_slice() else { unreachable!("there are three clients") };
        dave.push_where(|push| push["pub"]["data"]["message"]["content"] == "a secret").await;
        for client in [bert, carl] {
            let received = client.flush().await;
            assert!(!received.iter().any(|frame| frame.to_string().contains("secret")), "{received:?}");
        }
        proxy.restore();
        wait_for("two nodes again", LIMIT, async || one.nodes().await.unwrap().len() == 2).await;
    });
}

/// A client that was connected to a node with newer events receives no event twice.
#[test]
fn client_that_is_ahead_of_a_disconnected_node_gets_nothing_twice() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let (one, two, app, proxy, _stop) = two_with_a_proxy(&context).await;
        let id = room(&one, "r", &["anna", "bert"]).await;
        let mut bert = Client::connect(&app, &two, "bert").await;
        bert.subscribe("conv:r").await;
        let mut anna = Client::connect(&app, &two, "anna").await;
        proxy.cut();
        // This node does not receive the message, and anna has received it elsewhere.
        let received = say(&one, &id, "bert", "sent elsewhere").await.sequence;
        let recovered = anna.recover("conv:r", received, &Value::from("")).await["subscribe"].take();
        assert_eq!(
            (&recovered["recovered"], &recovered["offset"]),
            (&true.into(), &received.into()),
            "{recovered}"
        );
        proxy.restore();
        say(&one, &id, "bert", "sent here").await;
        assert_eq!(anna.messages(1).await, [(received + 1, "sent here".to_owned())]);
        assert_eq!(bert.messages(2).await.len(), 2);
    });
}

/// Without Redis, messages reach all clients of the same node; when it is back, presence and counters are repaired.
#[test]
fn delivery_within_a_node_works_without_redis() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let Server::Redis(redis) = context.test_store().server() else { unreachable!("it is a Redis") };
        let chat = open(&context).await;
        let app = TestApp::start(context.context(), chat.routes()).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        bert.subscribe("conv:r").await;
        redis.kill();
        say(&chat, &id, "anna", "anybody there?").await;
        assert_eq!(bert.messages(1).await, [(3, "anybody there?".to_owned())]);
        redis.restart();
        wait_for("bert to be online again", LIMIT, async || {
            chat.is_user_online(&user("bert")).await.unwrap_or(false)
        })
        .await;
        wait_for("the counter to be repaired", LIMIT, async || {
            get(&context, &keys(&context).unread_total(&user("bert"))).await.as_deref() == Some("1")
        })
        .await;
        say(&chat, &id, "anna", "good").await;
        assert_eq!(bert.messages(1).await, [(4, "good".to_owned())]);
    });
}

/// Without the database, sending is refused with an error, connections stay open, and typing works.
#[test]
fn typing_works_without_the_database() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let TestDatabase::Postgres(postgres) = context.test_database() else {
            unreachable!("it is PostgreSQL")
        };
        // The handle of a service, which does not wait as long as that of a test.
        let sets: Vec<_> = [hob_web::MIGRATIONS].iter().chain(NEEDS.migrations).copied().collect();
        let database = Database::open(&postgres.url().parse().unwrap(), &sets).await.unwrap();
        let context = ServiceContext { database, ..context.context().clone() };
        let chat = start(&context, config()).await;
        let app = TestApp::start(&context, chat.routes()).await;
        room(&chat, "r", &["anna", "bert"]).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        anna.subscribe("conv:r").await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        bert.subscribe("conv:r").await;
        postgres.stop();
        let typing = |on: bool| json!({ "conversationId": "r", "typing": on });
        for on in [true, false] {
            let answer = anna.rpc("typing", typing(on)).await;
            assert!(answer["error"].is_null(), "{answer}");
            bert.push_where(|push| push["pub"]["data"]["typing"] == on).await;
        }
        let refused = anna.rpc("send", json!({ "conversationId": "r", "content": "hello" })).await;
        assert!(refused["error"].is_object(), "{refused}");
        postgres.restart();
        wait_for("a message to be sent", LIMIT, async || {
            let sent = anna.rpc("send", json!({ "conversationId": "r", "content": "hello" })).await;
            if sent["error"].is_null() { Ok(()) } else { Err(sent) }
        })
        .await;
        assert_eq!(bert.messages(1).await[0].1, "hello");
    });
}

/// C13: without Redis a removal or a block is saved, and the answer does not claim that nothing was changed.
#[test]
fn removal_without_redis_says_that_the_change_is_saved() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let Server::Redis(redis) = context.test_store().server() else { unreachable!("it is a Redis") };
        // The handle of a service, which does not wait as long as that of a test.
        let store = Store::open(&redis.url().parse().unwrap()).unwrap();
        let context = ServiceContext { store, ..context.context().clone() };
        let chat = start(&context, config()).await;
        let app = TestApp::start(&context, chat.routes()).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        redis.kill();
        let removed = app.delete("/api/v1/chat/conversations/r/members?user_id=bert").await;
        assert_eq!(removed.status, 503, "{}", removed.text());
        assert!(removed.text().contains("is saved"), "{}", removed.text());
        assert_eq!(chat.participants(&id).await.unwrap(), [user("anna")]);
        let blocked = app.post("/api/v1/chat/users/anna/blocks", &json!({ "user_id": "bert" })).await;
        assert_eq!(blocked.status, 503, "{}", blocked.text());
        assert!(blocked.text().contains("is saved"), "{}", blocked.text());
        assert_eq!(chat.blocked_by(&user("anna")).await.unwrap(), [user("bert")]);
        redis.restart();
        wait_for("the removal to be confirmed", LIMIT, async || {
            app.delete("/api/v1/chat/conversations/r/members?user_id=bert").await.status != 503
        })
        .await;
    });
}

/// A node subscribes only to the channels that have subscribers on it.
#[test]
fn node_subscribes_only_to_channels_with_subscribers() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let Server::Redis(redis) = context.test_store().server() else { unreachable!("it is a Redis") };
        let chat = open(&context).await;
        let app = TestApp::start(context.context(), chat.routes()).await;
        for id in ["one", "two", "three"] {
            room(&chat, id, &["anna", "bert"]).await;
        }
        let listened = |expected: &'static [&str]| async move {
            wait_for(format_args!("subscriptions to {expected:?}"), LIMIT, async || {
                let mut channels: Vec<String> =
                    redis.command(&["PUBSUB", "CHANNELS", "chat:bus:conversation:*"]);
                channels.sort();
                if channels == expected { Ok(()) } else { Err(channels) }
            })
            .await;
        };
        let mut anna = Client::connect(&app, &chat, "anna").await;
        anna.subscribe("conv:one").await;
        anna.subscribe("conv:two").await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        bert.subscribe("conv:one").await;
        listened(&["chat:bus:conversation:one", "chat:bus:conversation:two"]).await;
        anna.call(json!({ "unsubscribe": { "channel": "conv:two" } })).await;
        drop(bert);
        listened(&["chat:bus:conversation:one"]).await;
        drop(anna);
        listened(&[]).await;
    });
}
