//! The chat itself: its parts, and the tasks that keep them going.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hob_database::{Database, DatabaseId, Migrations, outbox};
use hob_service::{Live, Metric, ServiceContext, Task, Tasks};
use hob_store::limit::{Algorithm, Rule, Window};
use hob_store::{BusEvent, Store, Topic};
use hob_web::{Card, Changes, Routes, Service};
use serde::Deserialize;
use tokio::sync::{Mutex, MutexGuard, Notify};

use crate::changes::{COUNTS, MESSAGE_CREATED};
use crate::hub::{Confirmation, Dispatch, Hub};
use crate::keys::{ConversationId, Incarnation, Keys, SocketId, UserId};
use crate::live::News;
use crate::node::{Node, Pulse};
use crate::participants::Participants;
use crate::presence::{Occasion, Presences};
use crate::protocol::Disconnect;
use crate::recent::Recent;
use crate::token::Tokens;
use crate::typing::Typing;
use crate::unread::Unread;
use crate::{Config, Error, card, demo, metrics, pages, routes};

/// Changes of one conversation are made one after the other on a node, so that its subscribers are told in order
/// without waiting for each other.
const STRIPES: usize = 64;
/// Many, since each is held while the store is asked, and a store that is away lets everybody wait.
const SOCKETS_STRIPES: usize = 1_024;
/// So many users are published again at a time, after a loss.
const AGAIN_AT_ONCE: usize = 64;
const TYPING_EVERY: Duration = Duration::from_millis(250);
/// A limit that cannot be asked in this time lets pass: delivery within a node goes on without the store.
const LIMIT_WITHIN: Duration = Duration::from_millis(250);

/// The chat of one node. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct Chat {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Live<Config>,
    pub(crate) database: Database,
    pub(crate) store: Store,
    pub(crate) quick: Store,
    pub(crate) keys: Keys,
    pub(crate) hub: Arc<Hub>,
    pub(crate) presences: Presences,
    pub(crate) typing: Typing,
    pub(crate) recent: Recent,
    pub(crate) unread: Unread,
    pub(crate) participants: Participants,
    pub(crate) tokens: Tokens,
    pub(crate) tasks: Tasks,
    /// What positions in channels belong to: the database.
    pub(crate) epoch: String,
    turns: Vec<Mutex<()>>,
    sockets_turns: Vec<Mutex<()>>,
    node_name: String,
    /// Told when pages have something new to show.
    changes: OnceLock<Changes>,
    recover: Notify,
    rebuild: Notify,
}

impl Service for Chat {
    type Config = Config;
    type Error = Error;

