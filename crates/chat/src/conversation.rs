//! Conversations: who opened them, what they are called, how far they have come.

pub(crate) mod block;
pub(crate) mod event;
pub(crate) mod member;
pub(crate) mod message;
pub(crate) mod outbox;

use hob_database::{Database, Keyset, Kind, Page, PageRequest, Query, Read, Transaction, from_row, sql};
use serde::Serialize;
use utoipa::ToSchema;

use self::event::{At, Event, Happening, Step};
use self::member::State;
use crate::Error;
use crate::error::{Answer, Halt, Refusal, answer};
use crate::keys::{ConversationId, UserId};

/// The most members that a conversation may have.
pub(crate) const MOST_MEMBERS: usize = 10_000;
/// The longest title, in bytes.
pub(crate) const LONGEST_TITLE: usize = 200;

/// A conversation.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Conversation {
    #[schema(value_type = String)]
    pub id: ConversationId,
    pub title: String,
    #[schema(value_type = String)]
    pub created_by: UserId,
    #[schema(value_type = String)]
    pub created_at: At,
    /// The last event: the offset of its channel.
    pub sequence: u64,
    /// How many messages were sent.
    pub newest: u64,
    #[schema(value_type = String)]
    pub changed_at: At,
}

from_row!(Conversation { id, title, created_by, created_at, sequence, newest, changed_at });

/// A conversation as one of its members sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    pub id: ConversationId,
    pub title: String,
    pub sequence: u64,
    pub changed_at: At,
}

from_row!(Listed { id, title, sequence, changed_at });

const LATEST_FIRST: Keyset = Keyset::descending(&[("changed_at", Kind::Int), ("id", Kind::Text)]);

/// What a new conversation is to be.
#[derive(Clone, Debug)]
pub struct NewConversation {
    pub id: ConversationId,
    pub title: String,
    pub created_by: UserId,
    /// Besides the one who opens it.
    pub members: Vec<UserId>,
}

/// A conversation by its id.
pub(crate) fn by_id(id: &ConversationId) -> Query<Conversation> {
    sql("SELECT id, title, created_by, created_at, sequence, newest, changed_at FROM chat_conversation WHERE id = $1")
        .bind(id)
}

/// Opens a conversation. Each member's joining is an event in it.
pub(crate) async fn open(database: &Database, new: &NewConversation) -> Answer<Conversation> {
    if let Err(refusal) = title(&new.title) {
        return Ok(Err(refusal));
    }
    if new.members.len() >= MOST_MEMBERS {
        return Ok(Err(Refusal::TooMany { what: "members", most: MOST_MEMBERS as u64 }));
    }
    answer(database.write(|tx| async move { open_in(&tx, new).await }).await)
}

async fn open_in(tx: &Transaction, new: &NewConversation) -> Result<Conversation, Halt> {
    let insert =
        sql("INSERT INTO chat_conversation (id, title, created_by, created_at, sequence, newest, changed_at)
                      VALUES ($1, $2, $3, $4, 0, 0, $4) ON CONFLICT DO NOTHING");
    let insert = insert.bind(&new.id).bind(&new.title).bind(&new.created_by).bind(tx.now());
    if tx.execute(insert).await? == 0 {
        return Err(Refusal::Taken.into());
    }
    let mut members = vec![&new.created_by];
    for user in &new.members {
        if !members.contains(&user) {
            members.push(user);
        }
    }
    let count = members.len() as u64;
    let events = members.iter().zip(1_u64..).map(|(user, sequence)| {
        let payload = serde_json::to_string(&Happening::Joined { user_id: (*user).clone() })?;
        Ok((&new.id, sequence, "joined", &new.created_by, payload, tx.now()))
    });
    let events: Result<Vec<_>, Halt> = events.collect();
    let head = "INSERT INTO chat_event (conversation, sequence, kind, actor, payload, happened_at)";
    tx.insert_all(head, events?, "").await?;
    let rows = members.iter().map(|user| (&new.id, *user, State::In, tx.now(), count, count, 1_u64));
    let head = "INSERT INTO chat_member (conversation, user_id, state, joined_at, read_sequence, delivered_sequence, version)";
    tx.insert_all(head, rows.collect::<Vec<_>>(), "").await?;
    let count = sql("UPDATE chat_conversation SET sequence = $2 WHERE id = $1").bind(&new.id).bind(count);
    tx.execute(count).await?;
    outbox::tell_members(tx, &new.id)?;
    Ok(tx.one(by_id(&new.id)).await?)
}

/// Gives a conversation another title.
pub(crate) async fn rename(
    database: &Database,
    id: &ConversationId,
    by: &UserId,
    new_title: &str,
) -> Answer<Event> {
    if let Err(refusal) = title(new_title) {
        return Ok(Err(refusal));
    }
    let work = |tx: Transaction| async move {
        let turn = event::next(&tx, id, Step::Other).await?;
        member::must_be_in(&tx, id, by).await?;
        let update = sql("UPDATE chat_conversation SET title = $2 WHERE id = $1").bind(id).bind(new_title);
        tx.execute(update).await?;
        let happening = Happening::Renamed { title: new_title.to_owned() };
        event::write(&tx, id, turn.sequence, by, &happening).await
    };
    answer(database.write_with(hob_database::Isolation::Committed, work).await)
}

/// The conversations that a user is in, those that changed last first.
pub(crate) async fn of_user(
    database: &impl Read,
    user: &UserId,
    request: &PageRequest,
) -> Result<Page<Listed>, Error> {
    let list = sql("SELECT id, title, sequence, changed_at FROM chat_conversation
                    WHERE id IN (SELECT conversation FROM chat_member WHERE user_id = $1 AND state = 'in')");
    Ok(database.page(list.bind(user), &LATEST_FIRST, request).await?)
}

/// All conversations, those that changed last first; for operators.
pub(crate) async fn all(database: &impl Read, request: &PageRequest) -> Result<Page<Conversation>, Error> {
    let list = sql("SELECT id, title, created_by, created_at, sequence, newest, changed_at
                    FROM chat_conversation WHERE TRUE");
    Ok(database.page(list, &LATEST_FIRST, request).await?)
}

fn title(title: &str) -> Result<(), Refusal> {
    let bad = |reason: &str| Err(Refusal::Bad { field: "title", reason: reason.to_owned() });
    if title.trim().is_empty() {
        bad("must not be empty")
    } else if title.len() > LONGEST_TITLE || title.chars().any(char::is_control) {
        bad("at most 200 bytes, without control characters")
    } else {
        Ok(())
    }
}
