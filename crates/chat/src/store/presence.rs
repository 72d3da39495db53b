//! Presence (C1 C2 C3 C11 C12): the sockets of a user on all nodes. One script counts them, so that each real change
//! publishes exactly one event.
//!
//! A socket belongs to one incarnation of a node. Other nodes remove the sockets of a dead node. Redis may lose changes,
//! so each node remembers the version of the last change of its users. It restores its own sockets, without an event
//! unless the user was set offline in a later version.

use std::collections::HashSet;

use hob_store::Key;
use hob_store::repair::{self, KeyType};
use hob_store::{CLOCK, Call, FromRedisValue, Reply, Script, Store, Text, Value, cmd};

use crate::Error;
use crate::keys::{Incarnation, Keys, SocketId, UserId};

const CHANGE: &str = include_str!("presence/change.lua");

static JOIN: Script = Script::with(&[CLOCK, CHANGE], include_str!("presence/join.lua"));
static LEAVE: Script = Script::with(&[CLOCK, CHANGE], include_str!("presence/leave.lua"));
static SWEEP: Script = Script::with(&[CLOCK, CHANGE], include_str!("presence/sweep.lua"));

/// What a node knows of a user whose sockets it adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The version of the last change.
    Version(u64),
    /// Nothing: the user connects.
    Nothing,
    /// Nothing, and Redis may have lost the user. If Redis does not know the user either, nothing is changed.
    Ask,
}

impl Known {
    /// What is known from the version of the last change, or 0.
    pub(crate) fn from_version(version: u64) -> Self {
        if version > 0 { Self::Version(version) } else { Self::Nothing }
    }

    fn argument(self) -> String {
        match self {
            Self::Version(version) => version.to_string(),
            Self::Nothing => "0".to_owned(),
            Self::Ask => "ask".to_owned(),
        }
    }
}

/// The result of adding or removing sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceChange {
    /// The user went online or offline. An event with this version was published.
    Changed { version: u64 },
    /// The user stays online or offline.
    Unchanged { version: u64 },
    /// The user has the maximum number of sockets.
    LimitReached,
    /// The socket was not open.
    NotFound,
}

/// Whether a user is online, and when they were last seen.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
pub struct Presence {
    #[schema(value_type = String)]
    pub user_id: UserId,
    pub online: bool,
    /// ISO 8601. Missing if the user was never online.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<String>,
    /// Grows with each change. The response with the greater version is newer.
    pub version: u64,
}

/// Presence in Redis.
#[derive(Clone, Debug)]
pub(crate) struct PresenceStore {
    store: Store,
    keys: Keys,
}

impl PresenceStore {
    pub(crate) fn new(store: &Store, keys: &Keys) -> Self {
        Self { store: store.clone(), keys: keys.clone() }
    }

    /// Adds sockets of a user on a node. The node's index is written first: it can contain a user without sockets
    /// there, but never lacks one with sockets. [`PresenceChange::NotFound`] only with [`Known::Ask`].
    pub(crate) async fn join(
        &self,
        node: &Incarnation,
        user: &UserId,
        sockets: &[SocketId],
        known: Known,
    ) -> Result<PresenceChange, Error> {
        self.index(node, user).await?;
        let mut reply = self.run(user, self.join_call(node, user, sockets, known)).await?;
        let change = match reply.word() {
            "online" => PresenceChange::Changed { version: reply.next()? },
            "restored" | "already" => PresenceChange::Unchanged { version: reply.next()? },
            "full" => PresenceChange::LimitReached,
            "unknown" => PresenceChange::NotFound,
            _ => return Err(reply.unexpected().into()),
        };
        if matches!(change, PresenceChange::Changed { .. } | PresenceChange::Unchanged { .. }) {
            let views: Vec<Call> = sockets.iter().map(|socket| self.view(socket, user)).collect();
            self.store.batch(&views).await.into_iter().find(Result::is_err).transpose()?;
        }
        Ok(change)
    }

    fn join_call(&self, node: &Incarnation, user: &UserId, sockets: &[SocketId], known: Known) -> Call {
        let mut call = JOIN.on(&self.user_keys(user)).arg(node.as_str()).arg(known.argument());
        call = call.arg(Keys::SOCKETS_MAX_LEN).arg(self.store.clock().us());
        call = call.arg(self.keys.user_online_channel()).arg(json_string(user));
        sockets.iter().fold(call, |call, socket| call.arg(socket.as_str()))
    }

    fn view(&self, socket: &SocketId, user: &UserId) -> Call {
        cmd("SET").arg(self.keys.socket_user(socket)).arg(user.as_str()).take().into()
    }

