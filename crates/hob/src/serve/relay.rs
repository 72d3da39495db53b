//! The outbox's relay. One node at a time runs it for all systems, also for those that run elsewhere only.

use std::sync::Arc;

use hob_database::outbox::{Event, Relay, Retention};
use hob_service::{ServiceContext, Task};

use crate::services::Outlets;

pub(crate) fn start(context: &ServiceContext, outlets: Outlets) {
    let (database, outlets) = (context.database.clone(), Arc::new(outlets));
    context.tasks.spawn("outbox relay", move |task: Task| {
        let (relay, outlets) = (Relay::new(&database, Retention::default()), Arc::clone(&outlets));
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
