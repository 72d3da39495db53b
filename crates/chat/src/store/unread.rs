//! The unread counters in Redis (C8 C9). The database defines the counts. Each counter is written with a stamp, so
//! that a late recount never overwrites a newer one.

use hob_database::{Database, from_row};
use hob_schema::Layout;
use hob_store::repair::{self, KeyType};
use hob_store::{CLOCK, Call, FromRedisValue as _, Reply, Script, Store, cmd};
use serde::Serialize;

use crate::keys::{ConversationId, Keys, UserId};
use crate::{Error, database};

static WRITE: Script = Script::with(&[CLOCK], include_str!("unread/write.lua"));
static INCREMENT: Script = Script::with(&[CLOCK], include_str!("unread/increment.lua"));

/// The most members whose counters one batch increments: Redis runs nothing else meanwhile.
const MAX_INCREMENTS: usize = 100;

/// The unread messages of a user in one conversation, as a client gets them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadCount {
    pub conversation_id: ConversationId,
    pub unread: u64,
    /// How many of them mention the user.
    pub mentions: u64,
    /// Grows with every change that can affect the count.
    pub stamp: u64,
}

/// The unread count of one user in one conversation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnreadRow {
    pub(crate) user_id: UserId,
    pub(crate) conversation_id: ConversationId,
    pub(crate) unread: u64,
    /// How many of them mention the user.
    pub(crate) mentions: u64,
    pub(crate) stamp: u64,
    /// The last event that the count includes.
    pub(crate) sequence: u64,
}

from_row!(UnreadRow { user_id, conversation_id, unread, mentions, stamp, sequence });

/// New messages of a conversation: the sequences before the first and of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewMessages {
    pub(crate) after: u64,
    pub(crate) last: u64,
}

/// How many of the new messages are unread for a member.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnreadIncrement {
    pub(crate) user_id: UserId,
    pub(crate) version: u64,
    pub(crate) count: usize,
    /// How many of these mention the member.
    pub(crate) mentions: usize,
}

/// Whether the given counts are all counts of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountScope {
    Partial,
    Full,
}

hob_units::names!(CountScope { Partial = "partial", Full = "full" });

/// The result of writing counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterUpdate {
    Written(u64),
    /// The user's other counters are missing. All must be written.
    Missing,
}

/// The unread counters in Redis.
#[derive(Clone, Debug)]
pub(crate) struct UnreadCounters {
    store: Store,
    keys: Keys,
}

impl UnreadCounters {
    pub(crate) fn new(store: &Store, keys: &Keys) -> Self {
        Self { store: store.clone(), keys: keys.clone() }
    }

    /// Writes counts of one user.
    pub(crate) async fn write(
        &self,
        user: &UserId,
        counts: &[UnreadRow],
        scope: CountScope,
    ) -> Result<CounterUpdate, Error> {
        let call = self.write_call(user, counts, scope);
        read(repair::run(&self.store, call, &[(self.keys.unread_held(user), KeyType::Hash)]).await?)
    }

    /// Writes each of these counts, in one batch.
    pub(crate) async fn write_each(&self, counts: &[UnreadRow]) -> Result<Vec<CounterUpdate>, Error> {
        let call = |count: &UnreadRow| {
            self.write_call(&count.user_id, std::slice::from_ref(count), CountScope::Partial)
        };
        let calls: Vec<Call> = counts.iter().map(call).collect();
        self.run_each(counts.iter().map(|count| &count.user_id), &calls).await
    }

