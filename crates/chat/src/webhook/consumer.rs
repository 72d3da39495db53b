//! Consumes events of the outbox and adds deliveries for them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hob_database::Transaction;
use hob_database::outbox::{self, Consumer, Event, Replay, Start, Topic};
use hob_service::Task;

use super::Notice;
use super::notice::{MessageRef, NoticeClass};
use crate::conversation::outbox::{MESSAGE_CHANGED, MESSAGE_CREATED, MessageCreated, PRESENCE_CHANGED};
use crate::database::{blocks, deliveries};
use crate::keys::{ConversationId, UserId};
use crate::{Chat, Error};

/// Events of one transaction.
const BATCH: u16 = 100;
/// How often the outbox of a SQLite database is polled without a notification.
const POLL_EVERY: Duration = Duration::from_secs(2);
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// More deliveries do not wait at the same time. Further events stay in the outbox.
const MAX_WAITING: u32 = 100_000;
/// Members in one notice. More of them are in further notices.
const MAX_MEMBERS: usize = 1_000;

/// A topic, and which notices come from it.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: &'static str,
    topic: Topic,
    classes: &'static [NoticeClass],
}

pub(super) const SOURCES: &[Source] = &[
    Source {
        name: "chat.webhooks.messages",
        topic: MESSAGE_CREATED,
        classes: &[NoticeClass::Message, NoticeClass::Offline],
    },
    Source { name: "chat.webhooks.changes", topic: MESSAGE_CHANGED, classes: &[NoticeClass::Message] },
    PRESENCE,
];

const PRESENCE: Source =
    Source { name: "chat.webhooks.presence", topic: PRESENCE_CHANGED, classes: &[NoticeClass::Presence] };

/// A notice for the webhooks that receive its class.
struct NewDelivery {
    class: NoticeClass,
    notice: Notice,
    /// The number of its event, and for further notices of the same event their index.
    number: String,
}

pub(super) async fn run(chat: Chat, source: &'static Source, task: Task) {
    let mut consumer = None;
    let mut numbered = outbox::numbered(&chat.inner.database, source.topic);
    loop {
        let consumed = consume(&chat, source, &mut consumer).await;
        task.heartbeat();
        let go_on = match consumed {
            Ok(0) => task.wait(numbered.wait(POLL_EVERY)).await,
            Ok(_) => !task.is_stopping(),
            Err(error) => {
                if !error.is_reported() {
                    tracing::warn!(%error, "failed to read events for webhooks, retrying");
                }
                task.pause(AFTER_FAILURE).await
            }
        };
        if !go_on {
            return;
        }
    }
}

/// Presence is reported when it is consumed, so that no report is too early.
pub(super) async fn open_for_presence(chat: &Chat) -> Result<(), Error> {
    open(chat, &PRESENCE).await.map(drop)
}

/// A new consumer does not get events from before.
async fn open(chat: &Chat, source: &Source) -> Result<Consumer, Error> {
    Ok(Consumer::open(&chat.inner.database, source.name, source.topic, Start::Newest).await?)
}

/// Consumes a batch of events; returns their number.
async fn consume(chat: &Chat, source: &Source, consumer: &mut Option<Consumer>) -> Result<usize, Error> {
    let database = &chat.inner.database;
    if !chat.has_webhook_for(source.classes) {
        return Ok(0);
    }
    let consumer = match consumer {
        Some(consumer) => consumer,
        None => consumer.insert(open(chat, source).await?),
    };
    if deliveries::count_waiting(database, MAX_WAITING).await? >= u64::from(MAX_WAITING) {
        return Ok(0);
    }
    match consumer.next_batch(BATCH).await? {
        Replay::Events(events) => {
            if !events.is_empty() {
                add_deliveries(chat, consumer, &events).await?;
            }
            Ok(events.len())
        }
        Replay::Missed { oldest, newest } => {
            tracing::error!(
                oldest,
                newest,
                "events were deleted before they were read, they are not sent to webhooks"
            );
            consumer.ack(oldest - 1).await?;
            Ok(1)
        }
    }
}