    const TITLE: &'static str = "Chat";
    const HREF: &'static str = "/chat";
    const ICON: &'static str = "M3.5 4h13v9.5H9L5.5 16.5v-3h-2z";
    const SCHEMA: (&'static str, &'static str) =
        ("schemas/chat.toml", include_str!("../../../schemas/chat.toml"));
    const MIGRATIONS: Migrations = crate::MIGRATIONS;
    const METRICS: &'static [Metric] = metrics::METRICS;
    const TOPICS: &'static [&'static str] = &[MESSAGE_CREATED.0, COUNTS.0];

    async fn open(context: &ServiceContext, config: Live<Config>) -> Result<Self, Error> {
        let now = config.now();
        let env = |name: &str| match name {
            "MESSAGE_RATE_WINDOW" if now.message_rate_window.is_some() => {
                now.message_rate_window.map(|window| window.as_millis().to_string())
            }
            name => std::env::var(name).ok(),
        };
        let keys = Keys::from_env(context.layout, &env).map_err(|error| Error::Config(error.to_string()))?;
        let store = context.store.clone();
        let node = Node::new(&store, &keys, &context.node, now.node_lease.get());
        let inner = Inner {
            tokens: Tokens::from_config(&now)?,
            database: context.database.clone(),
            quick: store.with_deadline(LIMIT_WITHIN),
            hub: Hub::new(&store, &context.database, &keys, node),
            presences: Presences::new(&store, &keys),
            typing: Typing::new(&store, &keys),
            recent: Recent::new(&store, &keys),
            unread: Unread::new(&store, &keys),
            participants: Participants::new(&store, &keys),
            tasks: context.tasks.clone(),
            epoch: epoch(context.database.id()),
            turns: turns(STRIPES),
            sockets_turns: turns(SOCKETS_STRIPES),
            node_name: context.node.to_string(),
            changes: OnceLock::new(),
            recover: Notify::new(),
            rebuild: Notify::new(),
            keys,
            store,
            config,
        };
        let chat = Self { inner: Arc::new(inner) };
        chat.message_rule()?;
        Ok(chat)
    }

    fn start(&self, changes: &Changes) {
        let _ = self.inner.changes.set(changes.clone());
        let tasks = &self.inner.tasks;
        let chat = self.clone();
        tasks.spawn("chat node", move |task| chat.clone().keep_alive(task));
        let chat = self.clone();
        tasks.spawn("chat recovery", move |task| chat.clone().recover(task));
        let chat = self.clone();
        tasks.spawn("chat rebuild", move |task| chat.clone().rebuild(task));
        let chat = self.clone();
        tasks.spawn("chat sweep", move |task| chat.clone().sweep(task));
        let chat = self.clone();
        tasks.spawn("chat ear", move |task| chat.clone().listen(task));
        let chat = self.clone();
        tasks.spawn("chat post", move |task| {
            let chat = chat.clone();
            async move { chat.inner.hub.post.run(&chat.inner.store, &task).await }
        });
        let chat = self.clone();
        tasks.spawn("chat typing", move |task| chat.clone().watch_typing(task));
    }

    fn routes(&self) -> Routes {
        routes::routes().merge(pages::routes()).with_state(self.clone())
    }

    async fn card(&self) -> Card {
        card::card(self).await
    }

    async fn demo(&self) -> Result<(), Error> {
        demo::start(self);
        Ok(())
    }

    async fn relay(&self, events: &[outbox::Event]) -> Result<(), Error> {
        self.follow_up(events).await
    }
}

impl Chat {
    /// The name of this node.
    pub fn node_name(&self) -> &str {
        &self.inner.node_name
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        self.inner.config.now()
    }

    /// A token for a user, if this process may sign one; for pages and demos.
    pub fn issue_token(&self, user: &UserId, valid: Duration) -> Option<String> {
        let expires_s = now_s() + i64::try_from(valid.as_secs()).unwrap_or(i64::MAX / 2);
        self.inner.tokens.issue(user, expires_s)
    }

    pub(crate) fn message_rule(&self) -> Result<Rule, Error> {
        let config = self.config();
        // The keys know the window, too: their TTL is declared by it.
        let period = self.inner.keys.message_rate_ttl();
        let window = Window { limit: config.message_rate_limit, period, burst: None };
        if !matches!(config.message_rate_algorithm, Algorithm::FixedCounter | Algorithm::Gcra) {
            let reason = "message_rate_algorithm: fixed_counter or gcra, please";
            return Err(Error::Config(reason.to_owned()));
        }
        Ok(Rule::new(config.message_rate_algorithm, vec![window])?)
    }

