//! Random operations against a small model.

use hob_web::Service as _;
use std::collections::BTreeMap;

use hob_chat::keys::{ConversationId, UserId};
use hob_chat::{BlockAction, Chat, ReceiptKind};
use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::{Period, ServiceContext};
use hob_testkit::{KillableNode, LIMIT, budget, wait_for};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use crate::client::{Client, message_of};
use crate::harness::{
    NEEDS, config, done, get, keys, killable_node, message, room, short_lease, start, user,
};

/// One operation.
#[derive(Clone, Debug)]
enum Step {
    Send {
        room: usize,
        who: usize,
        on: Node,
    },
    Read {
        room: usize,
        who: usize,
    },
    Leave {
        room: usize,
        who: usize,
    },
    Join {
        room: usize,
        who: usize,
    },
    Block {
        who: usize,
    },
    Unblock {
        who: usize,
    },
    /// The watcher's connection is cut; it reconnects and recovers.
    Cut,
    KillNode,
    Flush,
}

/// The node that executes an operation.
#[derive(Clone, Copy, Debug)]
enum Node {
    Lasting,
    Killable,
}

const ROOMS: [&str; 2] = ["one", "two"];
/// The watcher is always a member of both conversations and connected; the others join and leave.
const USERS: [&str; 4] = ["watcher", "anna", "bert", "carl"];

fn step() -> impl Strategy<Value = Step> {
    let (room, other) = (0..ROOMS.len(), 1..USERS.len());
    let node = prop_oneof![Just(Node::Lasting), Just(Node::Killable)];
    prop_oneof![
        6 => (room.clone(), 0..USERS.len(), node).prop_map(|(room, who, on)| Step::Send { room, who, on }),
        3 => (room.clone(), 0..USERS.len()).prop_map(|(room, who)| Step::Read { room, who }),
        1 => (room.clone(), other.clone()).prop_map(|(room, who)| Step::Leave { room, who }),
        1 => (room, other).prop_map(|(room, who)| Step::Join { room, who }),
        1 => (2..USERS.len()).prop_map(|who| Step::Block { who }),
        1 => (2..USERS.len()).prop_map(|who| Step::Unblock { who }),
        1 => Just(Step::Cut),
        1 => Just(Step::KillNode),
        1 => Just(Step::Flush),
    ]
}

struct Simulation {
    context: TestContext,
    chat: Chat,
    app: TestApp,
    killable: KillableNode<Chat>,
    rooms: Vec<ConversationId>,
    watcher: Client,
    /// The messages that the watcher has received, by conversation and offset.
    received: Vec<BTreeMap<u64, String>>,
    acknowledged: Vec<BTreeMap<u64, String>>,
    sent: usize,
}

impl Simulation {
    async fn new() -> Self {
        let context = TestContext::embedded(NEEDS, Layout::Plain).await;
        // Three leases are the time limit for a confirmation of the other node.
        let lease = hob_chat::Config { node_lease: Period::from_secs(4), ..config() };
        let chat = start(context.context(), lease).await;
        let app = TestApp::start(context.context(), chat.routes()).await;
        let killable = killable_node(&context, short_lease()).await;
        wait_for("two nodes", LIMIT, async || chat.nodes().await.is_ok_and(|nodes| nodes.len() == 2)).await;
        let mut rooms = Vec::new();
        for id in ROOMS {
            rooms.push(room(&chat, id, &USERS).await);
        }
        let watcher = Client::connect(&app, &chat, "watcher").await;
        let empty = vec![BTreeMap::new(); ROOMS.len()];
        let mut simulation = Self {
            context,
            chat,
            app,
            killable,
            rooms,
            watcher,
            received: empty.clone(),
            acknowledged: empty,
            sent: 0,
        };
        simulation.subscribe().await;
        simulation
    }

    /// Subscribes from the watcher's last offset, and adds the messages that it missed.
    async fn subscribe(&mut self) {
        for (index, id) in ROOMS.iter().enumerate() {
            let offset = self.received[index].keys().last().copied().unwrap_or(0);
            let reply = self.watcher.recover(&format!("conv:{id}"), offset, &Value::from("")).await;
            assert_eq!(reply["subscribe"]["recovered"], true, "{reply}");
            for publication in reply["subscribe"]["publications"].as_array().into_iter().flatten() {
                add_received(&mut self.received[index], publication);
            }
        }
    }

