//! Presence (C1 C2 C3 C11 C12): sockets, events, last seen.

use hob_web::Service as _;
use std::time::Duration;

use hob_chat::keys::{SocketId, UserId};
use hob_chat::{Chat, PresenceChange};
use hob_fixtures::{Server, every_service};
use hob_service::ServiceContext;
use hob_store::{BusEvent, ChannelFilter, Subscription, cmd};
use hob_testkit::{LIMIT, wait_for};
use serde_json::Value;

use crate::harness::{
    NEEDS, config, get, keys, killable_node, open, short_lease, start, user, wait_for_heartbeats,
};

fn socket(id: &str) -> SocketId {
    SocketId::new(id).unwrap()
}

async fn events(context: &ServiceContext) -> Subscription {
    let keys = keys(context);
    let topics = [
        ChannelFilter::channel(keys.user_online_channel()),
        ChannelFilter::channel(keys.user_offline_channel()),
    ];
    context.store.bus().subscribe(&topics).await.unwrap()
}

/// The next event: whether it is online, and its payload.
async fn next_event(events: &mut Subscription) -> (bool, Value) {
    match tokio::time::timeout(LIMIT, events.next()).await.expect("an event arrives in time") {
        Some(BusEvent::Message { channel, payload, .. }) => {
            (channel.ends_with(b"online"), serde_json::from_slice(&payload).unwrap())
        }
        other => panic!("{other:?}"),
    }
}

async fn add(chat: &Chat, who: &str, id: &str) -> PresenceChange {
    chat.add_user_socket(&user(who), &socket(id)).await.unwrap()
}

async fn remove(chat: &Chat, who: &str, id: &str) -> PresenceChange {
    chat.remove_user_socket(&user(who), &socket(id)).await.unwrap()
}

/// Deletes the sockets of a user, as eviction does, but not whether the user is online.
async fn evict_sockets(context: &hob_fixtures::TestContext, who: &UserId) {
    let keys = keys(context);
    for key in [keys.presence(who), keys.sockets(who)] {
        context.test_store().as_outsider(cmd("DEL").arg(&key).take()).await;
    }
}

