//! `chat_message`: the messages of a conversation.

use std::collections::{HashMap, HashSet};

use hob_database::{Keyset, Page, PageRequest, PerDialect, Query, Read, Transaction, ValueKind, sql};

use crate::Error;
use crate::conversation::message::{Message, MessageRange};
use crate::conversation::search::SearchQuery;
use crate::keys::{ConversationId, UserId};

const NEWEST_FIRST: Keyset = Keyset::descending(&[("x.sent_at", ValueKind::Int), ("x.id", ValueKind::Text)]);

macro_rules! columns {
    () => {
        "x.id, x.content, x.sender AS sender_id, x.sent_at AS timestamp, x.conversation AS conversation_id, x.number,
         x.sequence, x.client_id, x.edited_at, x.deleted, x.reply_to, x.thread AS thread_id, x.mentions, x.attachments "
    };
}

macro_rules! select {
    ($rest:expr) => {
        sql(concat!("SELECT ", columns!(), "FROM chat_message x ", $rest))
    };
}

/// The message is not in an absence of this member.
macro_rules! present {
    ($absent:literal) => {
        concat!(
            "NOT EXISTS (SELECT 1 FROM chat_absence a WHERE a.conversation = x.conversation AND a.user_id = ",
            $absent,
            " AND x.sequence > a.left_sequence AND x.sequence < a.returned_sequence) "
        )
    };
}

/// No block hides the sender from this user.
macro_rules! not_blocked {
    ($viewer:literal) => {
        concat!(
            "NOT EXISTS (SELECT 1 FROM chat_block b WHERE (b.blocker = ",
            $viewer,
            " AND b.blocked = x.sender) OR (b.blocker = x.sender AND b.blocked = ",
            $viewer,
            ")) "
        )
    };
}

/// Inserts messages. `false` if one of them was not inserted, because another message has its client id.
pub(crate) async fn insert_all(tx: &Transaction, messages: &[&Message]) -> Result<bool, Error> {
    let row = |message: &&Message| {
        let Message {
            id,
            content,
            sender_id,
            timestamp,
            conversation_id,
            number,
            sequence,
            client_id,
            reply_to,
            thread_id,
            mentions,
            attachments,
            ..
        } = (*message).clone();
        let sent = (conversation_id, sequence, number, id, sender_id, client_id, content, timestamp, false);
        let (conversation, sequence, number, id, sender, client_id, content, sent_at, deleted) = sent;
        (
            conversation,
            sequence,
            number,
            id,
            sender,
            client_id,
            content,
            sent_at,
            deleted,
            reply_to,
            thread_id,
            mentions,
            attachments,
        )
    };
    let head = "INSERT INTO chat_message
                    (conversation, sequence, number, id, sender, client_id, content, sent_at, deleted, reply_to, thread,
                     mentions, attachments)";
    let rows: Vec<_> = messages.iter().map(row).collect();
    Ok(tx.insert_all(head, rows, "ON CONFLICT DO NOTHING").await? == messages.len() as u64)
}

pub(crate) async fn by_client_id(
    database: &impl Read,
    conversation: &ConversationId,
    sender: &UserId,
    client_id: &str,
) -> Result<Option<Message>, Error> {
    let query = select!("WHERE x.conversation = $1 AND x.sender = $2 AND x.client_id = $3");
    Ok(database.optional(query.bind(conversation).bind(sender).bind(client_id)).await?)
}

pub(crate) async fn get(database: &impl Read, id: &str) -> Result<Option<Message>, Error> {
    Ok(database.optional(select!("WHERE x.id = $1").bind(id)).await?)
}

/// A message of a conversation that is not deleted, if no block hides its sender from the viewer, and it is not in the
/// absence of this member.
pub(crate) async fn readable(
    database: &impl Read,
    conversation: &ConversationId,
    id: &str,
    viewer: Option<&UserId>,
    absent: Option<&UserId>,
) -> Result<Option<Message>, Error> {
    let query = select!(concat!(
        "WHERE x.id = $1 AND x.conversation = $2 AND x.deleted = FALSE AND ",
        not_blocked!("$3"),
        "AND ",
        present!("$4")
    ));
    Ok(database.optional(query.bind(id).bind(conversation).bind(viewer).bind(absent)).await?)
}

