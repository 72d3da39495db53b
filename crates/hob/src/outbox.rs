//! The relay of the outbox: gives every system the events of its topics, on one node at a time.

use hob_chat::Chat;
use hob_house::{House, Task};
use hob_records::outbox::{Event, Relay, Retention};

/// Those who do something with events.
#[derive(Clone, Default)]
pub(crate) struct Readers {
    pub(crate) chat: Option<Chat>,
}

impl Readers {
    /// Relays in the background until the house is left.
    pub(crate) fn start(self, house: &House) {
        let records = house.records.clone();
        house.tasks.spawn("outbox", move |task: Task| {
            let (readers, records) = (self.clone(), records.clone());
            async move {
                let publish = |events: Vec<Event>| {
                    task.beat();
                    let readers = readers.clone();
                    async move { readers.read(&events).await }
                };
                Relay::new(&records, Retention::default()).run(publish, task.stopped()).await;
            }
        });
    }

    async fn read(&self, events: &[Event]) -> Result<(), hob_chat::Error> {
        match &self.chat {
            Some(chat) => chat.relay(events).await,
            None => Ok(()),
        }
    }
}
