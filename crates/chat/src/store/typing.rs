//! Typing (C4 C5): a flag for each user, and an index for each conversation, so that no client has to scan keys and
//! nodes know when typing stopped.

use std::time::Duration;

use hob_store::repair::{self, KeyType};
use hob_store::{CLOCK, Call, Reply, Script, Store, Text};

use crate::Error;
use crate::keys::{ConversationId, Keys, UserId};

static START: Script = Script::with(&[CLOCK], include_str!("typing/start.lua"));
static STOP: Script = Script::new(include_str!("typing/stop.lua"));
static LIST: Script = Script::with(&[CLOCK], include_str!("typing/list.lua"));

/// How long a user counts as typing after the last start.
pub(crate) const TYPING_TTL: Duration = Keys::TYPING_TTL_MAX;

/// Typing in Redis.
#[derive(Clone, Debug)]
pub(crate) struct TypingStore {
    store: Store,
    keys: Keys,
}

impl TypingStore {
    pub(crate) fn new(store: &Store, keys: &Keys) -> Self {
        Self { store: store.clone(), keys: keys.clone() }
    }

    /// Records that a user is typing, for [`TYPING_TTL`]. `false` if they were typing already.
    pub(crate) async fn start(&self, conversation: &ConversationId, user: &UserId) -> Result<bool, Error> {
        let call = START.on(&[self.keys.typing(conversation, user), self.keys.typists(conversation)]);
        let call = call.arg(user.as_str()).arg(TYPING_TTL.as_millis() as u64).arg(self.store.clock().us());
        Ok(self.run(conversation, call).await?.word() == "started")
    }

    /// Records that a user stopped. `false` if they were not typing.
    pub(crate) async fn stop(&self, conversation: &ConversationId, user: &UserId) -> Result<bool, Error> {
        let call = STOP.on(&[self.keys.typing(conversation, user), self.keys.typists(conversation)]);
        Ok(self.run(conversation, call.arg(user.as_str())).await?.word() == "stopped")
    }

    async fn run(&self, conversation: &ConversationId, call: Call) -> Result<Reply, Error> {
        Ok(repair::run(&self.store, call, &[(self.keys.typists(conversation), KeyType::Zset)]).await?)
    }

    /// The users who are typing, each with the time left.
    pub(crate) async fn list(&self, conversation: &ConversationId) -> Result<Vec<(UserId, Duration)>, Error> {
        let call = LIST.on(&[self.keys.typists(conversation)]).arg(self.store.clock().us());
        let mut reply = self.run(conversation, call).await?;
        let mut typists = Vec::with_capacity(reply.left() / 2);
        while reply.left() > 0 {
            let (Text(user), left_ms): (_, u64) = (reply.next()?, reply.next()?);
            if let Ok(user) = UserId::new(user) {
                typists.push((user, Duration::from_millis(left_ms)));
            }
        }
        Ok(typists)
    }
}