every_service! {
    NEEDS;

    /// C1 C2 C3 C16: the documented keys and values.
    async fn user_is_online_from_the_first_socket_to_the_last(context: TestContext) {
        let chat = open(&context).await;
        let (keys, anna) = (keys(&context), user("507f1f77bcf86cd799439011"));
        let id = anna.as_str();
        assert!(matches!(add(&chat, id, "abc123").await, PresenceChange::Changed { .. }));
        assert!(matches!(add(&chat, id, "def456").await, PresenceChange::Unchanged { .. }));
        assert_eq!(get(&context, &keys.online(&anna)).await.as_deref(), Some("true"));
        let mut sockets: Vec<String> =
            context.store.run(cmd("SMEMBERS").arg(keys.sockets(&anna).as_bytes()).take()).await.unwrap();
        sockets.sort();
        assert_eq!(sockets, ["abc123", "def456"]);
        assert_eq!(get(&context, &keys.socket_user(&socket("abc123"))).await.as_deref(), Some(id));
        assert!(chat.is_user_online(&anna).await.unwrap());

        assert!(matches!(remove(&chat, id, "abc123").await, PresenceChange::Unchanged { .. }));
        assert!(chat.is_user_online(&anna).await.unwrap());
        assert!(matches!(remove(&chat, id, "def456").await, PresenceChange::Changed { .. }));
        assert_eq!(remove(&chat, id, "def456").await, PresenceChange::NotFound);
        assert_eq!(get(&context, &keys.online(&anna)).await.as_deref(), Some("false"));
        assert_eq!(get(&context, &keys.socket_user(&socket("abc123"))).await, None);
        assert_eq!(chat.sockets(&anna).await.unwrap(), []);
    }

    /// C11: exactly one event for each real change, with growing versions.
    async fn each_change_is_published_once(context: TestContext) {
        let chat = open(&context).await;
        let mut events = events(&context).await;
        for round in 0..3 {
            let sockets: Vec<String> = (0..8).map(|n| format!("s{round}-{n}")).collect();
            futures_util::future::join_all(sockets.iter().map(|id| add(&chat, "anna", id))).await;
            futures_util::future::join_all(sockets.iter().map(|id| remove(&chat, "anna", id))).await;
        }
        let mut last = 0;
        for online in [true, false, true, false, true, false] {
            let (is_online, event) = next_event(&mut events).await;
            assert_eq!((is_online, event["userId"].as_str()), (online, Some("anna")), "{event}");
            let version = event["version"].as_u64().unwrap();
            assert!(version > last, "{event} after {last}");
            assert!(event["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{event}");
            last = version;
        }
        let more = tokio::time::timeout(Duration::from_millis(50), events.next()).await;
        assert!(more.is_err(), "{more:?}");
    }

    /// C12: last seen never moves backwards, and survives a data loss in Redis.
    async fn last_seen_never_moves_backwards(context: TestContext) {
        let clock = hob_store::Clock::driven(Duration::from_millis(1_763_287_800_123));
        let driven = ServiceContext { store: context.store.with_clock(clock.clone()), ..context.context().clone() };
        let chat = hob_chat::Chat::open(&driven, hob_service::Live::fixed(config())).await.unwrap();
        add(&chat, "anna", "s1").await;
        let key = keys(&context).last_seen(&user("anna"));
        assert_eq!(get(&context, &key).await.as_deref(), Some("2025-11-16T10:10:00.123Z"));
        clock.set(Duration::from_millis(1_700_000_000_000));
        add(&chat, "anna", "s2").await;
        assert_eq!(get(&context, &key).await.as_deref(), Some("2025-11-16T10:10:00.123Z"));
        remove(&chat, "anna", "s1").await;
        clock.set(Duration::from_millis(1_763_287_899_000));
        remove(&chat, "anna", "s2").await;
        assert_eq!(get(&context, &key).await.as_deref(), Some("2025-11-16T10:11:39.000Z"));
        context.test_store().flush_all().await;
        let presence = chat.presence(&[user("anna")]).await.unwrap();
        assert!(presence[0].last_seen.is_some() && !presence[0].online, "{presence:?}");
    }

    async fn sockets_of_a_user_are_limited(context: TestContext) {
        let chat = open(&context).await;
        for n in 0..64 {
            assert!(!matches!(add(&chat, "anna", &format!("s{n}")).await, PresenceChange::LimitReached));
        }
        assert_eq!(add(&chat, "anna", "one more").await, PresenceChange::LimitReached);
        assert!(matches!(add(&chat, "anna", "s0").await, PresenceChange::Unchanged { .. }), "not a new socket");
    }

    /// C1: the users of a dead node are swept by another node.
    async fn users_of_a_dead_node_go_offline_with_one_event_each(context: TestContext) {
        let survivor = open(&context).await;
        // A long lease: a machine that stalls must not set the users offline before the node is killed.
        let killable = killable_node(&context, config()).await;
        // Both nodes must have joined first.
        wait_for("two nodes", LIMIT, async || survivor.nodes().await.unwrap().len() == 2).await;
        let mut events = events(&context).await;
        for n in 0..5 {
            add(&killable, &format!("user{n}"), &format!("doomed{n}")).await;
        }
        add(&survivor, "user0", "alive").await;
        for _ in 0..5 {
            assert!(next_event(&mut events).await.0);
        }
        killable.kill();
        let mut offline: Vec<String> = Vec::new();
        for _ in 0..4 {
            let (online, event) = next_event(&mut events).await;
            assert!(!online);
            offline.push(event["userId"].as_str().unwrap().to_owned());
        }
        offline.sort();
        assert_eq!(offline, ["user1", "user2", "user3", "user4"]);
        wait_for("the dead node to be forgotten", LIMIT, async || survivor.nodes().await.unwrap().len() == 1).await;
        assert!(survivor.is_user_online(&user("user0")).await.unwrap(), "the user has a socket on another node");
        assert_eq!(get(&context, &keys(&context).socket_user(&socket("doomed1"))).await, None);
    }

    /// C1: Redis has evicted the sockets of a user, but not the user's state.
    async fn user_whose_sockets_were_evicted_goes_offline_with_the_node(context: TestContext) {
        let survivor = open(&context).await;
        let killable = killable_node(&context, config()).await;
        wait_for("two nodes", LIMIT, async || survivor.nodes().await.unwrap().len() == 2).await;
        add(&killable, "anna", "doomed").await;
        evict_sockets(&context, &user("anna")).await;
        killable.kill();
        wait_for("anna to be offline", LIMIT, async || !survivor.is_user_online(&user("anna")).await.unwrap()).await;
    }

    /// C1: the same, but the node's index is evicted too, so that no node knows the user.
    async fn user_without_a_node_goes_offline_after_a_loss(context: TestContext) {
        let chat = start(context.context(), short_lease()).await;
        let (keys, anna) = (keys(&context), user("anna"));
        wait_for_heartbeats(&context, &chat, 5).await;
        context.test_store().as_outsider(cmd("SET").arg(keys.online(&anna)).arg("true").take()).await;
        assert!(chat.is_user_online(&anna).await.unwrap());
        for shard in keys.space().shards() {
            context.test_store().as_outsider(cmd("DEL").arg(keys.witness(shard)).take()).await;
        }
        wait_for("anna to be offline", LIMIT, async || !chat.is_user_online(&anna).await.unwrap()).await;
    }
}

/// C1: no user stays online if a node dies and a Cluster master loses its data at the same time, with the dead node's
/// index or the list of nodes in it.
#[test]
fn users_of_a_dead_node_go_offline_even_if_a_master_loses_its_data() {
    hob_testkit::run(async {
        let context = hob_fixtures::TestContext::cluster(NEEDS).await;
        let survivor = start(context.context(), short_lease()).await;
        let Server::Cluster(cluster) = context.test_store().server() else { unreachable!("it is a Cluster") };
        for lost in 0..cluster.masters().len() {
            let killable = killable_node(&context, short_lease()).await;
            wait_for("two nodes", LIMIT, async || survivor.nodes().await.is_ok_and(|nodes| nodes.len() == 2))
                .await;
            let users: Vec<UserId> = (0..30).map(|n| user(&format!("user{lost}-{n}"))).collect();
            for (n, who) in users.iter().enumerate() {
                add(&killable, who.as_str(), &format!("s{lost}-{n}")).await;
            }
            // The node must have read all witness keys, or it does not detect the loss.
            wait_for_heartbeats(&context, &survivor, 5).await;
            killable.kill();
            cluster.masters()[lost].flush_all();
            wait_for(
                format_args!("all users to be offline after master {lost} lost its data"),
                LIMIT * 2,
                async || {
                    let online = survivor.presence(&users).await.unwrap_or_default();
                    let online: Vec<_> = online.iter().filter(|presence| presence.online).collect();
                    if online.is_empty() { Ok(()) } else { Err(online.len()) }
                },
            )
            .await;
            for who in &users {
                assert_eq!(survivor.sockets(who).await.unwrap(), [], "{who}");
            }
        }
    });
}