/// The threads to which replies to these messages belong, by the id of the message. Deleted messages have none.
pub(crate) async fn threads(
    tx: &Transaction,
    conversation: &ConversationId,
    ids: &HashSet<&str>,
) -> Result<HashMap<String, String>, Error> {
    let threads: Query<(String, String)> = sql("SELECT id, COALESCE(thread, id) FROM chat_message
         WHERE conversation = $1 AND deleted = FALSE AND id IN ($2...)");
    Ok(tx.all(threads.bind(conversation).bind_list(ids.iter().copied())).await?.into_iter().collect())
}

pub(crate) async fn set_content(tx: &Transaction, id: &str, content: &str) -> Result<(), Error> {
    let update = sql("UPDATE chat_message SET content = $2, edited_at = $3 WHERE id = $1");
    Ok(tx.execute(update.bind(id).bind(content).bind(tx.now())).await.map(drop)?)
}

/// Marks a message as deleted and erases its content.
pub(crate) async fn erase(tx: &Transaction, id: &str) -> Result<(), Error> {
    let update = sql("UPDATE chat_message SET content = '', mentions = '', attachments = '', deleted = TRUE
                      WHERE id = $1");
    Ok(tx.execute(update.bind(id)).await.map(drop)?)
}

/// A page of messages that are not deleted, in the order of their sequence, without those in the absence of this member.
pub(crate) async fn page(
    database: &impl Read,
    conversation: &ConversationId,
    from: MessageRange,
    limit: u16,
    absent: Option<&UserId>,
) -> Result<Vec<Message>, Error> {
    macro_rules! page {
        ($compare:literal, $order:literal) => {
            select!(concat!(
                "WHERE x.conversation = $1 AND x.sequence ",
                $compare,
                " $2 AND x.deleted = FALSE AND ",
                present!("$4"),
                "ORDER BY x.sequence ",
                $order,
                " LIMIT $3"
            ))
        };
    }
    let (bound, query): (u64, Query<Message>) = match from {
        MessageRange::After(sequence) => (sequence, page!(">", "ASC")),
        MessageRange::Before(sequence) => (sequence, page!("<", "DESC")),
        MessageRange::Newest => (i64::MAX as u64, page!("<", "DESC")),
    };
    let query = query.bind(conversation).bind(bound).bind(limit).bind(absent);
    let mut messages = database.all(query).await?;
    if !matches!(from, MessageRange::After(_)) {
        messages.reverse();
    }
    Ok(messages)
}

/// The replies of a thread after a sequence that the viewer can read, in order.
pub(crate) async fn replies(
    database: &impl Read,
    (conversation, thread): (&ConversationId, &str),
    after: u64,
    limit: u16,
    viewer: Option<&UserId>,
    absent: Option<&UserId>,
) -> Result<Vec<Message>, Error> {
    let replies = select!(concat!(
        "WHERE x.conversation = $1 AND x.thread = $2 AND x.sequence > $3 AND x.deleted = FALSE AND ",
        not_blocked!("$5"),
        "AND ",
        present!("$6"),
        "ORDER BY x.sequence LIMIT $4"
    ));
    let replies = replies.bind(conversation).bind(thread).bind(after).bind(limit).bind(viewer).bind(absent);
    Ok(database.all(replies).await?)
}

/// How many replies the viewer can read in the threads of these messages.
pub(crate) async fn count_replies(
    database: &impl Read,
    conversation: &ConversationId,
    viewer: Option<&UserId>,
    absent: Option<&UserId>,
    threads: impl Iterator<Item = &str>,
) -> Result<HashMap<String, u64>, Error> {
    let counts: Query<(String, u64)> = sql(concat!(
        "SELECT x.thread, count(*) FROM chat_message x WHERE x.conversation = $1 AND x.deleted = FALSE AND ",
        not_blocked!("$2"),
        "AND ",
        present!("$3"),
        "AND x.thread IN ($4...) GROUP BY x.thread"
    ));
    let counts = counts.bind(conversation).bind(viewer).bind(absent).bind_list(threads);
    Ok(database.all(counts).await?.into_iter().collect())
}

/// The messages that mention a member and that the member can read, newest first; all, or those that are not read.
pub(crate) async fn mentioning(
    database: &impl Read,
    user: &UserId,
    absent: Option<&UserId>,
    unread_only: bool,
    request: &PageRequest,
) -> Result<Page<Message>, Error> {
    let list = sql(concat!(
        "SELECT x.sent_at, ",
        columns!(),
        "FROM chat_mention n
         JOIN chat_member m ON m.conversation = n.conversation AND m.user_id = n.user_id AND m.state = 'in'
         JOIN chat_message x ON x.conversation = n.conversation AND x.sequence = n.sequence
         WHERE n.user_id = $1 AND ($3 = FALSE OR n.sequence > m.read_sequence) AND ",
        not_blocked!("$1"),
        "AND ",
        present!("$2")
    ));
    let list = list.bind(user).bind(absent).bind(unread_only);
    Ok(database.page(list, &NEWEST_FIRST, request).await?)
}

/// The messages with these words that a member can read, newest first; in all conversations of the member, or in one.
pub(crate) async fn search(
    database: &impl Read,
    user: &UserId,
    absent: Option<&UserId>,
    conversation: Option<&ConversationId>,
    query: &SearchQuery,
    request: &PageRequest,
) -> Result<Page<Message>, Error> {
    macro_rules! search {
        ($from:literal, $words:literal) => {
            concat!(
                "SELECT x.sent_at, ",
                columns!(),
                "FROM ",
                $from,
                " WHERE ",
                $words,
                " AND x.deleted = FALSE AND ($5 IS NULL OR x.conversation = $5) AND EXISTS (
                     SELECT 1 FROM chat_member m
                     WHERE m.conversation = x.conversation AND m.user_id = $3 AND m.state = 'in') AND ",
                not_blocked!("$3"),
                "AND ",
                present!("$4")
            )
        };
    }
    let search = PerDialect {
        sqlite: search!(
            "chat_search s JOIN chat_message x ON x.id = s.id",
            "chat_search MATCH $1 AND $2 <> ''"
        ),
        postgres: search!("chat_message x", "$1 <> '' AND x.search @@ to_tsquery('simple', $2)"),
    };
    let search =
        sql(search).bind(query.fts5()).bind(query.tsquery()).bind(user).bind(absent).bind(conversation);
    Ok(database.page(search, &NEWEST_FIRST, request).await?)
}

/// Messages of a user in a conversation, including deleted ones, in order.
pub(crate) async fn of_sender(
    database: &impl Read,
    conversation: &ConversationId,
    sender: &UserId,
    limit: u16,
) -> Result<Vec<Message>, Error> {
    let list = select!("WHERE x.conversation = $1 AND x.sender = $2 ORDER BY x.sequence LIMIT $3");
    Ok(database.all(list.bind(conversation).bind(sender).bind(limit)).await?)
}

/// The message that came with an event.
pub(crate) async fn at(
    database: &impl Read,
    conversation: &ConversationId,
    sequence: u64,
) -> Result<Option<Message>, Error> {
    let query = select!("WHERE x.conversation = $1 AND x.sequence = $2");
    Ok(database.optional(query.bind(conversation).bind(sequence)).await?)
}

/// Replaces the sender of a message and the id that the sender chose.
pub(crate) async fn set_sender(tx: &Transaction, message: &Message) -> Result<(), Error> {
    let update = sql("UPDATE chat_message SET sender = $2, client_id = $3 WHERE id = $1");
    let update = update.bind(&message.id).bind(&message.sender_id).bind(message.client_id.as_deref());
    Ok(tx.execute(update).await.map(drop)?)
}

/// Messages of a user in a conversation after a sequence that are not deleted, in order.
pub(crate) async fn of_sender_after(
    database: &impl Read,
    conversation: &ConversationId,
    sender: &UserId,
    after: u64,
    limit: u16,
) -> Result<Vec<Message>, Error> {
    let list = select!(
        "WHERE x.conversation = $1 AND x.sender = $2 AND x.sequence > $3 AND x.deleted = FALSE
         ORDER BY x.sequence LIMIT $4"
    );
    Ok(database.all(list.bind(conversation).bind(sender).bind(after).bind(limit)).await?)
}
