//! Who is in a conversation, and how far each has read.

use std::fmt;
use std::str::FromStr;

use hob_database::{Database, Isolation, Query, Read, Transaction, column, from_row, sql};
use serde::Serialize;
use utoipa::ToSchema;

use crate::Error;
use crate::conversation::MOST_MEMBERS;
use crate::conversation::event::{self, At, Event, Happening, Step};
use crate::conversation::outbox;
use crate::error::{Answer, Halt, Refusal, answer};
use crate::keys::{ConversationId, UserId};

/// Whether somebody is in a conversation. Who left keeps a row, so that its version never begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    In,
    Out,
}

/// A member of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    #[schema(value_type = String)]
    pub user_id: UserId,
    #[schema(value_type = String)]
    pub joined_at: At,
    /// Everything up to this event was read.
    pub read_sequence: u64,
    /// Everything up to this event has reached a device.
    pub delivered_sequence: u64,
}

/// How one user stands to a conversation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standing {
    pub(crate) state: State,
    pub(crate) read_sequence: u64,
    /// The conversation's last event.
    pub(crate) sequence: u64,
}

/// How far a member has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    pub read_sequence: u64,
    pub delivered_sequence: u64,
}

/// What a receipt says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Delivered,
    /// What was read was delivered, too.
    Read,
}

column!(State as text);
from_row!(Member { user_id, joined_at, read_sequence, delivered_sequence });
from_row!(Standing { state, read_sequence, sequence });
from_row!(Receipt { read_sequence, delivered_sequence });

/// How a user stands to a conversation; no row for a conversation or a user that never was.
pub(crate) fn standing(conversation: &ConversationId, user: &UserId) -> Query<Standing> {
    sql("SELECT m.state, m.read_sequence, c.sequence FROM chat_member m
         JOIN chat_conversation c ON c.id = m.conversation
         WHERE m.conversation = $1 AND m.user_id = $2")
    .bind(conversation)
    .bind(user)
}

/// How a member stands, or why not: the one place where permission is decided.
pub(crate) async fn permit(
    database: &impl Read,
    conversation: &ConversationId,
    user: &UserId,
) -> Answer<Standing> {
    let standing = database.optional(standing(conversation, user)).await?;
    Ok(match standing {
        Some(standing) if standing.state == State::In => Ok(standing),
        _ => Err(Refusal::NotMember),
    })
}

pub(crate) async fn must_be_in(
    tx: &Transaction,
    conversation: &ConversationId,
    user: &UserId,
) -> Result<Standing, Halt> {
    answer_in(permit(tx, conversation, user).await)
}

fn answer_in<T>(answer: Answer<T>) -> Result<T, Halt> {
    match answer {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(refusal)) => Err(refusal.into()),
        Err(error) => Err(Halt::Failed(error)),
    }
}

/// All who are in a conversation, with what their counts hold for.
pub(crate) async fn versions(
    database: &impl Read,
    conversation: &ConversationId,
) -> Result<Vec<(UserId, u64)>, Error> {
    let list = sql("SELECT user_id, version FROM chat_member WHERE conversation = $1 AND state = 'in'");
    Ok(database.all(list.bind(conversation)).await?)
}

/// All who are in a conversation.
pub(crate) async fn users(database: &impl Read, conversation: &ConversationId) -> Result<Vec<UserId>, Error> {
    let list: Query<(UserId,)> =
        sql("SELECT user_id FROM chat_member WHERE conversation = $1 AND state = 'in' ORDER BY user_id");
    Ok(database.all(list.bind(conversation)).await?.into_iter().map(|(user,)| user).collect())
}

