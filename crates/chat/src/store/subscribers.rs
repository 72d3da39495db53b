//! The presence of channels in configured namespaces: the clients that are subscribed, on all nodes. Each node renews the
//! entries of its own clients, so those of a dead node expire.

use std::time::Duration;

use hob_store::repair::{self, KeyType};
use hob_store::{CLOCK, Call, Key, Reply, Script, Store, Text};

use crate::Error;
use crate::keys::{Keys, NamedChannel, SocketId};
use crate::session::protocol::ClientInfo;

const EXPIRE: &str = include_str!("subscribers/expire.lua");

static ADD: Script = Script::with(&[CLOCK, EXPIRE], include_str!("subscribers/add.lua"));
static REMOVE: Script = Script::new(include_str!("subscribers/remove.lua"));
static LIST: Script = Script::with(&[CLOCK, EXPIRE], include_str!("subscribers/list.lua"));

/// How long an entry is valid.
const TTL: Duration = Keys::CHANNEL_CLIENTS_TTL_MAX;
/// How often a node renews its entries: one renewal may fail.
pub(crate) const RENEW_INTERVAL: Duration = Duration::from_secs(TTL.as_secs() / 3);

/// The presence of channels in Redis.
#[derive(Clone, Debug)]
pub(crate) struct SubscriberStore {
    store: Store,
    keys: Keys,
}

impl SubscriberStore {
    pub(crate) fn new(store: &Store, keys: &Keys) -> Self {
        Self { store: store.clone(), keys: keys.clone() }
    }

    /// Adds clients, or renews their entries. Each has its id and its info as JSON.
    pub(crate) async fn add(
        &self,
        channel: &NamedChannel,
        clients: &[(SocketId, String)],
    ) -> Result<(), Error> {
        let keys = self.channel_keys(channel);
        let call = ADD.on(&[&keys[0].0, &keys[1].0]).arg(Keys::CHANNEL_CLIENTS_MAX_LEN);
        let call = call.arg(TTL.as_millis() as u64).arg(self.store.clock().us());
        let call = clients.iter().fold(call, |call, (client, info)| call.arg(client.as_str()).arg(info));
        repair::run::<Reply, _>(&self.store, call, &keys).await?;
        Ok(())
    }

    /// The call that removes a client.
    pub(crate) fn remove_call(&self, channel: &NamedChannel, client: &SocketId) -> Call {
        let [(clients, _), (expiry, _)] = self.channel_keys(channel);
        REMOVE.on(&[clients, expiry]).arg(client.as_str())
    }

    /// The clients of a channel.
    pub(crate) async fn list(&self, channel: &NamedChannel) -> Result<Vec<ClientInfo>, Error> {
        let keys = self.channel_keys(channel);
        let call = LIST.on(&[&keys[0].0, &keys[1].0]).arg(self.store.clock().us());
        let mut reply: Reply = repair::run(&self.store, call, &keys).await?;
        let mut clients = Vec::with_capacity(reply.left());
        while reply.left() > 0 {
            let Text(info) = reply.next()?;
            // An entry that another client has written is not shown. It expires like the others.
            clients.extend(serde_json::from_str::<ClientInfo>(&info).ok());
        }
        Ok(clients)
    }

    fn channel_keys(&self, channel: &NamedChannel) -> [(Key, KeyType); 2] {
        let (clients, expiry) = (self.keys.channel_clients(channel), self.keys.channel_expiry(channel));
        [(clients, KeyType::Hash), (expiry, KeyType::Zset)]
    }
}
