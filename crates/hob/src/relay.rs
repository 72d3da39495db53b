//! The outbox's relay. One node at a time runs it for all systems, also for those that run elsewhere only.

use std::sync::Arc;

use hob_house::{House, Task};
use hob_records::outbox::{Event, Relay, Retention};

use crate::services::Outlets;

pub(crate) fn start(house: &House, outlets: Outlets) {
    let (records, outlets) = (house.records.clone(), Arc::new(outlets));
    house.tasks.spawn("outbox relay", move |task: Task| {
        let (relay, outlets) = (Relay::new(&records, Retention::default()), Arc::clone(&outlets));
        async move {
            let publish = |events: Vec<Event>| {
                let (outlets, task) = (Arc::clone(&outlets), task.clone());
                async move {
                    outlets.publish(&events).await?;
                    task.beat();
                    Ok::<_, anyhow::Error>(())
                }
            };
            relay.run(publish, task.stopped()).await;
        }
    });
}
