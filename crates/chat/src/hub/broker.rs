//! What this node tells the others, and writes to the store after a change: queued, in batches, off the path of
//! whoever made the change. A hint that was lost is followed by another once the store is back.

use std::collections::HashMap;

use hob_service::Task;
use hob_store::{Call, Store, cmd};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::conversation::event::Event;
use crate::keys::{ConversationId, Incarnation, Keys, UserId};
use crate::session::protocol::raw;

/// What may wait; beyond it only the newest number of each conversation is remembered.
const QUEUE: usize = 8_192;
const AT_ONCE: usize = 512;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

/// A message between nodes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Letter {
    /// The process that sent it, which has told its own subscribers already.
    pub(crate) origin: String,
    /// Of an event; what has none is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sequence: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<UserId>,
    /// Missing where only the number is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Box<RawValue>>,
}

/// Something to be done at the store.
enum Errand {
    /// An event of a conversation; if it gets lost, its number is told later.
    Event { conversation: ConversationId, sequence: u64, call: Call },
    /// What nobody misses.
    Other(Call),
}

/// The way out of this node.
pub(crate) struct Post {
    keys: Keys,
    origin: String,
    errands: mpsc::Sender<Errand>,
    waiting: tokio::sync::Mutex<mpsc::Receiver<Errand>>,
    /// The last event of conversations whose events were not told.
    untold: Mutex<HashMap<ConversationId, u64>>,
}

impl Post {
    pub(crate) fn new(keys: &Keys, origin: &Incarnation) -> Self {
        let (errands, waiting) = mpsc::channel(QUEUE);
        Self {
            keys: keys.clone(),
            origin: origin.to_string(),
            errands,
            waiting: waiting.into(),
            untold: Mutex::default(),
        }
    }

    /// Tells the other nodes of an event.
    pub(crate) fn event(&self, conversation: &ConversationId, event: &Event) {
        let letter = self.letter(Some(event.sequence), &event.actor, Some(raw(&event.payload)));
        let call = self.publish(self.keys.conversation_channel(conversation), &letter);
        let (conversation, sequence) = (conversation.clone(), event.sequence);
        self.send(Errand::Event { conversation, sequence, call });
    }

    /// Tells the other nodes something about a conversation that is not kept.
    pub(crate) fn whisper(&self, conversation: &ConversationId, actor: &UserId, data: &str) {
        let letter = self.letter(None, actor, Some(raw(data)));
        self.send(Errand::Other(self.publish(self.keys.conversation_channel(conversation), &letter)));
    }

    /// Does something at the store that nobody waits for.
    pub(crate) fn errand(&self, call: Call) {
        self.send(Errand::Other(call));
    }

    /// The call that tells the other nodes something for one user's feed.
    pub(crate) fn feed(&self, user: &UserId, data: &str) -> Call {
        let letter = self.letter(None, user, Some(raw(data)));
        self.publish(self.keys.feed_channel(user), &letter)
    }

    fn letter(&self, sequence: Option<u64>, actor: &UserId, data: Option<Box<RawValue>>) -> Letter {
        Letter { origin: self.origin.clone(), sequence, actor: Some(actor.clone()), data }
    }

    fn publish(&self, channel: String, letter: &Letter) -> Call {
        cmd("PUBLISH").arg(channel).arg(serde_json::to_vec(letter).unwrap_or_default()).take().into()
    }

    fn send(&self, errand: Errand) {
        if let Err(error) = self.errands.try_send(errand) {
            self.missed(error.into_inner());
        }
    }

    fn missed(&self, errand: Errand) {
        if let Errand::Event { conversation, sequence, .. } = errand {
            let mut untold = self.untold.lock();
            let newest = untold.entry(conversation).or_default();
            *newest = sequence.max(*newest);
        }
    }

    /// Does errands until the task is stopped.
    pub(crate) async fn run(&self, store: &Store, task: &Task) {
        let mut waiting = self.waiting.lock().await;
        let mut errands = Vec::new();
        while !task.stopping() {
            let untold = std::mem::take(&mut *self.untold.lock());
            for (conversation, sequence) in untold {
                let actor = None;
                let letter =
                    Letter { origin: self.origin.clone(), sequence: Some(sequence), actor, data: None };
                let call = self.publish(self.keys.conversation_channel(&conversation), &letter);
                errands.push(Errand::Event { conversation, sequence, call });
            }
            if errands.is_empty() {
                tokio::select! {
                    taken = waiting.recv_many(&mut errands, AT_ONCE) => if taken == 0 { return },
                    () = task.stopped() => return,
                }
            }
            if !self.carry(store, &mut errands).await && !task.pause(PAUSE).await {
                return;
            }
            task.beat();
        }
    }

    /// Whether the store took them all.
    async fn carry(&self, store: &Store, errands: &mut Vec<Errand>) -> bool {
        let call = |errand: &Errand| match errand {
            Errand::Event { call, .. } | Errand::Other(call) => call.clone(),
        };
        let calls: Vec<Call> = errands.iter().map(call).collect();
        let mut all = true;
        for (errand, answer) in errands.drain(..).zip(store.batch(&calls).await) {
            if let Err(error) = answer {
                tracing::debug!(%error, "an errand was not done");
                all = false;
                self.missed(errand);
            }
        }
        all
    }
}

impl std::fmt::Debug for Post {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Post").field("origin", &self.origin).finish_non_exhaustive()
    }
}
