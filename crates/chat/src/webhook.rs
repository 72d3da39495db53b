//! Webhooks: requests to the application when messages are sent, edited or deleted, when members miss a message because they are
//! offline, and when users go online or offline.
//!
//! The events are in the outbox. The consumer adds a delivery for each event and webhook, a row, and acknowledges the event in the
//! same transaction. The sender claims deliveries that are due, sends them, and deletes the row when the webhook has
//! accepted it. If a node dies in between, another node sends the delivery again when the claim expires, with the same id. A failed
//! attempt is repeated with growing pauses. After the last attempt, the delivery is a dead letter, which an operator can send again.
//!
//! Every node consumes and sends.

mod config;
mod consumer;
mod notice;
mod presence;
mod sender;

use crate::Chat;

pub(crate) use config::check;
pub use config::{Webhook, WebhookUrl};
pub use notice::NoticeClass;
pub(crate) use notice::{MessageRef, Notice};
pub(crate) use presence::PresenceReports;

impl Chat {
    pub(crate) fn start_webhooks(&self) {
        let tasks = &self.inner.tasks;
        for source in consumer::SOURCES {
            let chat = self.clone();
            tasks.spawn(source.name, move |task| consumer::run(chat.clone(), source, task));
        }
        let chat = self.clone();
        tasks.spawn("chat webhooks", move |task| sender::run(chat.clone(), task));
        let chat = self.clone();
        tasks.spawn("chat presence reports", move |task| presence::run(chat.clone(), task));
    }

    /// Whether a webhook receives one of these.
    fn has_webhook_for(&self, classes: &[NoticeClass]) -> bool {
        self.config().webhooks.values().any(|webhook| webhook.receives(classes))
    }
}

impl Webhook {
    fn receives(&self, classes: &[NoticeClass]) -> bool {
        self.events.iter().any(|class| classes.contains(class))
    }
}
