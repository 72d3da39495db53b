//! Random operations against a small model.

use hob_web::Service as _;
use std::collections::{BTreeMap, BTreeSet};

use hob_chat::keys::{ConversationId, UserId};
use hob_chat::{BlockAction, Chat, Message, MessageRange, Reaction, ReactionAction, ReceiptKind};
use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::{Period, ServiceContext};
use hob_testkit::{KillableNode, LIMIT, budget, wait_for};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use crate::client::Client;
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
    /// A reply to the message before, which mentions another user.
    Reply {
        room: usize,
        who: usize,
        mentioned: usize,
    },
    Edit {
        room: usize,
        message: usize,
    },
    Delete {
        room: usize,
        message: usize,
    },
    React {
        room: usize,
        who: usize,
        message: usize,
        emoji: usize,
        action: ReactionAction,
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
const EMOJI: [&str; 2] = ["👍", "🎉"];

fn step() -> impl Strategy<Value = Step> {
    let (room, other) = (0..ROOMS.len(), 1..USERS.len());
    let node = prop_oneof![Just(Node::Lasting), Just(Node::Killable)];
    let action = prop_oneof![3 => Just(ReactionAction::Add), 1 => Just(ReactionAction::Remove)];
    prop_oneof![
        6 => (room.clone(), 0..USERS.len(), node).prop_map(|(room, who, on)| Step::Send { room, who, on }),
        3 => (room.clone(), 0..USERS.len(), 0..USERS.len())
            .prop_map(|(room, who, mentioned)| Step::Reply { room, who, mentioned }),
        1 => (room.clone(), any::<usize>()).prop_map(|(room, message)| Step::Edit { room, message }),
        1 => (room.clone(), any::<usize>()).prop_map(|(room, message)| Step::Delete { room, message }),
        4 => (room.clone(), 0..USERS.len(), any::<usize>(), 0..EMOJI.len(), action)
            .prop_map(|(room, who, message, emoji, action)| Step::React { room, who, message, emoji, action }),
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
    /// What the watcher has received, by conversation.
    received: Vec<Received>,
    /// What was acknowledged, by conversation.
    acknowledged: Vec<Room>,
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
        let mut simulation = Self {
            context,
            chat,
            app,
            killable,
            rooms,
            watcher,
            received: vec![Received::default(); ROOMS.len()],
            acknowledged: vec![Room::default(); ROOMS.len()],
            sent: 0,
        };
        simulation.subscribe().await;
        simulation
    }

    /// Subscribes from the watcher's last offset, and adds the messages that it missed.
    async fn subscribe(&mut self) {
        for (index, id) in ROOMS.iter().enumerate() {
            let offset = self.received[index].offset;
            let reply = self.watcher.recover(&format!("conv:{id}"), offset, &Value::from("")).await;
            assert_eq!(reply["subscribe"]["recovered"], true, "{reply}");
            for publication in reply["subscribe"]["publications"].as_array().into_iter().flatten() {
                self.received[index].add(publication);
            }
        }
    }

    async fn drain(&mut self) {
        for frame in self.watcher.flush().await {
            let push = &frame["push"];
            let index = ROOMS.iter().position(|id| push["channel"] == format!("conv:{id}"));
            if let (Some(index), true) = (index, push["pub"]["offset"].is_u64()) {
                self.received[index].add(&push["pub"]);
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
                    self.acknowledged[room].messages.insert(message.sequence, message);
                }
            }
            Step::Reply { room, who, mentioned } => {
                self.sent += 1;
                let mut new = message(&self.rooms[room], USERS[who], &format!("reply {}", self.sent));
                new.reply_to = self.acknowledged[room].messages.values().last().map(|last| last.id.clone());
                new.mentions = vec![user(USERS[mentioned])];
                if let Ok(message) = self.chat.send(&new).await.unwrap() {
                    self.acknowledged[room].messages.insert(message.sequence, message);
                }
            }
            Step::Edit { room, message } => {
                self.sent += 1;
                let Some(message) = self.acknowledged[room].pick(message) else { return };
                let (id, content) = (&self.rooms[room], format!("edit {}", self.sent));
                if let Ok(message) =
                    self.chat.edit(id, &message.id, &message.sender_id, &content).await.unwrap()
                {
                    self.acknowledged[room].messages.insert(message.sequence, message);
                }
            }
            Step::Delete { room, message } => {
                let Some(message) = self.acknowledged[room].pick(message) else { return };
                let id = &self.rooms[room];
                if self.chat.delete(id, &message.id, &message.sender_id).await.unwrap().is_ok() {
                    self.acknowledged[room].delete(message.sequence);
                }
            }
            Step::React { room, who, message, emoji, action } => {
                let Some(message) = self.acknowledged[room].pick(message) else { return };
                let (id, emoji) = (&self.rooms[room], EMOJI[emoji]);
                let reacted =
                    self.chat.react(id, &message.id, &user(USERS[who]), emoji, action).await.unwrap();
                let reaction = (message.sequence, emoji.to_owned(), USERS[who].to_owned());
                match (reacted, action) {
                    (Ok(changed), ReactionAction::Add) => {
                        assert_eq!(self.acknowledged[room].reactions.insert(reaction), changed);
                    }
                    (Ok(changed), ReactionAction::Remove) => {
                        assert_eq!(self.acknowledged[room].reactions.remove(&reaction), changed);
                    }
                    // Not a member, or the message is hidden from the user.
                    (Err(_), _) => {}
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
            if self.received.iter().zip(&self.acknowledged).all(|(received, room)| received.shows(room)) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("received {:#?}, but acknowledged {:#?}", self.received, self.acknowledged);
    }

    /// What the watcher reads is what was acknowledged: messages, reactions, replies and mentions.
    async fn reads_agree(&self) {
        let watcher = user("watcher");
        let (counts, _) = self.chat.unread(&watcher).await.unwrap();
        for (id, room) in self.rooms.iter().zip(&self.acknowledged) {
            let page = done(self.chat.list_messages(id, Some(&watcher), MessageRange::Newest, 500).await);
            let read: Vec<&Message> = page.messages.iter().map(|listed| &listed.message).collect();
            assert_eq!(read, room.messages.values().collect::<Vec<_>>());
            for listed in &page.messages {
                let counted: BTreeMap<&str, u64> =
                    listed.reactions.iter().map(|one| (one.emoji.as_str(), one.count)).collect();
                assert_eq!(counted, room.counts(listed.message.sequence));
                assert_eq!(listed.reply_count, room.replies(&listed.message.id));
                let request = hob_database::PageRequest::first(500);
                let who = self.chat.reactions(id, Some(&watcher), &listed.message.id, None, &request).await;
                let who = done(who).rows.into_iter().map(|Reaction { emoji, user_id, .. }| {
                    (listed.message.sequence, emoji, user_id.to_string())
                });
                assert_eq!(who.collect::<BTreeSet<_>>(), room.reactions_to(listed.message.sequence));
            }
            let count = counts.iter().find(|count| count.conversation_id == *id).unwrap();
            let members = self.chat.members(id, "", 500).await.unwrap();
            let read = members.iter().find(|member| member.user_id == watcher).unwrap().read_sequence;
            assert_eq!((count.unread, count.mentions), room.unread(&watcher, read));
        }
    }
}

/// What was acknowledged in a conversation.
#[derive(Clone, Debug, Default)]
struct Room {
    /// By sequence, without deleted ones.
    messages: BTreeMap<u64, Message>,
    /// The sequence of the message, the emoji, and the user.
    reactions: BTreeSet<(u64, String, String)>,
}

impl Room {
    fn pick(&self, number: usize) -> Option<Message> {
        self.messages.values().nth(number % self.messages.len().max(1)).cloned()
    }

    fn delete(&mut self, sequence: u64) {
        self.messages.remove(&sequence);
        self.reactions.retain(|(about, ..)| *about != sequence);
    }

    fn reactions_to(&self, sequence: u64) -> BTreeSet<(u64, String, String)> {
        self.reactions.iter().filter(|(about, ..)| *about == sequence).cloned().collect()
    }

    fn counts(&self, sequence: u64) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        for (_, emoji, _) in self.reactions.iter().filter(|(about, ..)| *about == sequence) {
            *counts.entry(emoji.as_str()).or_insert(0) += 1;
        }
        counts
    }

    fn replies(&self, id: &str) -> u64 {
        self.messages.values().filter(|message| message.thread_id.as_deref() == Some(id)).count() as u64
    }

    /// Unread messages and mentions of a user who has read up to a sequence.
    fn unread(&self, who: &UserId, read: u64) -> (u64, u64) {
        let unread = self.messages.values().filter(|one| one.sequence > read && one.sender_id != *who);
        let mentions = unread.clone().filter(|one| one.mentions.0.contains(who)).count();
        (unread.count() as u64, mentions as u64)
    }
}

/// What a client has received of a conversation.
#[derive(Clone, Debug, Default)]
struct Received {
    offset: u64,
    /// By sequence.
    contents: BTreeMap<u64, String>,
    reactions: BTreeSet<(u64, String, String)>,
}

impl Received {
    /// Adds a publication. They must arrive in order and once.
    fn add(&mut self, publication: &Value) {
        let (offset, data) = (publication["offset"].as_u64().unwrap(), &publication["data"]);
        assert!(self.offset < offset, "{publication} after {self:?}");
        self.offset = offset;
        let message = &data["message"];
        let sequence = message["sequence"].as_u64().or(data["sequence"].as_u64()).unwrap_or_default();
        let reaction = || {
            let text = |field: &str| data[field].as_str().unwrap().to_owned();
            (sequence, text("emoji"), text("userId"))
        };
        match data["type"].as_str().unwrap() {
            "message" | "edited" => {
                self.contents.insert(sequence, message["content"].as_str().unwrap().to_owned());
            }
            "deleted" => {
                self.contents.remove(&sequence);
                self.reactions.retain(|(about, ..)| *about != sequence);
            }
            "reacted" => assert!(self.reactions.insert(reaction()), "{publication}"),
            "unreacted" => assert!(self.reactions.remove(&reaction()), "{publication}"),
            _ => {}
        }
    }

    fn shows(&self, room: &Room) -> bool {
        let contents = room.messages.iter().map(|(sequence, message)| (sequence, &message.content));
        self.contents.iter().eq(contents) && self.reactions == room.reactions
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

/// After any operations, counters agree with the database, members read what was acknowledged, and a client that recovers has
/// exactly that.
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
                simulation.reads_agree().await;
            }
            simulation.everything_arrived().await;
        });
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
