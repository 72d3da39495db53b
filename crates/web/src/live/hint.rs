//! Waiting for the word that there is something new of a topic.

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Changes;
use super::feed::Event;

/// Hears when changes tell of one topic, on whatever node.
#[derive(Debug)]
pub struct Hint {
    topic: &'static str,
    news: Receiver<Event>,
}

impl Changes {
    /// Hears from now on when somebody tells of the topic.
    #[must_use]
    pub fn hint(&self, topic: &'static str) -> Hint {
        Hint { topic, news: self.feed().attach(None).news }
    }
}

impl Hint {
    /// Waits until somebody tells of the topic, or until something was missed that may have been that; `None` when
    /// nobody will tell any more. Hints may get lost with the bus: who waits for one looks now and then without.
    pub async fn heard(&mut self) -> Option<()> {
        loop {
            match self.news.recv().await {
                Ok(event) if event.topic.as_deref().is_some_and(|topic| topic != self.topic) => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return Some(()),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
