//! Unread messages (C8 C9). The truth is in the database: others' undeleted messages after a member's read
//! pointer, without those of users who are blocked. The counters in the store are set together with a stamp
//! of what they were counted at, so that a late recount never overwrites a later one.

use hob_database::{Database, from_row};
use hob_store::mend::{self, Kind};
use hob_store::{CLOCK, Call, FromRedisValue as _, Reply, Script, Store};
use serde::Serialize;
use utoipa::ToSchema;

use crate::keys::{ConversationId, Keys, UserId};
use crate::{Error, database};

static HOLD: Script = Script::with(&[CLOCK], include_str!("unread/write.lua"));
static ADVANCE: Script = Script::with(&[CLOCK], include_str!("unread/increment.lua"));

/// What a user has not read in one conversation.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Count {
    #[schema(value_type = String)]
    pub conversation_id: ConversationId,
    pub unread: u64,
    /// Grows with every change that could change the count.
    pub stamp: u64,
}

/// The same with whose it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counted {
    pub(crate) user_id: UserId,
    pub(crate) conversation_id: ConversationId,
    pub(crate) unread: u64,
    pub(crate) stamp: u64,
    /// The last event that is counted.
    pub(crate) sequence: u64,
}

from_row!(Counted { user_id, conversation_id, unread, stamp, sequence });

/// The next messages of a conversation, for one member.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Advance {
    pub(crate) user_id: UserId,
    pub(crate) version: u64,
    /// The event before the messages, and the one that the last of them came with.
    pub(crate) after: u64,
    pub(crate) last: u64,
    /// How many of them this member has to read.
    pub(crate) more: usize,
}

/// Whether these counts are all that a user has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Some,
    All,
}

/// What became of counts that were to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Total(u64),
    /// The count was made at another time: it has to be made anew.
    Gap,
    /// The user's other counts are gone: all have to come.
    Lost,
}

/// The counters in the store.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    store: Store,
    keys: Keys,
}

impl Unread {
    pub(crate) fn new(store: &Store, keys: &Keys) -> Self {
        Self { store: store.clone(), keys: keys.clone() }
    }

    /// Holds counts of one user.
    pub(crate) async fn hold(
        &self,
        user: &UserId,
        counts: &[Counted],
        extent: Extent,
    ) -> Result<Held, Error> {
        let call = self.call(user, counts, extent);
        read(mend::run(&self.store, call, &[(self.keys.unread_held(user), Kind::Hash)]).await?)
    }

    /// Holds each of these counts, of whomever, in as few round trips as there can be.
    pub(crate) async fn hold_each(&self, counts: &[Counted]) -> Result<Vec<Held>, Error> {
        let call = |count: &Counted| self.call(&count.user_id, std::slice::from_ref(count), Extent::Some);
        let calls: Vec<Call> = counts.iter().map(call).collect();
        self.held(counts.iter().map(|count| &count.user_id), &calls).await
    }

    /// Counts the next messages of a conversation, for each of these members, and tells their feeds.
    pub(crate) async fn advance_each(
        &self,
        conversation: &ConversationId,
        advances: &[Advance],
    ) -> Result<Vec<Held>, Error> {
        let name = serde_json::to_string(conversation)?;
        let call = |advance: &Advance| {
            let Advance { user_id, version, after, last, more } = advance;
            let keys = [
                self.keys.unread_held(user_id),
                self.keys.unread_total(user_id),
                self.keys.unread(user_id, conversation),
            ];
            let call =
                ADVANCE.on(&keys).arg(conversation.as_str()).arg(version).arg(after).arg(last).arg(more);
            Ok(call.arg(self.keys.feed_channel(user_id)).arg(serde_json::to_string(user_id)?).arg(&name))
        };
        let calls = advances.iter().map(call).collect::<Result<Vec<Call>, Error>>()?;
        self.held(advances.iter().map(|advance| &advance.user_id), &calls).await
    }

    /// What became of calls, one for each of these users.
    async fn held<'a>(
        &self,
        users: impl Iterator<Item = &'a UserId>,
        calls: &[Call],
    ) -> Result<Vec<Held>, Error> {
        let mut held = Vec::with_capacity(calls.len());
        for (user, answer) in users.zip(self.store.batch(calls).await) {
            match answer {
                // One user's counts that cannot be read must not keep the others' from being written.
                Err(error) if error.is_wrong_type() => {
                    mend::mend(&self.store, &[(self.keys.unread_held(user), Kind::Hash)]).await?;
                    held.push(Held::Lost);
                }
                answer => {
                    let reply = Reply::from_redis_value(answer?);
                    held.push(read(reply.map_err(|error| hob_store::Error::Reply(error.to_string()))?)?);
                }
            }
        }
        Ok(held)
    }

    fn call(&self, user: &UserId, counts: &[Counted], extent: Extent) -> Call {
        let mut keys = vec![self.keys.unread_held(user), self.keys.unread_total(user)];
        keys.extend(counts.iter().map(|count| self.keys.unread(user, &count.conversation_id)));
        let call = HOLD.on(&keys).arg(match extent {
            Extent::Some => "some",
            Extent::All => "all",
        });
        counts.iter().fold(call, |call, count| {
            call.arg(count.conversation_id.as_str()).arg(count.stamp).arg(count.unread).arg(count.sequence)
        })
    }

    /// Writes all counters of a user again. Answers with the total.
    pub(crate) async fn rebuild(&self, database: &Database, user: &UserId) -> Result<u64, Error> {
        let counts = database::unread::of_user(database, user).await?;
        match self.hold(user, &counts, Extent::All).await? {
            Held::Total(total) => Ok(total),
            Held::Gap | Held::Lost => Ok(0),
        }
    }
}

fn read(mut reply: Reply) -> Result<Held, Error> {
    match reply.word() {
        "held" => Ok(Held::Total(reply.next()?)),
        "gap" => Ok(Held::Gap),
        "lost" => Ok(Held::Lost),
        _ => Err(reply.unexpected().into()),
    }
}

impl From<Counted> for Count {
    fn from(counted: Counted) -> Self {
        Self { conversation_id: counted.conversation_id, unread: counted.unread, stamp: counted.stamp }
    }
}
