//! Sending messages. Sends that wait at the same time share one transaction, because a commit costs more than a message.
//!
//! One transaction runs at a time, and its messages are delivered in the order of their numbers before the next one begins.
//! A message that the group cannot send is sent alone afterwards, so that its sender gets the answer to it.

use hob_database::Error as DatabaseError;
use hob_store::limit::Decision;
use hob_trace::{SpanKind, SpanRecord, attribute};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Chat, Inner};
use crate::Error;
use crate::conversation::attachment::AttachmentUrls;
use crate::conversation::event::Event;
use crate::conversation::group;
use crate::conversation::message::{self, Message, NewMessage, SentMessage};
use crate::error::{Answer, Refusal};
use crate::store::recent::CacheUpdate;

/// The most messages in one transaction.
const MAX_GROUP: usize = 64;

/// The sends that wait for a transaction.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    waiting: Mutex<Vec<WaitingSend>>,
    /// Held by the task that runs the transaction.
    sending: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct WaitingSend {
    new: NewMessage,
    answer: oneshot::Sender<Answer<SentMessage>>,
}

impl SendQueue {
    /// Takes the oldest sends.
    fn take(&self) -> Vec<WaitingSend> {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(MAX_GROUP);
        waiting.drain(..count).collect()
    }
}

impl Chat {
    /// Sends a message. It is in the database when this returns `Ok(Ok(…))`.
    pub async fn send(&self, new: &NewMessage) -> Answer<Message> {
        Ok(self.send_once(new).await?.map(SentMessage::into_message))
    }

    /// Sends a message, and says whether an earlier call has already sent it.
    pub async fn send_once(&self, new: &NewMessage) -> Answer<SentMessage> {
        let mut span = self.inner.tracer.span(SpanKind::Producer, hob_trace::current());
        let answer = self.send_or_find(new).await;
        span.describe(|record| describe(record, new, &answer));
        answer
    }

    async fn send_or_find(&self, new: &NewMessage) -> Answer<SentMessage> {
        if let Err(refusal) = message::check_new(new, self.attachment_urls()) {
            return Ok(Err(refusal));
        }
        // A repeated send is not counted and takes no lock.
        if let Some(message) = message::find_sent(&self.inner.database, new).await? {
            return Ok(Ok(SentMessage::Repeated(message)));
        }
        if let Decision::Denied { retry_after, .. } = self.check_message_rate(&new.sender, 1).await {
            return Ok(Err(Refusal::RateLimited { retry_after }));
        }
        let (answer, answered) = oneshot::channel();
        self.inner.sends.waiting.lock().push(WaitingSend { new: new.clone(), answer });
        // A task, because the caller may be cancelled, and the group contains the messages of others.
        let chat = self.clone();
        tokio::spawn(async move { chat.send_group().await });
        match answered.await {
            Ok(answer) => answer,
            // The task has panicked, or the process is ending.
            Err(_) => Err(DatabaseError::Uncertain { source: None }.into()),
        }
    }

    fn attachment_urls(&self) -> AttachmentUrls {
        if self.config().http_attachments { AttachmentUrls::HttpsAndHttp } else { AttachmentUrls::Https }
    }

    /// Sends the messages that wait, if another task has not sent them meanwhile.
    async fn send_group(&self) {
        let _one_at_a_time = self.inner.sends.sending.lock().await;
        let mut group = self.inner.sends.take();
        if group.len() > 1 {
            group = self.send_together(group).await;
        }
        for WaitingSend { new, answer } in group {
            // The caller may be gone.
            let _ = answer.send(self.send_alone(&new).await);
        }
    }

    /// Sends messages in one transaction. Returns those that were not sent and not answered.
    async fn send_together(&self, group: Vec<WaitingSend>) -> Vec<WaitingSend> {
        let _locks = self.lock_conversations(group.iter().map(|waiting| &waiting.new.conversation)).await;
        let all: Vec<&NewMessage> = group.iter().map(|waiting| &waiting.new).collect();
        let mut not_sent = Vec::new();
        match group::send(&self.inner.database, &all).await {
            Ok(all) => {
                for (waiting, sent) in group.into_iter().zip(all) {
                    let Some((message, event)) = sent else {
                        not_sent.push(waiting);
                        continue;
                    };
                    self.deliver(&message, &event).await;
                    let _ = waiting.answer.send(Ok(Ok(SentMessage::New(message))));
                }
            }
            Err(error) => {
                for waiting in group {
                    match repeated(&error) {
                        Some(error) => _ = waiting.answer.send(Err(error)),
                        None => not_sent.push(waiting),
                    }
                }
            }
        }
        not_sent
    }

    async fn send_alone(&self, new: &NewMessage) -> Answer<SentMessage> {
        let _lock = self.lock_conversation(&new.conversation).await;
        let (message, event) = match message::send(&self.inner.database, new).await? {
            Ok(sent) => sent,
            Err(Refusal::AlreadyExists) => {
                let before = message::find_sent(&self.inner.database, new).await?;
                return Ok(before.map(SentMessage::Repeated).ok_or(Refusal::AlreadyExists));
            }
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.deliver(&message, &event).await;
        Ok(Ok(SentMessage::New(message)))
    }

    /// Delivers a message that is in the database. The caller holds the lock of the conversation.
    async fn deliver(&self, message: &Message, event: &Event) {
        let Inner { hub, .. } = &*self.inner;
        hub.count_message();
        self.stop_typing(&message.conversation_id, &message.sender_id).await;
        self.publish(&message.conversation_id, event, CacheUpdate::Append(message)).await;
    }
}

fn describe(record: &mut SpanRecord, new: &NewMessage, answer: &Answer<SentMessage>) {
    record.set_name("send message");
    record.set(attribute::MESSAGING_SYSTEM, "hob");
    record.set(attribute::MESSAGING_OPERATION_NAME, "send");
    record.set(attribute::MESSAGING_OPERATION_TYPE, "send");
    record.set(attribute::MESSAGING_DESTINATION_NAME, new.conversation.as_str());
    match answer {
        Ok(Ok(SentMessage::New(message) | SentMessage::Repeated(message))) => {
            record.set(attribute::MESSAGING_MESSAGE_ID, message.id.as_str());
        }
        Ok(Err(refusal)) => record.fail("refused", refusal.to_string()),
        Err(error) => record.fail("unavailable", error.to_string()),
    }
}

/// The error of a group, for another of its messages. `None` if the cause may be one of the messages.
fn repeated(error: &Error) -> Option<Error> {
    match error {
        Error::Database(DatabaseError::Unavailable { .. }) => {
            Some(DatabaseError::Unavailable { source: None }.into())
        }
        Error::Database(DatabaseError::Uncertain { .. }) => {
            Some(DatabaseError::Uncertain { source: None }.into())
        }
        _ => None,
    }
}
