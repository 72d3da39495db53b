//! The outbox relay. One node at a time runs it for all services, including those that run on other nodes only.

use std::sync::Arc;

use hob_database::outbox::{Event, Relay, Retention};
use hob_service::{ServiceContext, Task};

use crate::services::EventHandlers;

pub(crate) fn start(context: &ServiceContext, handlers: EventHandlers) {
    let (database, handlers) = (context.database.clone(), Arc::new(handlers));
    context.tasks.spawn("outbox relay", move |task: Task| {
        let (relay, handlers) = (Relay::new(&database, Retention::default()), Arc::clone(&handlers));
        async move {
            let publish = |events: Vec<Event>| {
                let (handlers, task) = (Arc::clone(&handlers), task.clone());
                async move {
                    handlers.publish(&events).await?;
                    task.heartbeat();
                    Ok::<_, anyhow::Error>(())
                }
            };
            relay.run(publish, task.stop_requested()).await;
        }
    });
}