/// The members of a conversation after a user, by id, `limit` at most.
pub(crate) async fn list(
    database: &impl Read,
    conversation: &ConversationId,
    after: &str,
    limit: u16,
) -> Result<Vec<Member>, Error> {
    let list = sql("SELECT user_id, joined_at, read_sequence, delivered_sequence FROM chat_member
                    WHERE conversation = $1 AND state = 'in' AND user_id > $2 ORDER BY user_id LIMIT $3");
    Ok(database.all(list.bind(conversation).bind(after).bind(limit)).await?)
}

/// Everybody who shares a conversation with a user, `limit` at most.
pub(crate) async fn contacts(database: &impl Read, user: &UserId, limit: u16) -> Result<Vec<UserId>, Error> {
    let list: Query<(UserId,)> = sql("SELECT DISTINCT other.user_id FROM chat_member mine
         JOIN chat_member other ON other.conversation = mine.conversation AND other.state = 'in'
         WHERE mine.user_id = $1 AND mine.state = 'in' AND other.user_id <> $1
         ORDER BY other.user_id LIMIT $2");
    Ok(database.all(list.bind(user).bind(limit)).await?.into_iter().map(|(user,)| user).collect())
}

/// The next number, for somebody who is in the conversation, or nobody in particular.
async fn turn_of(
    tx: &Transaction,
    conversation: &ConversationId,
    by: Option<&UserId>,
) -> Result<event::Turn, Halt> {
    let turn = event::next(tx, conversation, Step::Other).await?;
    if let Some(by) = by {
        must_be_in(tx, conversation, by).await?;
    }
    Ok(turn)
}

/// Adds a member; `by` is in the conversation, or nobody in particular.
pub(crate) async fn add(
    database: &Database,
    conversation: &ConversationId,
    user: &UserId,
    by: Option<&UserId>,
) -> Answer<Event> {
    let work = |tx: Transaction| async move {
        let turn = turn_of(&tx, conversation, by).await?;
        match tx.optional(standing(conversation, user)).await? {
            Some(standing) if standing.state == State::In => return Err(Refusal::Taken.into()),
            Some(_) => {}
            None => room_for_one_more(&tx, conversation).await?,
        }
        let join = sql("INSERT INTO chat_member
                 (conversation, user_id, state, joined_at, read_sequence, delivered_sequence, version)
             VALUES ($1, $2, 'in', $3, $4, $4, 1)
             ON CONFLICT (conversation, user_id) DO UPDATE SET state = 'in', joined_at = $3,
                 read_sequence = $4, delivered_sequence = $4, version = chat_member.version + 1");
        tx.execute(join.bind(conversation).bind(user).bind(tx.now()).bind(turn.sequence)).await?;
        outbox::tell_members(&tx, conversation)?;
        let happening = Happening::Joined { user_id: user.clone() };
        event::write(&tx, conversation, turn.sequence, by.unwrap_or(user), &happening).await
    };
    answer(database.write_with(Isolation::Committed, work).await)
}

/// Rows of members who left count too: they are what is bounded.
async fn room_for_one_more(tx: &Transaction, conversation: &ConversationId) -> Result<(), Halt> {
    let count: Query<(u64,)> = sql("SELECT count(*) FROM chat_member WHERE conversation = $1");
    let (count,) = tx.one(count.bind(conversation)).await?;
    if count >= MOST_MEMBERS as u64 {
        return Err(Refusal::TooMany { what: "members", most: MOST_MEMBERS as u64 }.into());
    }
    Ok(())
}

/// Removes a member.
pub(crate) async fn remove(
    database: &Database,
    conversation: &ConversationId,
    user: &UserId,
    by: Option<&UserId>,
) -> Answer<Event> {
    let work = |tx: Transaction| async move {
        let turn = turn_of(&tx, conversation, by).await?;
        let leave = sql("UPDATE chat_member SET state = 'out', version = version + 1
                         WHERE conversation = $1 AND user_id = $2 AND state = 'in'");
        if tx.execute(leave.bind(conversation).bind(user)).await? == 0 {
            return Err(Refusal::NotMember.into());
        }
        outbox::tell_members(&tx, conversation)?;
        let happening = Happening::Left { user_id: user.clone() };
        event::write(&tx, conversation, turn.sequence, by.unwrap_or(user), &happening).await
    };
    answer(database.write_with(Isolation::Committed, work).await)
}

/// Moves a member's pointers, forwards only and never past the last event. Answers with where they are and
/// whether that is news.
pub(crate) async fn progress(
    database: &Database,
    conversation: &ConversationId,
    user: &UserId,
    up_to: u64,
    progress: Progress,
) -> Answer<(Receipt, bool)> {
    let work = |tx: Transaction| async move {
        let standing = must_be_in(&tx, conversation, user).await?;
        let up_to = up_to.min(standing.sequence);
        let advance = match progress {
            Progress::Read => sql("UPDATE chat_member SET read_sequence = $3, version = version + 1,
                     delivered_sequence = CASE WHEN delivered_sequence < $3 THEN $3 ELSE delivered_sequence END
                 WHERE conversation = $1 AND user_id = $2 AND state = 'in' AND read_sequence < $3"),
            Progress::Delivered => sql("UPDATE chat_member SET delivered_sequence = $3
                 WHERE conversation = $1 AND user_id = $2 AND state = 'in' AND delivered_sequence < $3"),
        };
        let news = tx.execute(advance.bind(conversation).bind(user).bind(up_to)).await? > 0;
        if news && progress == Progress::Read {
            outbox::tell_reader(&tx, conversation, user)?;
        }
        let receipt = sql("SELECT read_sequence, delivered_sequence FROM chat_member
                           WHERE conversation = $1 AND user_id = $2");
        Ok((tx.one(receipt.bind(conversation).bind(user)).await?, news))
    };
    answer(database.write_with(Isolation::Committed, work).await)
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::In => "in",
            Self::Out => "out",
        })
    }
}

impl FromStr for State {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "in" => Ok(Self::In),
            "out" => Ok(Self::Out),
            _ => Err(()),
        }
    }
}