/// Adds the deliveries of some events, unless another node has done it meanwhile.
async fn add_deliveries(chat: &Chat, consumer: &Consumer, events: &[Event]) -> Result<(), Error> {
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(()) };
    let new = &notices(chat, events).await?;
    let webhooks = &chat.config().webhooks;
    let work = |tx: Transaction| async move {
        if !consumer.advance_in(&tx, first.number - 1, last.number).await? {
            return Ok(());
        }
        for NewDelivery { class, notice, number } in new {
            for (name, _) in webhooks.iter().filter(|(_, webhook)| webhook.receives(&[*class])) {
                let id = format!("{name}.{}.{number}", notice.kind());
                deliveries::insert(&tx, &id, name, notice).await?;
            }
        }
        Ok(())
    };
    chat.inner.database.write(work).await
}

async fn notices(chat: &Chat, events: &[Event]) -> Result<Vec<NewDelivery>, Error> {
    let mut new = Vec::new();
    let mut created = BTreeMap::new();
    for event in events {
        let number = event.number.to_string();
        if event.topic == MESSAGE_CREATED.0 {
            let message: MessageCreated = serde_json::from_str(&event.payload)?;
            let notice = Notice::Created(MessageRef::from(&message));
            new.push(NewDelivery { class: NoticeClass::Message, notice, number });
            created.insert(event.number, message);
            continue;
        }
        let notice: Notice = serde_json::from_str(&event.payload)?;
        let class = match notice {
            Notice::UserOnline(_) | Notice::UserOffline(_) => NoticeClass::Presence,
            _ => NoticeClass::Message,
        };
        new.push(NewDelivery { class, notice, number });
    }
    if chat.has_webhook_for(&[NoticeClass::Offline]) {
        new.extend(offline_notices(chat, &created).await?);
    }
    Ok(new)
}

/// Notices of messages whose members are offline. A user is offline or not at the time of this call.
async fn offline_notices(
    chat: &Chat,
    created: &BTreeMap<u64, MessageCreated>,
) -> Result<Vec<NewDelivery>, Error> {
    let mut first: BTreeMap<&ConversationId, u64> = BTreeMap::new();
    for message in created.values() {
        let sequence = first.entry(&message.conversation_id).or_insert(message.sequence);
        *sequence = message.sequence.min(*sequence);
    }
    let mut participants = HashMap::new();
    let mut offline: HashMap<UserId, bool> = HashMap::new();
    for (conversation, sequence) in first {
        let members = chat.participants_since(conversation, sequence).await?;
        let unknown: Vec<UserId> =
            members.now.iter().filter(|user| !offline.contains_key(*user)).cloned().collect();
        let presences = chat.inner.presences.of(&unknown).await?;
        offline.extend(presences.into_iter().map(|presence| (presence.user_id, !presence.online)));
        participants.insert(conversation, members);
    }
    let senders = created.values().map(|message| &message.sender_id);
    let blocked = blocks::involving(&chat.inner.database, senders).await?;
    let mut new = Vec::new();
    for (number, message) in created {
        let Some(members) = participants.get(&message.conversation_id) else { continue };
        let sender = &message.sender_id;
        // Who is not a member any more is not in `offline`.
        let at = members.at(message.sequence);
        let misses = |user: &&UserId| {
            *user != sender && offline.get(*user) == Some(&true) && !blocked.contains(user, sender)
        };
        let users: Vec<UserId> = at.iter().filter(misses).cloned().collect();
        for (index, users) in users.chunks(MAX_MEMBERS).enumerate() {
            let notice = Notice::Offline { message: MessageRef::from(message), user_ids: users.to_vec() };
            let number = if index == 0 { number.to_string() } else { format!("{number}.{index}") };
            new.push(NewDelivery { class: NoticeClass::Offline, notice, number });
        }
    }
    Ok(new)
}
