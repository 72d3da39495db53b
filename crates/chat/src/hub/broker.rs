//! The broker: messages to the other nodes, and writes to Redis after a change. Both are queued and sent in batches,
//! so that a change does not wait for Redis. If an event cannot be published, its sequence number is published later.

use std::collections::{HashMap, HashSet};

use hob_service::Task;
use hob_store::{Call, FromRedisValue as _, Reply, Store, cmd};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::conversation::event::Event;
use crate::keys::{ConversationId, Incarnation, Keys, UserId};
use crate::session::protocol::raw;

/// The queue's capacity. Beyond it, only the newest sequence number of each conversation is kept.
const QUEUE: usize = 8_192;
const MAX_BATCH: usize = 512;
/// The most conversations whose cache waits to be filled.
const MAX_UNCACHED: usize = 256;
const RETRY_DELAY: std::time::Duration = std::time::Duration::from_millis(500);

/// A message between nodes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BrokerMessage {
    /// The process that sent it and has delivered it to its own subscribers.
    pub(crate) origin: String,
    /// The sequence of an event. Transient messages have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sequence: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<UserId>,
    /// Missing if only the sequence number is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Box<RawValue>>,
}

/// A command for Redis.
enum BrokerJob {
    /// An event of a conversation. If it is lost, its sequence number is published later.
    Event { conversation: ConversationId, sequence: u64, call: Call },
    /// Updates the recent messages of a conversation in the cache. A missing cache is filled from the database.
    Cache { conversation: ConversationId, call: Call },
    /// A command that may be lost.
    Other(Call),
}

/// The queue of messages to the other nodes.
pub(crate) struct Broker {
    keys: Keys,
    origin: String,
    jobs: mpsc::Sender<BrokerJob>,
    queue: tokio::sync::Mutex<mpsc::Receiver<BrokerJob>>,
    /// The conversations whose cache of recent messages is missing.
    uncached: (mpsc::Sender<ConversationId>, tokio::sync::Mutex<mpsc::Receiver<ConversationId>>),
    /// The newest event of each conversation whose events were not published.
    unpublished: Mutex<HashMap<ConversationId, u64>>,
}

impl Broker {
    pub(crate) fn new(keys: &Keys, origin: &Incarnation) -> Self {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (uncached, missing) = mpsc::channel(MAX_UNCACHED);
        Self {
            keys: keys.clone(),
            origin: origin.to_string(),
            jobs,
            queue: queue.into(),
            uncached: (uncached, missing.into()),
            unpublished: Mutex::default(),
        }
    }

    /// Publishes an event to the other nodes.
    pub(crate) fn publish_event(&self, conversation: &ConversationId, event: &Event) {
        let message = self.message(Some(event.sequence), &event.actor, Some(raw(&event.payload)));
        let call = self.publish(self.keys.conversation_channel(conversation), &message);
        let (conversation, sequence) = (conversation.clone(), event.sequence);
        self.send(BrokerJob::Event { conversation, sequence, call });
    }

    /// Publishes to a conversation on the other nodes without storing.
    pub(crate) fn publish_transient(&self, conversation: &ConversationId, actor: &UserId, data: &str) {
        let message = self.message(None, actor, Some(raw(data)));
        self.send(BrokerJob::Other(self.publish(self.keys.conversation_channel(conversation), &message)));
    }

    /// Queues a command that may be lost.
    pub(crate) fn enqueue(&self, call: Call) {
        self.send(BrokerJob::Other(call));
    }

    /// Queues an update of the cache of recent messages.
    pub(crate) fn update_cache(&self, conversation: &ConversationId, call: Call) {
        self.send(BrokerJob::Cache { conversation: conversation.clone(), call });
    }

    /// Waits for conversations whose cache is missing. The next change of a conversation that does not fit finds it missing
    /// again.
    pub(crate) async fn uncached(&self) -> HashSet<ConversationId> {
        let mut conversations = Vec::new();
        self.uncached.1.lock().await.recv_many(&mut conversations, MAX_UNCACHED).await;
        conversations.into_iter().collect()
    }

    /// The call that publishes an update of a user's feed to the other nodes.
    pub(crate) fn feed_call(&self, user: &UserId, data: &str) -> Call {
        let message = self.message(None, user, Some(raw(data)));
        self.publish(self.keys.feed_channel(user), &message)
    }

    fn message(&self, sequence: Option<u64>, actor: &UserId, data: Option<Box<RawValue>>) -> BrokerMessage {
        BrokerMessage { origin: self.origin.clone(), sequence, actor: Some(actor.clone()), data }
    }

    fn publish(&self, channel: String, message: &BrokerMessage) -> Call {
        cmd("PUBLISH").arg(channel).arg(serde_json::to_vec(message).unwrap_or_default()).take().into()
    }

    fn send(&self, job: BrokerJob) {
        if let Err(error) = self.jobs.try_send(job) {
            self.mark_unpublished(error.into_inner());
        }
    }

    fn mark_unpublished(&self, job: BrokerJob) {
        if let BrokerJob::Event { conversation, sequence, .. } = job {
            let mut unpublished = self.unpublished.lock();
            let newest = unpublished.entry(conversation).or_default();
            *newest = sequence.max(*newest);
        }
    }

    /// Sends queued jobs until the task is stopped.
    pub(crate) async fn run(&self, store: &Store, task: &Task) {
        let mut queue = self.queue.lock().await;
        let mut jobs = Vec::new();
        while !task.is_stopping() {
            let unpublished = std::mem::take(&mut *self.unpublished.lock());
            for (conversation, sequence) in unpublished {
                let message = BrokerMessage {
                    origin: self.origin.clone(),
                    sequence: Some(sequence),
                    actor: None,
                    data: None,
                };
                let call = self.publish(self.keys.conversation_channel(&conversation), &message);
                jobs.push(BrokerJob::Event { conversation, sequence, call });
            }
            if jobs.is_empty() {
                tokio::select! {
                    taken = queue.recv_many(&mut jobs, MAX_BATCH) => if taken == 0 { return },
                    () = task.stop_requested() => return,
                }
            }
            if !self.send_batch(store, &mut jobs).await && !task.pause(RETRY_DELAY).await {
                return;
            }
            task.heartbeat();
        }
    }

    /// `false` if Redis did not accept all of them.
    async fn send_batch(&self, store: &Store, jobs: &mut Vec<BrokerJob>) -> bool {
        let call = |job: &BrokerJob| match job {
            BrokerJob::Event { call, .. } | BrokerJob::Cache { call, .. } | BrokerJob::Other(call) => {
                call.clone()
            }
        };
        let calls: Vec<Call> = jobs.iter().map(call).collect();
        let mut all = true;
        for (job, answer) in jobs.drain(..).zip(store.batch(&calls).await) {
            match (answer, job) {
                (Ok(answer), BrokerJob::Cache { conversation, .. }) => {
                    if Reply::from_redis_value(answer).is_ok_and(|reply| reply.word() == "missing") {
                        let _ = self.uncached.0.try_send(conversation);
                    }
                }
                (Ok(_), _) => {}
                (Err(error), job) => {
                    tracing::debug!(%error, "failed to run a Redis command for chat");
                    // A cache that another client has changed is repaired when it is read. It must not delay other events.
                    all &= error.is_foreign_value();
                    self.mark_unpublished(job);
                }
            }
        }
        all
    }
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker").field("origin", &self.origin).finish_non_exhaustive()
    }
}
