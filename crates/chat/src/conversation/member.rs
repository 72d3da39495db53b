//! Who is in a conversation, and how far each has read.

use std::fmt;
use std::str::FromStr;

use hob_database::{Database, Isolation, Read, Transaction, column, from_row};
use serde::Serialize;
use utoipa::ToSchema;

use crate::conversation::MOST_MEMBERS;
use crate::conversation::event::{self, At, Event, Happening, Step};
use crate::conversation::outbox;
use crate::database::members;
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

/// How a member stands, or why not: the one place where permission is decided.
pub(crate) async fn permit(
    database: &impl Read,
    conversation: &ConversationId,
    user: &UserId,
) -> Answer<Standing> {
    Ok(match members::membership(database, conversation, user).await? {
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
        match members::membership(&tx, conversation, user).await? {
            Some(standing) if standing.state == State::In => return Err(Refusal::Taken.into()),
            Some(_) => {}
            None => room_for_one_more(&tx, conversation).await?,
        }
        members::join(&tx, conversation, user, turn.sequence).await?;
        outbox::tell_members(&tx, conversation)?;
        let happening = Happening::Joined { user_id: user.clone() };
        event::write(&tx, conversation, turn.sequence, by.unwrap_or(user), &happening).await
    };
    answer(database.write_with(Isolation::Committed, work).await)
}

/// Rows of members who left count too: they are what is bounded.
async fn room_for_one_more(tx: &Transaction, conversation: &ConversationId) -> Result<(), Halt> {
    if members::count(tx, conversation).await? >= MOST_MEMBERS as u64 {
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
        if !members::leave(&tx, conversation, user).await? {
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
        let news = members::advance(&tx, conversation, user, up_to, progress).await?;
        if news && progress == Progress::Read {
            outbox::tell_reader(&tx, conversation, user)?;
        }
        Ok((members::receipt(&tx, conversation, user).await?, news))
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
