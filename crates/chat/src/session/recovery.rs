//! Recovery of subscriptions that missed more events than fit into one reply.

use std::sync::Arc;

use hob_database::Database;

use super::Session;
use super::protocol::{Publication, Push, Reply};
use crate::Error;
use crate::conversation::event::Event;
use crate::database::events;
use crate::hub::{Activation, Channel};
use crate::keys::ConversationId;

/// How many events are read at a time for a client that recovers.
const RECOVERY_BATCH: u16 = 100;

/// A subscription that missed more events than fit into the first reply. The rest is sent as fast as the client reads
/// it.
pub(super) struct Recovery {
    pub(super) channel: Arc<Channel>,
    pub(super) conversation: ConversationId,
    /// The last event that was sent.
    pub(super) since: u64,
}

impl Session {
    pub(crate) fn is_recovering(&self) -> bool {
        !self.recoveries.is_empty()
    }

    /// Sends more of the missed events to clients that recover, when they have read the earlier ones.
    pub(crate) async fn catch_up(&mut self) -> Result<(), Error> {
        let Some(client) = self.client.clone() else { return Ok(()) };
        while let Some(recovery) = self.recoveries.last_mut()
            && client.queue.is_idle()
        {
            let name = &recovery.channel.name;
            let all = |_, missed: Vec<Publication>| {
                missed.into_iter().map(|missed| Push::publication(name, missed).into()).collect()
            };
            match recovery.channel.activate(&client, Some(recovery.since), all) {
                Activation::NeedsHistory => {
                    let database = &self.chat.inner.database;
                    let Recovery { channel, conversation, since } = &*recovery;
                    let events = delivered_after(database, channel, conversation, *since).await?;
                    recovery.since = events.last().map_or(recovery.since, |event| event.sequence);
                    for event in events.iter().filter(|event| !client.hides(&event.actor)) {
                        let push = Push::publication(name, Publication::from(event));
                        client.queue.reply(&Reply::from(push));
                    }
                }
                // The subscription is active, or was removed in the meantime.
                _ => drop(self.recoveries.pop()),
            }
        }
        Ok(())
    }
}

/// A batch of events after a sequence, up to the channel's position. Later events reach all subscribers as pushes.
pub(super) async fn delivered_after(
    database: &Database,
    channel: &Channel,
    conversation: &ConversationId,
    after: u64,
) -> Result<Vec<Event>, Error> {
    let delivered = channel.position().unwrap_or(0);
    let mut events = events::after(database, conversation, after, RECOVERY_BATCH, None).await?;
    events.retain(|event| event.sequence <= delivered);
    Ok(events)
}
