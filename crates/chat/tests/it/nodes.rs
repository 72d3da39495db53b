//! Several nodes over one store and one database.

use hob_web::Service as _;
use std::time::Duration;

use hob_chat::{BlockAction, Chat};
use hob_service::ServiceContext;
use hob_store::{BusEvent, Store, Topic};
use hob_testkit::{LIMIT, Server, TestApp, TestContext, every_service, wait_for};
use serde_json::{Value, json};

use crate::cable::Cable;
use crate::client::Client;
use crate::world::{Doomed, NEEDS, beats, config, done, get, keys, open, room, say, start, user};

/// Two nodes that know of each other.
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

    async fn a_message_crosses_nodes_in_order(context: TestContext) {
        let (one, app_one, other, two, app_two) = two(&context).await;
        let _stop = Stop(other);
        let id = room(&one, "r", &["anna", "bert"]).await;
        let mut anna = Client::connect(&app_one, &one, "anna").await;
        anna.subscribe("conv:r").await;
        // Each node has made up a secret of its own.
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
    async fn who_was_removed_or_blocked_hears_nothing_more_on_any_node(context: TestContext) {
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
        // Until the message has reached the other node.
        done(one.add_member(&id, &user("emil"), None).await);
        carl.push_where(|push| push["pub"]["data"]["userId"] == "emil").await;
        assert!(!secrets(&carl.flush().await));
        let heard = bert.flush().await;
        assert!(!secrets(&heard), "{heard:?}");
        assert!(heard.iter().any(|frame| frame["push"]["unsubscribe"]["code"] == 2000), "{heard:?}");
        assert_eq!(bert.subscribe("conv:r").await["error"]["code"], 103);
    }

    /// A removal does not wait for ever for a node that is dead.
    async fn a_removal_waits_for_a_dead_node_no_longer_than_its_lease(context: TestContext) {
        let one = open(&context).await;
        let doomed = Doomed::start(&context).await;
        wait_for("two nodes", LIMIT, async || one.nodes().await.unwrap().len() == 2).await;
        let id = room(&one, "r", &["anna", "bert"]).await;
        doomed.kill();
        done(one.remove_member(&id, &user("bert"), None).await);
    }

    /// C10: published as documented, with an id and a time.
    async fn new_messages_are_told_to_other_services(context: TestContext) {
        let chat = open(&context).await;
        let channel = keys(&context).message_created_channel();
        assert_eq!(channel, "events:message.created");
        let mut ear = context.store.bus().subscribe(&[Topic::channel(channel)]).await.unwrap();
        let id = room(&chat, "conv123", &["anna", "bert"]).await;
        let mut last = 0;
        for n in 0..3 {
            let sent = say(&chat, &id, "anna", &n.to_string()).await;
            let heard = tokio::time::timeout(LIMIT, ear.next()).await.expect("in time");
            let Some(BusEvent::Message { payload, .. }) = heard else { panic!("{heard:?}") };
            let event: Value = serde_json::from_slice(&payload).unwrap();
            assert_eq!((&event["conversationId"], &event["messageId"]), (&"conv123".into(), &sent.id.into()));
            assert_eq!((&event["senderId"], &event["participantIds"]), (&"anna".into(), &json!(["anna", "bert"])));
            let number: u64 = event["eventId"].as_str().unwrap().parse().unwrap();
            assert!(number > last && event["timestamp"].is_string(), "{event}");
            last = number;
        }
    }

    /// Presence is written again after a loss, without events, from the sockets that there are.
    async fn presence_comes_back_after_a_loss_without_events(context: TestContext) {
        let chat = open(&context).await;
        let app = TestApp::start(context.context(), chat.routes()).await;
        let _anna = Client::connect(&app, &chat, "anna").await;
        chat.add_user_socket(&user("bert"), &hob_chat::keys::SocketId::new("elsewhere").unwrap()).await.unwrap();
        wait_for("a node with a lease", LIMIT, async || chat.nodes().await.unwrap().len() == 1).await;
        // A full round of witnesses, so that all are known.
        beats(&context, &chat, 5).await;
        let keys = keys(&context);
        let topics = [Topic::channel(keys.user_online_channel()), Topic::channel(keys.user_offline_channel())];
        let mut ear = context.store.bus().subscribe(&topics).await.unwrap();
        context.test_store().flush_all().await;
        for who in ["anna", "bert"] {
            wait_for("presence to be back", LIMIT, async || chat.is_user_online(&user(who)).await.unwrap()).await;
        }
        let told = tokio::time::timeout(Duration::from_millis(200), ear.next()).await;
        assert!(told.is_err(), "{told:?}");
    }
}

