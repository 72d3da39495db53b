//! Configuration that can be reloaded.

use std::sync::Arc;

use tokio::sync::watch;

/// The current value of a section. Clones see the same changes.
#[derive(Clone, Debug)]
pub struct Live<T>(watch::Receiver<Arc<T>>);

/// Replaces the value of a [`Live`].
#[derive(Debug)]
pub struct LiveSender<T>(watch::Sender<Arc<T>>);

impl<T> Live<T> {
    /// Makes a value and the handle that replaces it.
    pub fn new(section: T) -> (Self, LiveSender<T>) {
        let (sender, receiver) = watch::channel(Arc::new(section));
        (Self(receiver), LiveSender(sender))
    }

    /// A value that never changes.
    pub fn fixed(section: T) -> Self {
        Self::new(section).0
    }

    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.0.borrow())
    }

    /// Waits until the value is replaced, and returns the new value. Returns at once if there was a replacement that this
    /// handle's `changed` has not returned yet. A clone starts from the state of its original. Reading the value with
    /// `current` changes nothing about this.
    pub async fn changed(&mut self) -> Arc<T> {
        if self.0.changed().await.is_err() {
            // The other end was dropped, so the value cannot change any more.
            std::future::pending::<()>().await;
        }
        Arc::clone(&self.0.borrow_and_update())
    }
}

impl<T> LiveSender<T> {
    pub fn replace(&self, section: T) {
        self.0.send_replace(Arc::new(section));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn change_reaches_every_clone() {
        let (live, sender) = Live::new(1);
        let mut clone = live.clone();
        sender.replace(2);
        assert_eq!((*live.current(), *clone.changed().await), (2, 2));
    }
}