    /// Removes a socket of a user whose last change has this version. `None` if Redis has lost that change: then it may
    /// also have lost sockets of the user on other nodes.
    pub(crate) async fn leave(
        &self,
        user: &UserId,
        socket: &SocketId,
        version: u64,
    ) -> Result<Option<PresenceChange>, Error> {
        let reply = self.run(user, self.leave_call(user, socket.as_str(), version)).await?;
        if reply.word() == "lost" {
            return Ok(None);
        }
        let change = self.read_leave(reply).await?;
        // This is done even for an unknown socket, because its view may still exist.
        self.store.run::<()>(cmd("DEL").arg(self.keys.socket_user(socket)).take()).await?;
        Ok(Some(change))
    }

    fn leave_call(&self, user: &UserId, socket: &str, version: u64) -> Call {
        let call = LEAVE.on(&self.user_keys(user)).arg(socket).arg(self.store.clock().us());
        call.arg(self.keys.user_offline_channel()).arg(json_string(user)).arg(version)
    }

    /// Adds a user to a node's index.
    pub(crate) async fn index(&self, node: &Incarnation, user: &UserId) -> Result<(), Error> {
        let key = self.keys.node_users(node);
        let add = cmd("SADD").arg(&key).arg(user.as_str()).take();
        Ok(repair::run(&self.store, add, &[(&key, KeyType::Set)]).await?)
    }

    /// Removes a user without sockets from a node's index.
    pub(crate) async fn unindex(&self, node: &Incarnation, user: &UserId) -> Result<(), Error> {
        let key = self.keys.node_users(node);
        let remove = cmd("SREM").arg(&key).arg(user.as_str()).take();
        Ok(repair::run(&self.store, remove, &[(&key, KeyType::Set)]).await?)
    }

    /// Sets a user offline who is online without a socket.
    pub(crate) async fn settle(&self, user: &UserId) -> Result<PresenceChange, Error> {
        let reply = self.run(user, self.leave_call(user, "", 0)).await?;
        self.read_leave(reply).await
    }

    /// Removes all sockets of a user on a dead node.
    pub(crate) async fn sweep(&self, dead: &Incarnation, user: &UserId) -> Result<PresenceChange, Error> {
        let call = SWEEP.on(&self.user_keys(user)).arg(dead.as_str()).arg(self.store.clock().us());
        let call = call.arg(self.keys.user_offline_channel()).arg(json_string(user));
        let change = self.read_leave(self.run(user, call).await?).await?;
        self.unindex(dead, user).await?;
        Ok(change)
    }

    /// The incarnations that own the sockets of these users, in their order.
    pub(crate) async fn owners(&self, users: &[UserId]) -> Result<Vec<HashSet<Incarnation>>, Error> {
        let owned = self.owned_sockets(users).await?;
        Ok(owned.into_iter().map(|sockets| sockets.into_iter().map(|(_, owner)| owner).collect()).collect())
    }

    /// The open sockets of these users with their owners, in the order of the users.
    pub(crate) async fn owned_sockets(
        &self,
        users: &[UserId],
    ) -> Result<Vec<Vec<(SocketId, Incarnation)>>, Error> {
        let reads = users.iter().map(|user| read("HGETALL", self.keys.presence(user), KeyType::Hash));
        // `version` is not a socket: see the ids in the schema.
        let socket = |(Text(socket), Text(owner)): (Text, Text)| {
            Some((SocketId::new(socket).ok()?, Incarnation::new(owner).ok()?))
        };
        let sockets = |fields: Vec<(Text, Text)>| fields.into_iter().filter_map(socket).collect();
        Ok(self.read_each(reads.collect()).await?.into_iter().map(sockets).collect())
    }

    /// The incarnation that owns each of these sockets, in their order; `None` if it is not open.
    pub(crate) async fn owner_of(
        &self,
        sockets: &[(UserId, SocketId)],
    ) -> Result<Vec<Option<String>>, Error> {
        let read = |(user, socket): &(UserId, SocketId)| {
            let key = self.keys.presence(user);
            let call = cmd("HGET").arg(&key).arg(socket.as_str()).take().into();
            (key, KeyType::Hash, call)
        };
        let owners: Vec<Option<Text>> = self.read_each(sockets.iter().map(read).collect()).await?;
        Ok(owners.into_iter().map(|owner| owner.map(|Text(owner)| owner)).collect())
    }

    /// Some users of a node's index. Empty if the index is empty.
    pub(crate) async fn some_users(&self, node: &Incarnation, max: u32) -> Result<Vec<UserId>, Error> {
        let key = self.keys.node_users(node);
        let some = cmd("SRANDMEMBER").arg(&key).arg(max).take();
        let users: Vec<Text> = repair::run(&self.store, some, &[(&key, KeyType::Set)]).await?;
        Ok(users.into_iter().filter_map(|Text(user)| UserId::new(user).ok()).collect())
    }

