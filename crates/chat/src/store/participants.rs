//! The cache of a conversation's members (C13): complete or absent. For other programs; permissions are checked on
//! the database.

use hob_store::repair::{self, KeyType, STORED};
use hob_store::{Call, Reply, Script, Store, Text, cmd};

use crate::Error;
use crate::keys::{ConversationId, Keys, UserId};

static FILL: Script = Script::with(&[STORED], include_str!("participants/fill.lua"));
static DROP: Script = Script::with(&[STORED], include_str!("participants/drop.lua"));

/// The cache of participants in Redis.
#[derive(Clone, Debug)]
pub(crate) struct ParticipantCache {
    store: Store,
    keys: Keys,
}

impl ParticipantCache {
    pub(crate) fn new(store: &Store, keys: &Keys) -> Self {
        Self { store: store.clone(), keys: keys.clone() }
    }

    /// Fills the cache with the members at a sequence of the conversation.
    pub(crate) async fn fill(
        &self,
        conversation: &ConversationId,
        sequence: u64,
        users: &[UserId],
    ) -> Result<(), Error> {
        if users.is_empty() {
            return Ok(());
        }
        let call = FILL.on(&self.set_keys(conversation)).arg(sequence).arg(ttl_ms());
        let call = users.iter().fold(call, |call, user| call.arg(user.as_str()));
        self.run(conversation, call).await
    }

    /// Drops the cache after an event that changed the members.
    pub(crate) async fn drop(&self, conversation: &ConversationId, sequence: u64) -> Result<(), Error> {
        let call = DROP.on(&self.set_keys(conversation)).arg(sequence).arg(ttl_ms());
        self.run(conversation, call).await
    }

    /// The members, if they are cached.
    pub(crate) async fn get(&self, conversation: &ConversationId) -> Result<Option<Vec<UserId>>, Error> {
        let key = self.keys.participants(conversation);
        let members: Vec<Text> =
            repair::run(&self.store, cmd("SMEMBERS").arg(&key).take(), &[(&key, KeyType::Set)]).await?;
        let mut members: Vec<UserId> =
            members.into_iter().filter_map(|Text(user)| UserId::new(user).ok()).collect();
        // Sorted as in the database, because a set has no order.
        members.sort();
        Ok((!members.is_empty()).then_some(members))
    }

    async fn run(&self, conversation: &ConversationId, call: Call) -> Result<(), Error> {
        let [set, floor] = self.set_keys(conversation);
        let keys = [(set, KeyType::Set), (floor, KeyType::String)];
        Ok(repair::run::<Reply, _>(&self.store, call, &keys).await.map(drop)?)
    }

    fn set_keys(&self, conversation: &ConversationId) -> [hob_store::Key; 2] {
        [self.keys.participants(conversation), self.keys.participants_floor(conversation)]
    }
}

fn ttl_ms() -> u64 {
    Keys::PARTICIPANTS_TTL_MAX.as_millis() as u64
}
