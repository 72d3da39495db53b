//! The handle of the chat: its parts, its configuration, and its tasks.

mod cleanup;
pub(crate) mod conversations;
mod erasure;
pub(crate) mod export;
pub(crate) mod reading;
mod relay;
mod revocations;
mod sending;
pub(crate) mod server;
mod stale_presence;
mod tasks;
mod users;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hob_database::{Database, DatabaseId, Migrations, PageRequest, outbox};
use hob_net::{HttpClient, client_tls};
use hob_service::config::{Secret, Secrets};
use hob_service::{Live, Metric, ServiceContext, Tasks};
use hob_store::Store;
use hob_store::limit::{Algorithm, Rule, Window};
use hob_trace::Tracer;
use hob_web::{Card, Changes, Credential, MAX_SEARCH_HITS, Routes, SearchHit, Service};
use tokio::sync::{Mutex, MutexGuard, Notify};

use crate::chat::sending::SendQueue;
use crate::conversation::outbox::{COUNTS, MESSAGE_CREATED};
use crate::hub::node::Node;
use crate::hub::{Emulation, Hub};
use crate::keys::{ConversationId, Keys, NamedChannel, UserId};
use crate::namespace::NamespaceHub;
use crate::proxy::ProxyCalls;
use crate::session::token::{Tokens, read_secret};
use crate::store::participants::ParticipantCache;
use crate::store::presence::PresenceStore;
use crate::store::recent::RecentMessages;
use crate::store::typing::TypingStore;
use crate::store::unread::UnreadCounters;
use crate::webhook::PresenceReports;
use crate::{Config, Error, card, demo, metrics, pages, routes};

/// Changes of one conversation are serialized on a node, so that its subscribers get events in order. Conversations
/// share this many locks.
const CONVERSATION_LOCKS: usize = 64;
/// There are many locks, because each is held during a Redis command, and users that share a lock wait for each other
/// when Redis is slow.
const SOCKET_LOCKS: usize = 1_024;
/// The maximum duration of a connection, whatever the expiry of its token: ten years.
const MAX_CONNECTION_S: u64 = 10 * 365 * 86_400;
/// If Redis does not answer within this time, the rate limit allows the request, because delivery within a node works
/// without Redis.
const RATE_LIMIT_TIMEOUT: Duration = Duration::from_millis(250);

