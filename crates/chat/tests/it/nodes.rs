//! Several nodes over one store and one set of records.

use std::time::Duration;

use hob_chat::{Chat, Wish};
use hob_hot::{BusEvent, Topic};
use hob_house::House;
use hob_testkit::{LIMIT, TestApp, TestHouse, every_house, wait_for};
use serde_json::{Value, json};

use crate::client::Client;
use crate::world::{Doomed, NEEDS, config, done, keys, open, room, say, start, user};

/// Two nodes that know of each other.
async fn two(house: &TestHouse) -> (Chat, TestApp, House, Chat, TestApp) {
    let one = open(house);
    let other = house.another_node().await;
    let two = start(&other, config());
    wait_for("two nodes", LIMIT, async || one.nodes().await.unwrap().len() == 2).await;
    let (app_one, app_two) =
        (TestApp::start(house.house(), one.routes()).await, TestApp::start(&other, two.routes()).await);
    (one, app_one, other, two, app_two)
}

/// Stops the other node when the test ends.
struct Stop(House);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.tasks.stop_token().cancel();
    }
}

every_house! {
    NEEDS;

    async fn a_message_crosses_nodes_in_order(house: TestHouse) {
        let (one, app_one, other, two, app_two) = two(&house).await;
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
    async fn who_was_removed_or_blocked_hears_nothing_more_on_any_node(house: TestHouse) {
        let (one, _app_one, other, two, app_two) = two(&house).await;
        let _stop = Stop(other);
        let id = room(&one, "r", &["anna", "bert", "carl", "dave"]).await;
        let mut bert = Client::connect(&app_two, &two, "bert").await;
        let mut carl = Client::connect(&app_two, &two, "carl").await;
        for client in [&mut bert, &mut carl] {
            client.subscribe("conv:r").await;
        }
        done(one.block(&user("anna"), &user("carl"), Wish::Block).await);
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
    async fn a_removal_waits_for_a_dead_node_no_longer_than_its_lease(house: TestHouse) {
        let one = open(&house);
        let doomed = Doomed::start(&house).await;
        wait_for("two nodes", LIMIT, async || one.nodes().await.unwrap().len() == 2).await;
        let id = room(&one, "r", &["anna", "bert"]).await;
        doomed.kill();
        done(one.remove_member(&id, &user("bert"), None).await);
    }

    /// C10: published as documented, with an id and a time.
    async fn new_messages_are_told_to_other_services(house: TestHouse) {
        let chat = open(&house);
        let channel = keys(&house).message_created_channel();
        assert_eq!(channel, "events:message.created");
        let mut ear = house.hot.bus().subscribe(&[Topic::channel(channel)]).await.unwrap();
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
    async fn presence_comes_back_after_a_loss_without_events(house: TestHouse) {
        let chat = open(&house);
        let app = TestApp::start(house.house(), chat.routes()).await;
        let _anna = Client::connect(&app, &chat, "anna").await;
        chat.add_user_socket(&user("bert"), &hob_chat::keys::SocketId::new("elsewhere").unwrap()).await.unwrap();
        wait_for("a node with a lease", LIMIT, async || chat.nodes().await.unwrap().len() == 1).await;
        // A full round of beats, so that every witness is known.
        wait_for("the node's load", LIMIT, async || chat.nodes().await.unwrap()[0].load.connections == 1).await;
        tokio::time::sleep(Duration::from_millis(3_000)).await;
        let keys = keys(&house);
        let topics = [Topic::channel(keys.user_online_channel()), Topic::channel(keys.user_offline_channel())];
        let mut ear = house.hot.bus().subscribe(&topics).await.unwrap();
        house.store().flush_all().await;
        for who in ["anna", "bert"] {
            wait_for("presence to be back", LIMIT, async || chat.is_user_online(&user(who)).await.unwrap()).await;
        }
        let told = tokio::time::timeout(Duration::from_millis(200), ear.next()).await;
        assert!(told.is_err(), "{told:?}");
    }
}
