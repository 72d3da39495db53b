//! What other nodes tell of this node's channels. A number that is missing is looked up in the database.

use std::sync::Arc;
use std::time::Duration;

use hob_store::{BusEvent, Topic};

use super::{Hub, Letter, Room};
use crate::conversation::event::Event;
use crate::hub::channel_name::Channel;
use crate::keys::UserId;

/// Before the bus, or the database, are asked again.
const PAUSE: Duration = Duration::from_millis(500);

impl Hub {
    /// Listens to what other nodes tell of a channel, for as long as it has subscribers here.
    pub(super) async fn listen(self: Arc<Self>, room: Arc<Room>) {
        let closed = room.closed.clone();
        let topic = match &room.channel {
            Channel::Conversation(id) => Topic::channel(self.keys.conversation_channel(id)),
            Channel::Feed(user) => Topic::channel(self.keys.feed_channel(user)),
        };
        let listening = async {
            loop {
                match self.store.bus().subscribe(std::slice::from_ref(&topic)).await {
                    Ok(mut subscription) => {
                        // From now on nothing is missed; what was before is in the database.
                        self.retry_catch_up(&room).await;
                        while let Some(event) = subscription.next().await {
                            self.hear(&room, event).await;
                        }
                        return;
                    }
                    Err(error) => {
                        tracing::debug!(%error, channel = %room.channel, "cannot listen yet");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = listening => {}
            () = closed.cancelled() => {}
        }
    }

    async fn hear(&self, room: &Room, event: BusEvent) {
        let BusEvent::Message { payload, .. } = event else {
            return match room.channel {
                Channel::Conversation(_) => self.retry_catch_up(room).await,
                Channel::Feed(_) => self.refresh(room),
            };
        };
        let Ok(letter) = serde_json::from_slice::<Letter>(&payload) else {
            tracing::warn!(channel = %room.channel, "a message on the bus cannot be read");
            return;
        };
        match (letter.sequence, letter.actor, letter.data) {
            (Some(sequence), Some(actor), Some(data)) => {
                let event = Event { sequence, actor, payload: data.get().to_owned() };
                if let Err(error) = self.tell_room(room, &event).await {
                    tracing::debug!(%error, "an event waits");
                    self.retry_catch_up(room).await;
                }
            }
            (Some(sequence), ..) if room.hear_of(sequence) => self.retry_catch_up(room).await,
            (None, Some(actor), Some(data)) if letter.origin != self.origin.as_str() => {
                self.hear_whisper(room, &actor, data.get());
            }
            _ => {}
        }
    }

    fn hear_whisper(&self, room: &Room, actor: &UserId, data: &str) {
        if let Channel::Conversation(_) = &room.channel {
            crate::hub::transient::note(room, data);
        }
        self.count_deliveries(room.whisper(actor, data));
    }

    /// Catches up however long the database take.
    async fn retry_catch_up(&self, room: &Room) {
        while let Err(error) = self.catch_up(room).await {
            tracing::warn!(%error, channel = %room.channel, "cannot catch up yet");
            tokio::time::sleep(PAUSE).await;
        }
    }
}