/// The chat on one node. Clones share their state.
#[derive(Clone, Debug)]
pub struct Chat {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Live<Config>,
    pub(crate) database: Database,
    pub(crate) store: Store,
    pub(crate) rate_limit_store: Store,
    pub(crate) keys: Keys,
    pub(crate) hub: Arc<Hub>,
    pub(crate) namespaces: Arc<NamespaceHub>,
    pub(crate) emulation: Emulation,
    pub(crate) presences: PresenceStore,
    pub(crate) typing: TypingStore,
    pub(crate) recent: RecentMessages,
    pub(crate) unread: UnreadCounters,
    pub(crate) participants: ParticipantCache,
    pub(crate) tokens: Tokens,
    /// The key of the server API. `None`: the API is off.
    pub(crate) api_key: Option<Secret>,
    pub(crate) tasks: Tasks,
    pub(crate) tracer: Tracer,
    pub(crate) secrets: Secrets,
    /// For webhooks and proxies.
    pub(crate) http: HttpClient,
    pub(crate) proxy_calls: ProxyCalls,
    pub(crate) presence_reports: PresenceReports,
    /// Names the database, to which stream positions belong.
    pub(crate) epoch: String,
    sends: SendQueue,
    conversation_locks: Vec<Mutex<()>>,
    socket_locks: Vec<Mutex<()>>,
    node_name: String,
    started: Instant,
    /// Notifies pages that they should refresh.
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
        let now = config.current();
        let env = |name: &str| match name {
            "MESSAGE_RATE_WINDOW" if now.message_rate_window.is_some() => {
                now.message_rate_window.map(|window| window.as_millis().to_string())
            }
            name => std::env::var(name).ok(),
        };
        let keys = Keys::from_env(context.layout, &env).map_err(|error| Error::Config(error.to_string()))?;
        let store = context.store.clone();
        let tls = client_tls(None).map_err(|error| Error::Config(error.to_string()))?;
        let node = Node::new(&store, &keys, &context.node, now.node_lease.get());
        let inner = Inner {
            tokens: Tokens::from_config(&now, &context.outbound)?,
            api_key: read_api_key(&now)?,
            database: context.database.clone(),
            rate_limit_store: store.with_deadline(RATE_LIMIT_TIMEOUT),
            emulation: Emulation::new(&store, &keys, node.incarnation()),
            hub: Hub::new(&store, &context.database, &keys, node),
            namespaces: NamespaceHub::new(&store, &keys, config.clone()),
            presences: PresenceStore::new(&store, &keys),
            typing: TypingStore::new(&store, &keys),
            recent: RecentMessages::new(&store, &keys),
            unread: UnreadCounters::new(&store, &keys),
            participants: ParticipantCache::new(&store, &keys),
            tasks: context.tasks.clone(),
            tracer: context.tracer.clone(),
            secrets: context.secrets.clone(),
            http: HttpClient::new(&context.outbound, tls),
            proxy_calls: ProxyCalls::default(),
            presence_reports: PresenceReports::default(),
            epoch: epoch(context.database.id()),
            sends: SendQueue::default(),
            conversation_locks: new_locks(CONVERSATION_LOCKS),
            socket_locks: new_locks(SOCKET_LOCKS),
            node_name: context.node.to_string(),
            started: Instant::now(),
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
        crate::metrics::connections(0);
        let tasks = &self.inner.tasks;
        let chat = self.clone();
        tasks.spawn("chat node", move |task| chat.clone().keep_alive(task));
        let chat = self.clone();
        tasks.spawn("chat presence", move |task| chat.clone().confirm(task));
        let chat = self.clone();
        tasks.spawn("chat recovery", move |task| chat.clone().recover(task));
        let chat = self.clone();
        tasks.spawn("chat rebuild", move |task| chat.clone().rebuild(task));
        let chat = self.clone();
        tasks.spawn("chat sweep", move |task| chat.clone().sweep(task));
        let chat = self.clone();
        tasks.spawn("chat stale presence", move |task| chat.clone().watch_stale_presence(task));
        let chat = self.clone();
        tasks.spawn("chat listener", move |task| chat.clone().listen(task));
        let chat = self.clone();
        tasks.spawn("chat broker", move |task| {
            let chat = chat.clone();
            async move { chat.inner.hub.broker.run(&chat.inner.store, &task).await }
        });
        let chat = self.clone();
        tasks.spawn("chat channels", move |task| {
            let chat = chat.clone();
            async move { chat.inner.namespaces.maintain(&task).await }
        });
        let chat = self.clone();
        tasks.spawn("chat emulation", move |task| {
            let chat = chat.clone();
            async move { chat.inner.emulation.listen(&task).await }
        });
        let chat = self.clone();
        tasks.spawn("chat typing", move |task| chat.clone().watch_typing(task));
        let chat = self.clone();
        tasks.spawn("chat cache", move |task| chat.clone().fill_caches(task));
        let chat = self.clone();
        tasks.spawn("chat token revocations", move |task| chat.clone().watch_revocations(task));
        let chat = self.clone();
        tasks.spawn("chat cleanup", move |task| chat.clone().clean_up(task));
        self.start_webhooks();
    }

    fn routes(&self) -> Routes {
        routes::routes().merge(pages::routes()).with_state(self.clone())
    }

    async fn card(&self) -> Card {
        card::card(self).await
    }

    async fn search(&self, query: &str) -> Result<Vec<SearchHit>, Error> {
        let newest = PageRequest::first(PageRequest::MAX_SIZE);
        let found = self.conversations(&newest).await?.rows;
        let found = found.into_iter().filter(|one| SearchHit::matches(query, &[one.id.as_str(), &one.title]));
        let hit = |found: crate::Conversation| SearchHit {
            kind: "conversation",
            href: pages::href(found.created_by.as_str(), found.id.as_str()),
            detail: found.id.to_string(),
            title: found.title,
        };
        Ok(found.take(MAX_SEARCH_HITS).map(hit).collect())
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
        self.inner.config.current()
    }

