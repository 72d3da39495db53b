//! Waits for changes of a topic.

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Changes;
use super::feed::Event;

/// Waits for changes of one topic on any node.
#[derive(Debug)]
pub struct ChangeListener {
    topic: &'static str,
    receiver: Receiver<Event>,
}

impl Changes {
    /// Listens for changes of the topic from now on.
    #[must_use]
    pub fn listen(&self, topic: &'static str) -> ChangeListener {
        ChangeListener { topic, receiver: self.feed().attach(None).receiver }
    }
}

impl ChangeListener {
    /// Waits for a change of the topic, or for a gap in which a change may have been missed; `None` after the last
    /// change. Notifications may be lost, so callers poll as well.
    pub async fn changed(&mut self) -> Option<()> {
        loop {
            match self.receiver.recv().await {
                Ok(event) if event.topic.as_deref().is_some_and(|topic| topic != self.topic) => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return Some(()),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
