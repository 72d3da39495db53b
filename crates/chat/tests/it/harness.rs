//! A running chat with an outbox relay.

use hob_web::Service as _;
use std::time::Duration;

use hob_chat::keys::{ConversationId, Keys, UserId};
use hob_chat::{Answer, Chat, Config, MIGRATIONS, Message, NewConversation, NewMessage};
use hob_database::outbox::{Relay, Retention};
use hob_fixtures::{Needs, TestContext};
use hob_service::{Live, Period, ServiceContext};
use hob_store::cmd;
use hob_testkit::{KillableNode, LIMIT, wait_for};

pub(crate) const NEEDS: Needs = Needs {
    schemas: &[("schemas/chat.toml", include_str!("../../../../schemas/chat.toml"))],
    migrations: &[MIGRATIONS],
};

/// Limits that no test reaches unintentionally. The lease is the default: a machine that stalls for a few seconds must
/// not set users offline.
pub(crate) fn config() -> Config {
    Config {
        message_rate_limit: 1_000_000,
        connects_per_minute: 1_000_000,
        commands_per_second: 100_000,
        ..Config::default()
    }
}

/// A short lease, so that dead nodes and data losses are detected soon. A machine that stalls can lose it, so only for
/// nodes whose presence does not matter.
pub(crate) fn short_lease() -> Config {
    Config { node_lease: Period::from_millis(1_800), ..config() }
}

/// Starts a chat with a relay, and waits until it receives presence events.
pub(crate) async fn start(context: &ServiceContext, config: Config) -> Chat {
    let chat = start_without_relay(context, config).await;
    start_relay(context, &chat);
    chat
}

pub(crate) fn start_relay(context: &ServiceContext, chat: &Chat) {
    let (relaying, database) = (chat.clone(), context.database.clone());
    context.tasks.spawn("relay", move |task| {
        let (chat, database) = (relaying.clone(), database.clone());
        async move {
            let publish = |events: Vec<hob_database::outbox::Event>| {
                let chat = chat.clone();
                async move { chat.relay(&events).await }
            };
            Relay::new(&database, Retention::default())
                .lease(Duration::from_secs(2))
                .run(publish, task.stop_requested())
                .await;
        }
    });
}

/// Starts a chat whose events are not relayed yet, and waits until it receives presence events.
pub(crate) async fn start_without_relay(context: &ServiceContext, config: Config) -> Chat {
    let chat = Chat::open(context, Live::fixed(config)).await.unwrap();
    chat.start(&hob_web::Changes::detached(context));
    let listening = async {
        while !has_listener(context).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, listening).await.expect("the node subscribes in time");
    chat
}

/// Whether a node has subscribed to presence events, which it does in the background.
async fn has_listener(context: &ServiceContext) -> bool {
    let Ok(masters) = context.store.masters().await else { return false };
    for master in masters {
        let channel = keys(context).user_online_channel();
        let count = cmd("PUBSUB").arg("NUMSUB").arg(channel).take();
        if master.run::<(String, u64)>(count).await.is_ok_and(|(_, listeners)| listeners > 0) {
            return true;
        }
    }
    false
}

pub(crate) async fn open(context: &TestContext) -> Chat {
    start(context.context(), config()).await
}

/// Another node, to be killed.
pub(crate) async fn killable_node(context: &TestContext, config: Config) -> KillableNode<Chat> {
    let other = context.another_node().await;
    KillableNode::start(async move { start(&other, config).await }).await
}

pub(crate) fn user(id: &str) -> UserId {
    UserId::new(id).unwrap()
}

pub(crate) fn conversation(id: &str) -> ConversationId {
    ConversationId::new(id).unwrap()
}

pub(crate) fn keys(context: &ServiceContext) -> Keys {
    Keys::new(context.layout)
}

/// Opens a conversation. The first member opens it.
pub(crate) async fn room(chat: &Chat, id: &str, members: &[&str]) -> ConversationId {
    let mut members = members.iter().map(|id| user(id));
    let new = NewConversation {
        id: conversation(id),
        title: format!("Room {id}"),
        created_by: members.next().unwrap(),
        members: members.collect(),
    };
    done(chat.open_conversation(&new).await).id
}

pub(crate) async fn say(chat: &Chat, room: &ConversationId, sender: &str, content: &str) -> Message {
    done(chat.send(&message(room, sender, content)).await)
}

pub(crate) fn message(room: &ConversationId, sender: &str, content: &str) -> NewMessage {
    NewMessage::text(room.clone(), user(sender), content)
}

#[track_caller]
pub(crate) fn done<T>(answer: Answer<T>) -> T {
    answer.expect("the call succeeds").unwrap_or_else(|refusal| panic!("refused: {refusal}"))
}

/// The value of a string key.
pub(crate) async fn get(context: &ServiceContext, key: &hob_store::Key) -> Option<String> {
    context.store.run(cmd("GET").arg(key.as_bytes()).take()).await.unwrap()
}

/// Waits until a node has renewed its lease `times` times.
pub(crate) async fn wait_for_heartbeats(context: &ServiceContext, chat: &Chat, times: usize) {
    let live = keys(context).nodes_live(hob_schema::Shard::default());
    let is_own = |node: &hob_chat::NodeInfo| node.name == chat.node_name();
    let mut before = None;
    for _ in 0..times {
        wait_for("a node to renew its lease", LIMIT, async || {
            let nodes = chat.nodes().await.unwrap();
            let Some(node) = nodes.iter().find(|node| is_own(node)) else { return false };
            let expiry = cmd("ZSCORE").arg(live.as_bytes()).arg(&node.incarnation).take();
            let expiry: Option<String> = context.store.run(expiry).await.unwrap();
            let renewed = expiry.is_some() && expiry != before;
            before = expiry;
            renewed
        })
        .await;
    }
}