    /// When a connection is closed whose token expires at this time, in Unix seconds.
    pub(crate) fn end_of_connection(&self, expires_s: i64) -> Instant {
        let left = u64::try_from(expires_s.saturating_sub(now_s())).unwrap_or(0).min(MAX_CONNECTION_S);
        Instant::now() + Duration::from_secs(left) + self.config().token_grace.get()
    }

    /// Issues a token for a user, if this process has a secret.
    pub fn issue_token(&self, user: &UserId, valid: Duration) -> Option<String> {
        self.inner.tokens.issue(user, expiry_s(valid))
    }

    /// Issues a token with which a user can subscribe to a channel of a namespace, if this process has a secret.
    pub fn issue_subscription_token(
        &self,
        user: &UserId,
        channel: &NamedChannel,
        valid: Duration,
    ) -> Option<String> {
        self.inner.tokens.issue_with(None, user, expiry_s(valid), Some(channel))
    }

    /// Issues a token that ends with the credential of a request.
    pub(crate) fn issue_token_with(
        &self,
        credential: &Credential,
        user: &UserId,
        channel: Option<&NamedChannel>,
        valid: Duration,
    ) -> Option<String> {
        self.inner.tokens.issue_with(credential.reference(), user, expiry_s(valid), channel)
    }

    pub(crate) fn message_rule(&self) -> Result<Rule, Error> {
        let config = self.config();
        // Taken from the keys, because their TTL is declared with the window.
        let period = self.inner.keys.message_rate_ttl();
        let window = Window { limit: config.message_rate_limit, period, burst: None };
        if !matches!(config.message_rate_algorithm, Algorithm::FixedCounter | Algorithm::Gcra) {
            let reason = "message_rate_algorithm must be fixed_counter or gcra";
            return Err(Error::Config(reason.to_owned()));
        }
        Ok(Rule::new(config.message_rate_algorithm, vec![window])?)
    }

    /// Serializes the changes of a conversation on this node.
    pub(crate) async fn lock_conversation(&self, conversation: &ConversationId) -> MutexGuard<'_, ()> {
        lock_for(&self.inner.conversation_locks, conversation.as_str()).await
    }

    /// The same for several conversations.
    pub(crate) async fn lock_conversations(
        &self,
        conversations: impl Iterator<Item = &ConversationId>,
    ) -> Vec<MutexGuard<'_, ()>> {
        let locks = &self.inner.conversation_locks;
        // In order, so that two callers do not wait for each other.
        let indexes: BTreeSet<usize> =
            conversations.map(|conversation| lock_index(locks, conversation.as_str())).collect();
        let mut held = Vec::with_capacity(indexes.len());
        for index in indexes {
            held.push(locks[index].lock().await);
        }
        held
    }

    /// Serializes updates of the list of open sockets of a user on this node. A closed socket leaves the hub before
    /// this lock is taken, so it is never counted again.
    pub(crate) async fn lock_sockets(&self, user: &UserId) -> MutexGuard<'_, ()> {
        lock_for(&self.inner.socket_locks, user.as_str()).await
    }
}

fn read_api_key(config: &Config) -> Result<Option<Secret>, Error> {
    let key = config.api_key.as_ref().map(read_secret).transpose();
    key.map_err(|reason| Error::Config(format!("api_key: {reason}")))
}

fn new_locks(count: usize) -> Vec<Mutex<()>> {
    (0..count).map(|_| Mutex::default()).collect()
}

async fn lock_for<'a>(locks: &'a [Mutex<()>], id: &str) -> MutexGuard<'a, ()> {
    locks[lock_index(locks, id)].lock().await
}

/// The index of the mutex that an id hashes to.
fn lock_index(locks: &[Mutex<()>], id: &str) -> usize {
    let mix = |hash: usize, byte| hash.wrapping_mul(31).wrapping_add(usize::from(byte));
    id.bytes().fold(0_usize, mix) % locks.len()
}

/// A short name of the database, the same on all nodes.
fn epoch(id: DatabaseId) -> String {
    let text: String = id.to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    text.chars().take(8).collect()
}

/// The expiry of something that is valid from now on, in Unix seconds.
fn expiry_s(valid: Duration) -> i64 {
    now_s() + i64::try_from(valid.as_secs()).unwrap_or(i64::MAX / 2)
}

pub(crate) fn now_s() -> i64 {
    jiff::Timestamp::now().as_second()
}