    async fn drain(&mut self) {
        for frame in self.watcher.flush().await {
            let push = &frame["push"];
            let index = ROOMS.iter().position(|id| push["channel"] == format!("conv:{id}"));
            if let (Some(index), true) = (index, push["pub"]["offset"].is_u64()) {
                add_received(&mut self.received[index], &push["pub"]);
            }
        }
    }

    async fn take(&mut self, step: &Step) {
        match *step {
            Step::Send { room, who, on } => {
                self.sent += 1;
                let chat = match on {
                    Node::Lasting => &self.chat,
                    Node::Killable => &self.killable,
                };
                let new = message(&self.rooms[room], USERS[who], &format!("message {}", self.sent));
                if let Ok(message) = chat.send(&new).await.unwrap() {
                    self.acknowledged[room].insert(message.sequence, message.content);
                }
            }
            Step::Read { room, who } => {
                let up_to = i64::MAX as u64;
                let _ = self
                    .chat
                    .record_receipt(&self.rooms[room], &user(USERS[who]), up_to, ReceiptKind::Read)
                    .await
                    .unwrap();
            }
            Step::Leave { room, who } => {
                let _ = self.chat.remove_member(&self.rooms[room], &user(USERS[who]), None).await.unwrap();
            }
            Step::Join { room, who } => {
                let _ = self.chat.add_member(&self.rooms[room], &user(USERS[who]), None).await.unwrap();
            }
            Step::Block { who } => drop(done(self.block(who, BlockAction::Block).await)),
            Step::Unblock { who } => drop(done(self.block(who, BlockAction::Unblock).await)),
            Step::Cut => {
                self.drain().await;
                self.watcher = Client::connect(&self.app, &self.chat, "watcher").await;
                self.subscribe().await;
            }
            Step::KillNode => {
                let next = killable_node(&self.context, short_lease()).await;
                std::mem::replace(&mut self.killable, next).kill();
            }
            Step::Flush => self.context.test_store().flush_all().await,
        }
    }

    /// Blocks between `anna` and another user, but not the watcher.
    async fn block(&self, who: usize, action: BlockAction) -> hob_chat::Answer<bool> {
        self.chat.block(&user("anna"), &user(USERS[who]), action).await
    }

    /// Waits until the counters of all users agree with the database.
    async fn counters_agree(&self) {
        for who in USERS {
            counter_agrees(self.context.context(), &self.chat, &user(who)).await;
        }
    }

    async fn everything_arrived(&mut self) {
        for _ in 0..1_500 {
            self.drain().await;
            if self.received == self.acknowledged {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(self.received, self.acknowledged);
    }
}

async fn counter_agrees(context: &ServiceContext, chat: &Chat, who: &UserId) {
    wait_for(format_args!("the counters of {who} to agree with the database"), LIMIT, async || {
        let (counts, total) = chat.unread(who).await.unwrap();
        let stored =
            get(context, &keys(context).unread_total(who)).await.map_or(0, |text| text.parse().unwrap());
        let mut agree = stored == total;
        for count in counts {
            let stored = get(context, &keys(context).unread(who, &count.conversation_id)).await;
            agree &= stored.map_or(0, |text| text.parse().unwrap()) == count.unread;
        }
        agree
    })
    .await;
}

/// Adds a received message. Messages must arrive in order and once.
fn add_received(received: &mut BTreeMap<u64, String>, publication: &Value) {
    if publication["data"]["type"] == "message" {
        let (offset, content) = message_of(publication);
        assert!(received.keys().last().is_none_or(|last| *last < offset), "{offset} after {received:?}");
        received.insert(offset, content);
    }
}

/// After any operations, counters agree with the database, and a client that recovers has exactly the acknowledged
/// messages.
#[test]
fn random_operations_lose_nothing_and_count_right() {
    let cases = budget(6, 100);
    let mut runner = TestRunner::new(Config {
        cases,
        max_shrink_iters: 8,
        failure_persistence: None,
        ..Config::default()
    });
    let operations = prop::collection::vec(step(), 10..30);
    let outcome = runner.run(&operations, |steps| {
        hob_testkit::run(async {
            let mut simulation = Simulation::new().await;
            for step in &steps {
                simulation.take(step).await;
                simulation.counters_agree().await;
            }
            simulation.everything_arrived().await;
        });
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
