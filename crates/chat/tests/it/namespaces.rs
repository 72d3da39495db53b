//! Channels of configured namespaces: permissions, delivery on all nodes, history, recovery, presence, joins and leaves.

use std::time::Duration;

use hob_chat::keys::NamedChannel;
use hob_chat::{Chat, Config, Namespace};
use hob_fixtures::{TestApp, every_service};
use hob_service::{Period, ServiceContext};
use hob_store::cmd;
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, config, keys, start, user};

/// `news` with everything that a client can be allowed, `plain` with nothing but subscriptions, `dialog` for listed users.
pub(crate) fn with_namespaces() -> Config {
    let mut config = config();
    let news = Namespace {
        history_size: 5,
        history_ttl: Period::from_secs(600),
        force_recovery: true,
        presence: true,
        join_leave: true,
        allow_subscribe_for_client: true,
        allow_publish_for_subscriber: true,
        allow_history_for_subscriber: true,
        allow_presence_for_subscriber: true,
        ..Namespace::default()
    };
    let plain = Namespace { allow_subscribe_for_client: true, ..Namespace::default() };
    let dialog = Namespace {
        allow_user_limited_channels: true,
        allow_publish_for_subscriber: true,
        ..Namespace::default()
    };
    let all = [("news", news), ("plain", plain), ("dialog", dialog)];
    config.namespaces = all.into_iter().map(|(name, options)| (name.to_owned(), options)).collect();
    config
}

pub(crate) async fn open(context: &ServiceContext) -> (Chat, TestApp) {
    let chat = start(context, with_namespaces()).await;
    let app = TestApp::start(context, chat.routes()).await;
    (chat, app)
}

async fn publish(client: &mut Client, channel: &str, data: Value) -> Value {
    client.call(json!({ "publish": { "channel": channel, "data": data } })).await
}

fn data_of(publications: &Value) -> Vec<Value> {
    publications.as_array().into_iter().flatten().map(|publication| publication["data"].clone()).collect()
}

async fn next_publication(client: &mut Client) -> Value {
    client.push_where(|push| push["pub"].is_object()).await
}