/// Two nodes, of which the second one's way to Redis can be cut.
async fn two_with_a_cable(context: &TestContext) -> (Chat, Chat, TestApp, Cable, Stop) {
    let Server::Redis(redis) = context.test_store().server() else { unreachable!("it is a Redis") };
    let cable = Cable::to(([127, 0, 0, 1], redis.port()).into()).await;
    let store = Store::open(&format!("redis://{}/", cable.address()).parse().unwrap()).unwrap();
    let other = ServiceContext { store, ..context.another_node().await };
    let (one, two) = (open(context).await, start(&other, config()).await);
    wait_for("two nodes", LIMIT, async || one.nodes().await.unwrap().len() == 2).await;
    let app = TestApp::start(&other, two.routes()).await;
    (one, two, app, cable, Stop(other))
}

/// C13: a node that has no lease hears of no change, and so it looks into the database before it tells anybody anything.
#[test]
fn a_node_without_its_lease_tells_a_removed_or_blocked_user_nothing() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let (one, two, app, cable, _stop) = two_with_a_cable(&context).await;
        let id = room(&one, "r", &["anna", "bert", "carl", "dave"]).await;
        let mut clients = Vec::new();
        for who in ["bert", "carl", "dave"] {
            let mut client = Client::connect(&app, &two, who).await;
            client.subscribe("conv:r").await;
            clients.push(client);
        }
        cable.cut();
        // Acknowledged once the other's lease is over.
        done(one.remove_member(&id, &user("bert"), None).await);
        done(one.block(&user("anna"), &user("carl"), BlockAction::Block).await);
        say(&two, &id, "anna", "a secret").await;
        let [bert, carl, dave] = clients.as_mut_slice() else { unreachable!("three came") };
        dave.push_where(|push| push["pub"]["data"]["message"]["content"] == "a secret").await;
        for client in [bert, carl] {
            let heard = client.flush().await;
            assert!(!heard.iter().any(|frame| frame.to_string().contains("secret")), "{heard:?}");
        }
        cable.mend();
        wait_for("two nodes again", LIMIT, async || one.nodes().await.unwrap().len() == 2).await;
    });
}

/// Who comes from a node that has heard more than this one is told nothing twice.
#[test]
fn who_is_ahead_of_a_node_that_was_cut_off_hears_nothing_twice() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let (one, two, app, cable, _stop) = two_with_a_cable(&context).await;
        let id = room(&one, "r", &["anna", "bert"]).await;
        let mut bert = Client::connect(&app, &two, "bert").await;
        bert.subscribe("conv:r").await;
        let mut anna = Client::connect(&app, &two, "anna").await;
        cable.cut();
        // Of this the other node hears nothing, and anna was told it elsewhere.
        let told = say(&one, &id, "bert", "told elsewhere").await.sequence;
        let recovered = anna.recover("conv:r", told, &Value::from("")).await["subscribe"].take();
        assert_eq!(
            (&recovered["recovered"], &recovered["offset"]),
            (&true.into(), &told.into()),
            "{recovered}"
        );
        cable.mend();
        say(&one, &id, "bert", "told here").await;
        assert_eq!(anna.messages(1).await, [(told + 1, "told here".to_owned())]);
        assert_eq!(bert.messages(2).await.len(), 2);
    });
}

/// Without the store, what is said reaches everybody on the same node; when it is back, everything is as it should be.
#[test]
fn delivery_within_a_node_goes_on_without_the_store() {
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
        wait_for("the counter to be right again", LIMIT, async || {
            get(&context, &keys(&context).unread_total(&user("bert"))).await.as_deref() == Some("1")
        })
        .await;
        say(&chat, &id, "anna", "good").await;
        assert_eq!(bert.messages(1).await, [(4, "good".to_owned())]);
    });
}

/// A node listens to the channels that somebody on it is subscribed to, and to no others.
#[test]
fn a_node_listens_only_for_those_who_are_there() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let Server::Redis(redis) = context.test_store().server() else { unreachable!("it is a Redis") };
        let chat = open(&context).await;
        let app = TestApp::start(context.context(), chat.routes()).await;
        for id in ["one", "two", "three"] {
            room(&chat, id, &["anna", "bert"]).await;
        }
        let listened = |expected: &'static [&str]| async move {
            wait_for(format_args!("{expected:?} to be listened to"), LIMIT, async || {
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
