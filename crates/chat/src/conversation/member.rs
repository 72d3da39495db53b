//! The members of a conversation, and how far each has read.

use std::borrow::Cow;
use std::collections::BTreeSet;

use hob_database::{Database, Isolation, Read, Transaction, column, from_row};
use serde::Serialize;
use utoipa::ToSchema;

use crate::config::AbsenceMessages;
use crate::conversation::MAX_MEMBERS;
use crate::conversation::event::{self, Event, EventClass, EventPayload, Timestamp};
use crate::conversation::outbox;
use crate::database::members;
use crate::error::{Answer, Refusal, Rollback, into_answer};
use crate::keys::{ConversationId, UserId};

/// Whether a user is a member. Users who left keep their row, so that its version never restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberStatus {
    Joined,
    Left,
}

/// A member of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Member {
    #[schema(value_type = String)]
    pub user_id: UserId,
    #[schema(value_type = String)]
    pub joined_at: Timestamp,
    /// The member has read everything up to this event.
    pub read_sequence: u64,
    /// Everything up to this event has reached a device of the member.
    pub delivered_sequence: u64,
}

/// The relation of a user to a conversation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Membership {
    pub(crate) state: MemberStatus,
    pub(crate) read_sequence: u64,
    /// The sequence of the conversation's last event.
    pub(crate) sequence: u64,
    /// Grows when events that were hidden from the member become visible.
    pub(crate) visibility: u64,
    /// The event with which the member was last added again; 0 if the member never left.
    pub(crate) returned_sequence: u64,
}

impl Membership {
    /// Whether the member does not read what was said in their absence.
    pub(crate) fn hides_absence(&self, absences: AbsenceMessages) -> bool {
        self.returned_sequence > 0 && absences == AbsenceMessages::Hidden
    }

    /// The epoch of the member's positions in the channel. It changes when events before a position become visible, so
    /// that the client reads the history again instead of recovering.
    pub(crate) fn epoch(&self, database: &str) -> String {
        match self.visibility {
            0 => database.to_owned(),
            visibility => format!("{database}.{visibility}"),
        }
    }
}

/// The members of a conversation, and the events with which they changed, newest first.
#[derive(Debug)]
pub(crate) struct Participants {
    pub(crate) now: Vec<UserId>,
    pub(crate) changes: Vec<Event>,
}

impl Participants {
    /// The members right after an event, by id.
    pub(crate) fn at(&self, sequence: u64) -> Cow<'_, [UserId]> {
        if self.changes.first().is_none_or(|change| change.sequence <= sequence) {
            return Cow::Borrowed(&self.now);
        }
        let mut users: BTreeSet<UserId> = self.now.iter().cloned().collect();
        for change in self.changes.iter().take_while(|change| change.sequence > sequence) {
            match change.membership_change() {
                Some(EventPayload::Joined { user_id }) => drop(users.remove(&user_id)),
                Some(EventPayload::Left { user_id }) => drop(users.insert(user_id)),
                _ => {}
            }
        }
        users.into_iter().collect()
    }
}

/// How far a member has received and read, as a client gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    pub read_sequence: u64,
    pub delivered_sequence: u64,
}

/// What a receipt confirms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiptKind {
    Delivered,
    /// Implies delivered.
    Read,
}

column!(MemberStatus as text);
from_row!(Member { user_id, joined_at, read_sequence, delivered_sequence });
from_row!(Membership { state, read_sequence, sequence, visibility, returned_sequence });
from_row!(Receipt { read_sequence, delivered_sequence });

/// The membership of a user, or a refusal. Every permission is checked here.
pub(crate) async fn check_member(
    database: &impl Read,
    conversation: &ConversationId,
    user: &UserId,
) -> Answer<Membership> {
    Ok(match members::membership(database, conversation, user).await? {
        Some(membership) if membership.state == MemberStatus::Joined => Ok(membership),
        _ => Err(Refusal::NotMember),
    })
}

pub(crate) async fn require_member(
    tx: &Transaction,
    conversation: &ConversationId,
    user: &UserId,
) -> Result<Membership, Rollback> {
    or_rollback(check_member(tx, conversation, user).await)
}

fn or_rollback<T>(answer: Answer<T>) -> Result<T, Rollback> {
    match answer {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(refusal)) => Err(refusal.into()),
        Err(error) => Err(Rollback::Failed(error)),
    }
}

/// Takes the next sequence number. `by` must be a member; `None` is the server.
async fn next_sequence(
    tx: &Transaction,
    conversation: &ConversationId,
    by: Option<&UserId>,
) -> Result<event::NextSequence, Rollback> {
    let next = event::next(tx, conversation, EventClass::Other).await?;
    if let Some(by) = by {
        require_member(tx, conversation, by).await?;
    }
    Ok(next)
}

/// Adds a member. `by` must be a member; `None` is the server.
pub(crate) async fn add(
    database: &Database,
    conversation: &ConversationId,
    user: &UserId,
    by: Option<&UserId>,
) -> Answer<Event> {
    let work = |tx: Transaction| async move {
        let next = next_sequence(&tx, conversation, by).await?;
        match members::membership(&tx, conversation, user).await? {
            Some(membership) if membership.state == MemberStatus::Joined => {
                return Err(Refusal::AlreadyExists.into());
            }
            Some(_) => {}
            None => check_member_limit(&tx, conversation).await?,
        }
        members::join(&tx, conversation, user, next.sequence).await?;
        outbox::emit_recount_all(&tx, conversation)?;
        let payload = EventPayload::Joined { user_id: user.clone() };
        event::write(&tx, conversation, next.sequence, by.unwrap_or(user), &payload).await
    };
    into_answer(database.write_with(Isolation::ReadCommitted, work).await)
}

/// Users who left count too, because their rows are limited as well.
async fn check_member_limit(tx: &Transaction, conversation: &ConversationId) -> Result<(), Rollback> {
    if members::count(tx, conversation).await? >= MAX_MEMBERS as u64 {
        return Err(Refusal::LimitExceeded { what: "members", max: MAX_MEMBERS as u64 }.into());
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
        let next = next_sequence(&tx, conversation, by).await?;
        if !members::leave(&tx, conversation, user, next.sequence).await? {
            return Err(Refusal::NotMember.into());
        }
        outbox::emit_recount_all(&tx, conversation)?;
        let payload = EventPayload::Left { user_id: user.clone() };
        event::write(&tx, conversation, next.sequence, by.unwrap_or(user), &payload).await
    };
    into_answer(database.write_with(Isolation::ReadCommitted, work).await)
}

/// Moves a member's pointers forward, but not past the last event. Returns the pointers and whether they changed.
pub(crate) async fn record_receipt(
    database: &Database,
    conversation: &ConversationId,
    user: &UserId,
    up_to: u64,
    kind: ReceiptKind,
) -> Answer<(Receipt, bool)> {
    let work = |tx: Transaction| async move {
        let membership = require_member(&tx, conversation, user).await?;
        let up_to = up_to.min(membership.sequence);
        let changed = members::advance(&tx, conversation, user, up_to, kind).await?;
        if changed && kind == ReceiptKind::Read {
            outbox::emit_recount(&tx, conversation, user)?;
        }
        Ok((members::receipt(&tx, conversation, user).await?, changed))
    };
    into_answer(database.write_with(Isolation::ReadCommitted, work).await)
}

hob_units::names!(MemberStatus { Joined = "in", Left = "out" });