every_service! {
    NEEDS;

    async fn publications_reach_the_subscribers_of_all_nodes_in_order(context: TestContext) {
        let (chat, app) = open(&context).await;
        let other = context.another_node().await;
        let (there, app_there) = open(&other).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let mut bert = Client::connect(&app_there, &there, "bert").await;
        for client in [&mut anna, &mut bert] {
            let reply = client.subscribe("news:sport").await;
            assert_eq!(reply["subscribe"]["recoverable"], true, "{reply}");
            assert_eq!(reply["subscribe"]["offset"], 0, "{reply}");
        }
        for n in 1..=20 {
            let reply = publish(&mut anna, "news:sport", json!({ "n": n })).await;
            assert!(reply["publish"].is_object(), "{reply}");
        }
        for client in [&mut anna, &mut bert] {
            for n in 1..=20 {
                let push = next_publication(client).await;
                assert_eq!(push["channel"], "news:sport");
                assert_eq!(push["pub"]["data"], json!({ "n": n }));
                assert_eq!(push["pub"]["offset"], n);
                assert_eq!(push["pub"]["info"]["user"], "anna");
            }
        }
        // A namespace without a history has no offsets.
        bert.subscribe("plain:x").await;
        let reply = publish(&mut bert, "plain:x", json!(1)).await;
        assert_eq!(reply["error"]["code"], 103, "publishing is off by default: {reply}");
        other.tasks.stop(LIMIT).await;
    }

    async fn client_recovers_what_the_history_still_has(context: TestContext) {
        let (chat, app) = open(&context).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        let first = anna.subscribe("news:a").await["subscribe"].take();
        bert.subscribe("news:a").await;
        drop(anna);
        for n in 1..=3 {
            publish(&mut bert, "news:a", json!(n)).await;
        }
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let reply = anna.recover("news:a", 0, &first["epoch"]).await["subscribe"].take();
        assert_eq!((&reply["recovered"], &reply["was_recovering"]), (&json!(true), &json!(true)), "{reply}");
        assert_eq!(data_of(&reply["publications"]), [1, 2, 3], "{reply}");
        assert_eq!(reply["offset"], 3);

        // The next publication follows the recovered ones.
        publish(&mut bert, "news:a", json!(4)).await;
        assert_eq!(next_publication(&mut anna).await["pub"]["offset"], 4);
        drop(anna);
        for n in 5..=10 {
            publish(&mut bert, "news:a", json!(n)).await;
        }
        // Five publications are kept: 6 to 10.
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let reply = anna.recover("news:a", 5, &first["epoch"]).await["subscribe"].take();
        assert_eq!(data_of(&reply["publications"]), [6, 7, 8, 9, 10], "{reply}");
        anna.call(json!({ "unsubscribe": { "channel": "news:a" } })).await;
        let reply = anna.recover("news:a", 4, &first["epoch"]).await["subscribe"].take();
        assert_eq!((&reply["recovered"], &reply["offset"]), (&json!(false), &json!(10)), "{reply}");
        assert!(reply["publications"].is_null(), "{reply}");
        anna.call(json!({ "unsubscribe": { "channel": "news:a" } })).await;
        let reply = anna.recover("news:a", 9, &json!("other")).await["subscribe"].take();
        assert_eq!(reply["recovered"], false, "another epoch: {reply}");
    }

    async fn loss_of_the_history_starts_a_new_epoch_and_clients_subscribe_again(context: TestContext) {
        let (chat, app) = open(&context).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let first = anna.subscribe("news:a").await["subscribe"].take();
        publish(&mut anna, "news:a", json!("before")).await;
        assert_eq!(next_publication(&mut anna).await["pub"]["data"], "before");
        let channel = NamedChannel::new("news:a").unwrap();
        let lost = [keys(&context).history(&channel), keys(&context).position(&channel)];
        context.test_store().as_outsider(cmd("DEL").arg(&lost[0]).arg(&lost[1]).clone()).await;
        publish(&mut anna, "news:a", json!("after")).await;
        let push = anna.push_where(|push| push["unsubscribe"].is_object()).await;
        assert_eq!(push["unsubscribe"]["code"], 2500, "{push}");
        let reply = anna.recover("news:a", 1, &first["epoch"]).await["subscribe"].take();
        assert_eq!(reply["recovered"], false, "{reply}");
        assert_ne!(reply["epoch"], first["epoch"]);
        assert_eq!(reply["offset"], 1);
        publish(&mut anna, "news:a", json!("live")).await;
        assert_eq!(next_publication(&mut anna).await["pub"]["offset"], 2);
    }

    async fn history_has_pages_and_a_direction(context: TestContext) {
        let (chat, app) = open(&context).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let refused = anna.call(json!({ "history": { "channel": "news:a", "limit": 5 } })).await;
        assert_eq!(refused["error"]["code"], 103, "subscribers only: {refused}");
        anna.subscribe("news:a").await;
        for n in 1..=7 {
            publish(&mut anna, "news:a", json!(n)).await;
        }
        let mut epoch = Value::Null;
        for (request, expected) in [
            (json!({ "limit": 100 }), vec![3, 4, 5, 6, 7]),
            (json!({ "limit": -1, "reverse": true }), vec![7, 6, 5, 4, 3]),
            (json!({ "limit": 2 }), vec![3, 4]),
            (json!({ "limit": 2, "reverse": true }), vec![7, 6]),
            (json!({ "limit": 0 }), vec![]),
            (json!({ "limit": 2, "since": { "offset": 4 } }), vec![5, 6]),
            (json!({ "limit": 2, "since": { "offset": 6 }, "reverse": true }), vec![5, 4]),
        ] {
            let mut command = json!({ "history": request });
            command["history"]["channel"] = json!("news:a");
            let reply = anna.call(command.clone()).await["history"].take();
            assert_eq!(data_of(&reply["publications"]), expected, "{command}");
            assert_eq!(reply["offset"], 7, "{command}");
            epoch = reply["epoch"].clone();
        }
        for since in [json!({ "offset": 1, "epoch": epoch }), json!({ "offset": 6, "epoch": "other" })] {
            let reply = anna.call(json!({ "history": { "channel": "news:a", "limit": 2, "since": since } })).await;
            assert_eq!(reply["error"]["code"], 112, "{reply}");
        }
    }

    async fn presence_lists_the_clients_and_joins_and_leaves_are_pushed(context: TestContext) {
        let (chat, app) = open(&context).await;
        let other = context.another_node().await;
        let (there, app_there) = open(&other).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        anna.subscribe("news:a").await;
        let mut bert = Client::connect(&app_there, &there, "bert").await;
        bert.subscribe("news:a").await;
        let push = anna.push_where(|push| push["join"]["info"]["user"] == "bert").await;
        assert_eq!(push["join"]["info"]["client"], bert.socket_id, "{push}");
        let reply = anna.call(json!({ "presence": { "channel": "news:a" } })).await["presence"]["presence"].take();
        assert_eq!(reply.as_object().unwrap().len(), 2, "{reply}");
        assert_eq!(reply[&bert.socket_id]["user"], "bert", "{reply}");
        let reply = anna.call(json!({ "presence_stats": { "channel": "news:a" } })).await;
        assert_eq!(reply["presence_stats"], json!({ "num_clients": 2, "num_users": 2 }), "{reply}");
        drop(bert);
        let push = anna.push_where(|push| push["leave"].is_object()).await;
        assert_eq!(push["leave"]["info"]["user"], "bert", "{push}");
        wait_for("bert to leave the presence", LIMIT, async || {
            let reply = anna.call(json!({ "presence_stats": { "channel": "news:a" } })).await;
            reply["presence_stats"]["num_clients"] == 1
        })
        .await;
        let reply = anna.call(json!({ "presence": { "channel": "plain:a" } })).await;
        assert_eq!(reply["error"]["code"], 108, "the namespace has no presence: {reply}");
        other.tasks.stop(LIMIT).await;
    }

    async fn only_permitted_channels_can_be_subscribed(context: TestContext) {
        let (chat, app) = open(&context).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        for (channel, code) in [
            ("other:a", 102), ("lobby", 102), ("news", 102), ("", 102),
            ("$news:a", 103), ("dialog:a", 103), ("dialog:a#bert", 103), ("news:a#anna", 103),
        ] {
            let reply = anna.subscribe(channel).await;
            assert_eq!(reply["error"]["code"], code, "{channel}: {reply}");
        }
        assert!(anna.subscribe("dialog:a#anna,bert").await["subscribe"].is_object());
        assert!(publish(&mut anna, "dialog:a#anna,bert", json!(1)).await["publish"].is_object());
        assert_eq!(next_publication(&mut anna).await["pub"]["data"], 1);
        assert_eq!(publish(&mut anna, "dialog:b#anna", json!(1)).await["error"]["code"], 103, "not subscribed");
        assert_eq!(anna.subscribe("dialog:a#anna,bert").await["error"]["code"], 105);
    }

    async fn token_opens_one_channel_for_one_user(context: TestContext) {
        let (chat, app) = open(&context).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let channel = NamedChannel::new("$news:a").unwrap();
        let subscribe = |channel: &str, token: String| json!({ "subscribe": { "channel": channel, "token": token } });
        let issue = |who: &str| chat.issue_subscription_token(&user(who), &channel, Duration::from_secs(60)).unwrap();
        for (command, code) in [
            (subscribe("$news:b", issue("anna")), 103),
            (subscribe("$news:a", issue("bert")), 103),
            (subscribe("$news:a", "rubbish".to_owned()), 103),
            (subscribe("$news:a", chat.issue_token(&user("anna"), Duration::from_secs(60)).unwrap()), 103),
        ] {
            let reply = anna.call(command).await;
            assert_eq!(reply["error"]["code"], code, "{reply}");
        }
        let expired = chat.issue_subscription_token(&user("anna"), &channel, Duration::ZERO).unwrap();
        let reply = anna.call(json!({ "sub_refresh": { "channel": "$news:a", "token": expired } })).await;
        assert_eq!(reply["error"]["code"], 103, "not subscribed: {reply}");

        let reply = anna.call(subscribe("$news:a", issue("anna"))).await["subscribe"].take();
        assert_eq!(reply["expires"], true, "{reply}");
        assert!(reply["ttl"].as_u64().unwrap() > 50, "{reply}");
        let reply = anna.call(json!({ "sub_refresh": { "channel": "$news:a", "token": issue("anna") } })).await;
        assert_eq!(reply["sub_refresh"]["expires"], true, "{reply}");
        // A token for a channel does not sign in.
        let mut guest = Client::open(&app).await;
        guest.send(json!({ "id": 1, "connect": { "token": issue("anna") } }).to_string()).await;
        assert_eq!(guest.end().await, 3500);
    }

    async fn expired_subscription_ends_with_a_code_on_which_clients_get_a_new_token(context: TestContext) {
        let config = Config { token_grace: Period::from_millis(0), ..with_namespaces() };
        let chat = start(&context, config).await;
        let app = TestApp::start(&context, chat.routes()).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let channel = NamedChannel::new("$news:a").unwrap();
        let token = chat.issue_subscription_token(&user("anna"), &channel, Duration::from_secs(1)).unwrap();
        let reply = anna.call(json!({ "subscribe": { "channel": "$news:a", "token": token } })).await;
        assert!(reply["subscribe"].is_object(), "{reply}");
        let push = anna.push_where(|push| push["unsubscribe"].is_object()).await;
        assert_eq!(push["unsubscribe"]["code"], 2501, "{push}");
        assert_eq!(publish(&mut anna, "$news:a", json!(1)).await["error"]["code"], 103, "not subscribed any more");
    }
}