    async fn read_leave(&self, mut reply: Reply) -> Result<PresenceChange, Error> {
        let changed = match reply.word() {
            "offline" => true,
            "remaining" => false,
            "unknown" => return Ok(PresenceChange::NotFound),
            _ => return Err(reply.unexpected().into()),
        };
        let version = reply.next()?;
        let mut views = Vec::with_capacity(reply.left());
        while reply.left() > 0 {
            if let Ok(socket) = SocketId::new(reply.next::<Text>()?.0) {
                views.push(cmd("DEL").arg(self.keys.socket_user(&socket)).take().into());
            }
        }
        self.store.batch(&views).await.into_iter().find(Result::is_err).transpose()?;
        Ok(if changed { PresenceChange::Changed { version } } else { PresenceChange::Unchanged { version } })
    }

    /// The presence of these users, in their order.
    pub(crate) async fn of(&self, users: &[UserId]) -> Result<Vec<Presence>, Error> {
        let reads: Vec<(Key, KeyType, Call)> = users.iter().flat_map(|user| self.reads_of(user)).collect();
        let mut values = self.read_each::<Option<Text>>(reads).await?.into_iter();
        let mut next = || values.next().unwrap_or_default().map(|Text(text)| text);
        let presence = |user: &UserId| {
            let (online, last_seen, version) = (next(), next(), next());
            Presence {
                user_id: user.clone(),
                online: online.as_deref() == Some("true"),
                last_seen,
                version: version.and_then(|version| version.parse().ok()).unwrap_or(0),
            }
        };
        Ok(users.iter().map(presence).collect())
    }

    fn reads_of(&self, user: &UserId) -> [(Key, KeyType, Call); 3] {
        let get = |key: Key| {
            let call = cmd("GET").arg(&key).take().into();
            (key, KeyType::String, call)
        };
        let presence = self.keys.presence(user);
        let version = cmd("HGET").arg(&presence).arg("version").take().into();
        [get(self.keys.online(user)), get(self.keys.last_seen(user)), (presence, KeyType::Hash, version)]
    }

    /// Reads many keys. A key that another client has changed counts as missing, so that it does not hide the others.
    async fn read_each<T: FromRedisValue + Default>(
        &self,
        reads: Vec<(Key, KeyType, Call)>,
    ) -> Result<Vec<T>, Error> {
        let calls: Vec<Call> = reads.iter().map(|(_, _, call)| call.clone()).collect();
        let mut values = Vec::with_capacity(reads.len());
        for (reply, (key, kind, _)) in self.store.batch(&calls).await.into_iter().zip(reads) {
            let value = repair::or_none(&self.store, reply, (key, kind)).await?.unwrap_or(Value::Nil);
            values.push(T::from_redis_value(value).unwrap_or_default());
        }
        Ok(values)
    }

    /// The open sockets of these users, in their order.
    pub(crate) async fn sockets(&self, users: &[UserId]) -> Result<Vec<Vec<SocketId>>, Error> {
        let reads = users.iter().map(|user| read("SMEMBERS", self.keys.sockets(user), KeyType::Set));
        let ids =
            |sockets: Vec<Text>| sockets.into_iter().filter_map(|Text(id)| SocketId::new(id).ok()).collect();
        Ok(self.read_each(reads.collect()).await?.into_iter().map(ids).collect())
    }

    /// Restores a last-seen time from the database, if Redis has none.
    pub(crate) async fn restore_last_seen(&self, user: &UserId, at: &str) -> Result<(), Error> {
        Ok(self.store.run(cmd("SET").arg(self.keys.last_seen(user)).arg(at).arg("NX").take()).await?)
    }

    /// Runs a script on the keys of a user. It checks their types before its first write.
    async fn run(&self, user: &UserId, call: Call) -> Result<Reply, Error> {
        let kinds = [KeyType::String, KeyType::Set, KeyType::Hash, KeyType::String];
        let keys: Vec<_> = self.user_keys(user).into_iter().zip(kinds).collect();
        Ok(repair::run(&self.store, call, &keys).await?)
    }

    fn user_keys(&self, user: &UserId) -> [Key; 4] {
        let keys = &self.keys;
        [keys.online(user), keys.sockets(user), keys.presence(user), keys.last_seen(user)]
    }
}

/// A read of a whole key.
fn read(command: &str, key: Key, kind: KeyType) -> (Key, KeyType, Call) {
    let call = cmd(command).arg(&key).take().into();
    (key, kind, call)
}

/// An id as a JSON string, which scripts insert into the events that they publish.
fn json_string(user: &UserId) -> String {
    serde_json::Value::from(user.as_str()).to_string()
}
