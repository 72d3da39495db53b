//! Configuration that may change while it is in use.

use std::sync::Arc;

use tokio::sync::watch;

/// A section as it is now. Clones see the same changes.
#[derive(Clone, Debug)]
pub struct Live<T>(watch::Receiver<Arc<T>>);

/// The other end of a [`Live`].
#[derive(Debug)]
pub struct Replace<T>(watch::Sender<Arc<T>>);

impl<T> Live<T> {
    /// A section, and the means to replace it.
    pub fn new(section: T) -> (Self, Replace<T>) {
        let (sender, receiver) = watch::channel(Arc::new(section));
        (Self(receiver), Replace(sender))
    }

    /// A section that never changes.
    pub fn fixed(section: T) -> Self {
        Self::new(section).0
    }

    pub fn now(&self) -> Arc<T> {
        Arc::clone(&self.0.borrow())
    }

    /// Waits until the section was replaced since this handle last looked here.
    pub async fn changed(&mut self) -> Arc<T> {
        if self.0.changed().await.is_err() {
            // Nobody is left who could change it.
            std::future::pending::<()>().await;
        }
        Arc::clone(&self.0.borrow_and_update())
    }
}

impl<T> Replace<T> {
    pub fn replace(&self, section: T) {
        self.0.send_replace(Arc::new(section));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_reaches_every_clone() {
        let (live, replace) = Live::new(1);
        let mut clone = live.clone();
        replace.replace(2);
        assert_eq!((*live.now(), *clone.changed().await), (2, 2));
    }
}