/// A server that was restarted from old data, or a replica that missed the last writes, has another history.
#[tokio::test(flavor = "multi_thread")]
async fn position_from_another_history_of_the_server_is_not_continued() {
    let context = hob_fixtures::TestContext::redis(NEEDS).await;
    let (chat, app) = open(context.context()).await;
    let mut anna = Client::connect(&app, &chat, "anna").await;
    let first = anna.subscribe("news:a").await["subscribe"].take();
    publish(&mut anna, "news:a", json!("before")).await;
    assert_eq!(next_publication(&mut anna).await["pub"]["offset"], 1);
    let position = keys(context.context()).position(&NamedChannel::new("news:a").unwrap());
    let rewind = cmd("HSET").arg(&position).arg("server").arg("another").clone();
    context.test_store().as_outsider(rewind).await;
    publish(&mut anna, "news:a", json!("after")).await;
    let push = anna.push_where(|push| push["unsubscribe"].is_object()).await;
    assert_eq!(push["unsubscribe"]["code"], 2500, "{push}");
    let reply = anna.recover("news:a", 1, &first["epoch"]).await["subscribe"].take();
    assert_eq!((&reply["recovered"], &reply["offset"]), (&json!(false), &json!(1)), "{reply}");
    assert_ne!(reply["epoch"], first["epoch"]);
}