    /// Adds new messages of a conversation to the counters of these members, and notifies their feeds. Returns those whose
    /// counters must be recounted.
    pub(crate) async fn increment<'a>(
        &self,
        conversation: &ConversationId,
        messages: NewMessages,
        members: &'a [UnreadIncrement],
    ) -> Result<Vec<&'a UserId>, Error> {
        // A script has the keys of many members where that is allowed.
        let at_once = match self.keys.space().layout() {
            Layout::Plain => MAX_INCREMENTS,
            Layout::Tagged => 1,
        };
        let mut behind = Vec::new();
        // One batch after the other: Redis runs all calls of a pipeline before it serves another client.
        for batch in members.chunks(MAX_INCREMENTS) {
            let calls =
                batch.chunks(at_once).map(|members| self.increment_call(conversation, messages, members));
            let calls = calls.collect::<Result<Vec<Call>, Error>>()?;
            for (members, answer) in batch.chunks(at_once).zip(self.store.batch(&calls).await) {
                let mut reply = Reply::from_redis_value(answer?)
                    .map_err(|error| hob_store::Error::Reply(error.to_string()))?;
                if reply.word() != "counted" {
                    return Err(reply.unexpected().into());
                }
                while reply.left() > 0 {
                    let number: usize = reply.next()?;
                    behind.extend(members.get(number.wrapping_sub(1)).map(|member| &member.user_id));
                }
            }
        }
        Ok(behind)
    }

    fn increment_call(
        &self,
        conversation: &ConversationId,
        NewMessages { after, last }: NewMessages,
        members: &[UnreadIncrement],
    ) -> Result<Call, Error> {
        let mut keys = Vec::with_capacity(members.len() * 3);
        for UnreadIncrement { user_id, .. } in members {
            keys.push(self.keys.unread_held(user_id));
            keys.push(self.keys.unread_total(user_id));
            keys.push(self.keys.unread(user_id, conversation));
        }
        let call = INCREMENT.on(&keys).arg(conversation.as_str()).arg(after).arg(last);
        let mut call = call.arg(serde_json::to_string(conversation)?);
        for UnreadIncrement { user_id, version, count, mentions } in members {
            call = call.arg(version).arg(count).arg(mentions).arg(self.keys.feed_channel(user_id));
            call = call.arg(serde_json::to_string(user_id)?);
        }
        Ok(call)
    }

    /// Runs one call for each user.
    async fn run_each<'a>(
        &self,
        users: impl Iterator<Item = &'a UserId>,
        calls: &[Call],
    ) -> Result<Vec<CounterUpdate>, Error> {
        let mut updates = Vec::with_capacity(calls.len());
        for (user, answer) in users.zip(self.store.batch(calls).await) {
            match answer {
                // If another client has changed one user's key, the calls for the other users must still succeed.
                Err(error) if error.is_foreign_value() => {
                    repair::repair(&self.store, &error, &[(self.keys.unread_held(user), KeyType::Hash)])
                        .await?;
                    updates.push(CounterUpdate::Missing);
                }
                answer => {
                    let reply = Reply::from_redis_value(answer?);
                    updates.push(read(reply.map_err(|error| hob_store::Error::Reply(error.to_string()))?)?);
                }
            }
        }
        Ok(updates)
    }

    pub(crate) fn write_call(&self, user: &UserId, counts: &[UnreadRow], scope: CountScope) -> Call {
        let mut keys = vec![self.keys.unread_held(user), self.keys.unread_total(user)];
        keys.extend(counts.iter().map(|count| self.keys.unread(user, &count.conversation_id)));
        let call = WRITE.on(&keys).arg(scope.as_str());
        counts.iter().fold(call, |call, count| {
            let call = call.arg(count.conversation_id.as_str()).arg(count.stamp).arg(count.unread);
            call.arg(count.sequence).arg(count.mentions)
        })
    }

    /// Deletes the counters of a user who has no others than that of this conversation.
    pub(crate) async fn delete(&self, conversation: &ConversationId, user: &UserId) -> Result<(), Error> {
        let Self { store, keys } = self;
        let delete = cmd("DEL").arg(keys.unread(user, conversation)).arg(keys.unread_total(user)).take();
        store.run::<u64>(delete).await?;
        Ok(store.run::<u64>(cmd("DEL").arg(keys.unread_held(user)).take()).await.map(drop)?)
    }

    /// Writes all counters of a user again. Returns the total.
    pub(crate) async fn rebuild(&self, database: &Database, user: &UserId) -> Result<u64, Error> {
        let counts = database::unread::of_user(database, user).await?;
        match self.write(user, &counts, CountScope::Full).await? {
            CounterUpdate::Written(total) => Ok(total),
            CounterUpdate::Missing => Ok(0),
        }
    }
}

fn read(mut reply: Reply) -> Result<CounterUpdate, Error> {
    match reply.word() {
        "written" => Ok(CounterUpdate::Written(reply.next()?)),
        "missing" => Ok(CounterUpdate::Missing),
        _ => Err(reply.unexpected().into()),
    }
}

impl From<UnreadRow> for UnreadCount {
    fn from(row: UnreadRow) -> Self {
        let UnreadRow { conversation_id, unread, mentions, stamp, .. } = row;
        Self { conversation_id, unread, mentions, stamp }
    }
}