    /// The turn of a conversation's changes on this node.
    pub(crate) async fn turn(&self, conversation: &ConversationId) -> MutexGuard<'_, ()> {
        turn_of(&self.inner.turns, conversation.as_str()).await
    }

    /// The turn of those on this node who say which sockets of a user are open. Whoever closes one says so after it
    /// has left the hub; so none is counted again behind its end.
    pub(crate) async fn sockets_turn(&self, user: &UserId) -> MutexGuard<'_, ()> {
        turn_of(&self.inner.sockets_turns, user.as_str()).await
    }

    /// Holds the node's lease. What takes longer than a beat is done beside it: a lease must not end for it.
    async fn keep_alive(self, task: Task) {
        let every = self.config().node_lease.get() / 3;
        loop {
            if let Err(error) = self.beat().await {
                tracing::warn!(%error, "the chat's node has no lease for now");
            }
            task.beat();
            if !task.pause(every).await {
                return self.leave().await;
            }
        }
    }

    async fn beat(&self) -> Result<(), Error> {
        let hub = &self.inner.hub;
        if hub.node.beat().await? == Pulse::Reborn || !hub.node.is_settled() {
            self.inner.recover.notify_one();
        }
        if hub.node.look_for_losses().await? {
            tracing::warn!("the store was lost; it is rebuilt");
            self.inner.rebuild.notify_one();
        }
        // So that this node knows the others, should the store forget them.
        hub.node.live().await?;
        if let Some(changes) = self.inner.changes.get() {
            changes.tell("chat");
        }
        hub.node.publish_load(hub.load()).await
    }

    /// Makes a new life of this node sure of itself: orders that were given before it did not wait for this node.
    async fn recover(self, task: Task) {
        let hub = &self.inner.hub;
        while until(&task, self.inner.recover.notified()).await {
            let incarnation = hub.node.incarnation();
            let done = async {
                hub.revalidate_all().await?;
                self.publish_again().await
            };
            match done.await {
                Ok(()) => hub.node.settle(&incarnation),
                // The next beat asks for it again.
                Err(error) => tracing::warn!(%error, "the chat's node is not sure of itself yet"),
            }
            task.beat();
        }
    }

    /// Writes the store again after it was lost, and takes away what nobody answers for any more.
    async fn rebuild(self, task: Task) {
        let Inner { hub, store, keys, presences, .. } = &*self.inner;
        while until(&task, self.inner.rebuild.notified()).await {
            let done = async {
                self.publish_again().await?;
                hub.refresh_feeds();
                self.rebuild_unread().await?;
                // By then every node that lives has said so, to a store that may have forgotten it.
                if task.pause(hub.node.lease()).await {
                    let users = crate::scrub::scrub(store, keys, &hub.node, presences).await?;
                    tracing::info!(users, "presence is scrubbed after the loss");
                }
                Ok::<_, Error>(())
            };
            if let Err(error) = done.await {
                tracing::warn!(%error, "the store is not rebuilt yet");
                if task.pause(Duration::from_millis(500)).await {
                    self.inner.rebuild.notify_one();
                }
            }
            task.beat();
        }
    }

    /// Takes the users of dead nodes offline.
    async fn sweep(self, task: Task) {
        let every = self.config().node_lease.get() / 6;
        while task.pause(every).await {
            let node = &self.inner.hub.node;
            match node.sweep(&self.inner.presences).await {
                // Its index may have been lost, and it with it before that was mended.
                Ok(swept) if swept > 0 && node.lost_lately() => self.inner.rebuild.notify_one(),
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "cannot sweep dead nodes for now"),
            }
            task.beat();
        }
    }

    /// Writes the sockets of this node into the store again.
    async fn publish_again(&self) -> Result<(), Error> {
        let hub = &self.inner.hub;
        let node = hub.node.incarnation();
        for users in hub.users().chunks(AGAIN_AT_ONCE) {
            let joins = users.iter().map(|user| self.join_again(&node, user));
            futures_util::future::try_join_all(joins).await?;
        }
        Ok(())
    }

    async fn join_again(&self, node: &Incarnation, user: &UserId) -> Result<(), Error> {
        let Inner { hub, presences, .. } = &*self.inner;
        let _turn = self.sockets_turn(user).await;
        let sockets: Vec<SocketId> = hub.sockets_of(user).into_iter().collect();
        if !sockets.is_empty() {
            presences.join(node, user, &sockets, Occasion::Again).await?;
        }
        Ok(())
    }

    /// Ends this node's life in order: its sockets are told to go elsewhere, and the others need not wait.
    async fn leave(self) {
        let hub = &self.inner.hub;
        for peer in hub.everybody() {
            peer.outlet.close(Disconnect::SHUTDOWN);
        }
        let patience = Instant::now() + Duration::from_secs(3);
        while hub.load().connections > 0 && Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if let Err(error) = hub.node.leave().await {
            tracing::debug!(%error, "the node's lease runs out by itself");
        }
    }

    /// Hears orders, confirmations, and who comes and goes.
    async fn listen(self, task: Task) {
        let Inner { hub, keys, store, .. } = &*self.inner;
        let topics = [
            Topic::channel(keys.orders_channel()),
            Topic::channel(hub.orders.channel()),
            Topic::channel(keys.user_online_channel()),
            Topic::channel(keys.user_offline_channel()),
        ];
        let Ok(mut subscription) = store.bus().subscribe(&topics).await else {
            task.pause(Duration::from_millis(200)).await;
            return;
        };
        // Whatever was told before is not known.
        hub.refresh_feeds();
        loop {
            let event = tokio::select! {
                event = subscription.next() => event,
                () = task.stopped() => return,
            };
            task.beat();
            match event {
                Some(BusEvent::Message { channel, payload, .. }) => self.hear(&channel, &payload),
                // Orders are given until they are confirmed; who came and went is looked up anew.
                Some(BusEvent::Missed) => hub.refresh_feeds(),
                None => return,
            }
        }
    }

    fn hear(&self, channel: &[u8], payload: &[u8]) {
        let Inner { hub, keys, .. } = &*self.inner;
        let online = channel == keys.user_online_channel().as_bytes();
        if online || channel == keys.user_offline_channel().as_bytes() {
            if let Ok(told) = serde_json::from_slice::<Told>(payload) {
                let Told { user_id, timestamp, version } = &told;
                let news = News::Presence { user_id, online, timestamp, version: *version };
                hub.tell_presence(user_id, online, &news.json());
            }
        } else if channel == keys.orders_channel().as_bytes() {
            if let Ok(dispatch) = serde_json::from_slice::<Dispatch>(payload)
                && !hub.orders.is_own(&dispatch)
            {
                let chat = self.clone();
                // Not here: an order may have to look into the database, and others wait behind it.
                tokio::spawn(async move { chat.obey(&dispatch).await });
            }
        } else if let Ok(confirmation) = serde_json::from_slice::<Confirmation>(payload) {
            hub.orders.confirmed(confirmation);
        }
    }

    async fn obey(&self, dispatch: &Dispatch) {
        let hub = &self.inner.hub;
        let done = async {
            hub.obey(&dispatch.order).await?;
            hub.orders.confirm(&hub.node, dispatch).await
        };
        if let Err(error) = done.await {
            // It is given again until it is confirmed, or this node's lease is over.
            tracing::warn!(%error, "an order could not be carried out");
        }
    }

    /// Tells when somebody has stopped typing without saying so.
    async fn watch_typing(self, task: Task) {
        let Inner { hub, typing, .. } = &*self.inner;
        while task.pause(TYPING_EVERY).await {
            for room in hub.rooms_with_typists_due(Instant::now()) {
                let crate::channel::Channel::Conversation(id) = &room.channel else { continue };
                // Without the store, everybody whose time is up has stopped.
                let typists = typing.who(id).await.unwrap_or_default();
                for user_id in room.keep_typists(Instant::now(), &typists) {
                    let stopped = crate::live::Passing::Typing { user_id: user_id.clone(), typing: false };
                    hub.whisper_here(&room.channel, &user_id, &stopped.json());
                }
            }
            task.beat();
        }
    }
}

/// Waits for something to happen; `false` if the task should stop instead.
async fn until(task: &Task, happened: impl Future<Output = ()>) -> bool {
    tokio::select! {
        () = happened => true,
        () = task.stopped() => false,
    }
}

/// What is told of a user who came or went (C11).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    user_id: UserId,
    timestamp: String,
    version: u64,
}

fn turns(count: usize) -> Vec<Mutex<()>> {
    (0..count).map(|_| Mutex::default()).collect()
}

/// The turn of an id among those that there are.
async fn turn_of<'a>(turns: &'a [Mutex<()>], id: &str) -> MutexGuard<'a, ()> {
    let mix = |hash: usize, byte| hash.wrapping_mul(31).wrapping_add(usize::from(byte));
    turns[id.bytes().fold(0_usize, mix) % turns.len()].lock().await
}

/// Short, and the same for all nodes over the same database.
fn epoch(id: DatabaseId) -> String {
    let text: String = id.to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    text.chars().take(8).collect()
}

pub(crate) fn now_s() -> i64 {
    jiff::Timestamp::now().as_second()
}
