//! Listens to the messages of other nodes on this node's channels. Missing events are read from the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_store::{BusEvent, ChannelFilter};

use super::{BrokerMessage, Channel, Hub};
use crate::conversation::event::Event;
use crate::hub::channel_name::ChannelName;
use crate::hub::transient::typing_of;
use crate::keys::UserId;
use crate::store::typing::TYPING_TTL;

/// The pause before a failed query is retried.
const RETRY_DELAY: Duration = Duration::from_millis(500);

impl Hub {
    /// Listens on a channel while it has subscribers on this node.
    pub(super) async fn listen(self: Arc<Self>, channel: Arc<Channel>) {
        let closed = channel.closed.clone();
        let topic = match &channel.name {
            ChannelName::Conversation(id) => ChannelFilter::channel(self.keys.conversation_channel(id)),
            ChannelName::Feed(user) => ChannelFilter::channel(self.keys.feed_channel(user)),
        };
        let mut listener = self.store.bus().listen(vec![topic]);
        let listening = async {
            // The first event reports the subscription: from now on nothing is missed, and earlier events are in the
            // database. Clients of a feed keep the snapshot that they have.
            listener.next().await;
            self.retry_catch_up(&channel).await;
            loop {
                let event = listener.next().await;
                self.handle_event(&channel, event).await;
            }
        };
        tokio::select! {
            () = listening => {}
            () = closed.cancelled() => {}
        }
    }

    async fn handle_event(&self, channel: &Channel, event: BusEvent) {
        let BusEvent::Message { payload, .. } = event else {
            return match channel.name {
                ChannelName::Conversation(_) => self.retry_catch_up(channel).await,
                ChannelName::Feed(_) => self.refresh(channel),
            };
        };
        let Ok(message) = serde_json::from_slice::<BrokerMessage>(&payload) else {
            tracing::warn!(channel = %channel.name, "malformed pub/sub message ignored");
            return;
        };
        match (message.sequence, message.actor, message.data) {
            (Some(sequence), Some(actor), Some(data)) => {
                let event = Event { sequence, actor, payload: data.get().to_owned() };
                if let Err(error) = self.publish_to_channel(channel, &event).await {
                    tracing::debug!(%error, channel = %channel.name, "failed to deliver a chat event to the clients of this node, retrying");
                    self.retry_catch_up(channel).await;
                }
            }
            (Some(sequence), ..) if channel.note_sequence(sequence) => self.retry_catch_up(channel).await,
            (None, Some(actor), Some(data)) if message.origin != self.origin.as_str() => {
                self.handle_transient(channel, &actor, data.get());
            }
            _ => {}
        }
    }

    fn handle_transient(&self, channel: &Channel, actor: &UserId, data: &str) {
        let delivered = match (&channel.name, typing_of(data)) {
            (ChannelName::Conversation(_), Some((typist, state))) => {
                // Tracked, so that this node can publish when it expires.
                channel.set_typing(&typist, state.then(|| Instant::now() + TYPING_TTL));
                channel.publish_typing(&typist, data)
            }
            _ => channel.publish_transient(actor, data),
        };
        self.count_deliveries(delivered);
    }

    /// Catches up, retrying until the database answers.
    async fn retry_catch_up(&self, channel: &Channel) {
        while let Err(error) = self.catch_up(channel).await {
            if !error.is_reported() {
                tracing::warn!(%error, channel = %channel.name, "failed to read the missed events of a channel, retrying");
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}
