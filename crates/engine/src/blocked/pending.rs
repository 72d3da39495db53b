//! The side of a blocked command that waits.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{BlockedId, Ticket};
use crate::config::Clock;
use crate::engine::Core;
use crate::reply::Reply;

/// A command that waits for its reply. Dropping it ends the wait: nothing is taken for a client that is gone.
pub(crate) struct Pending {
    core: Arc<Mutex<Core>>,
    id: BlockedId,
    receiver: oneshot::Receiver<Reply>,
    clock: Clock,
    deadline_us: Option<u64>,
    reply_without_wait: Reply,
}

impl Pending {
    /// `None` if another task waits already.
    pub(crate) fn new(core: &Arc<Mutex<Core>>, ticket: Ticket) -> Option<Pending> {
        Some(Pending {
            core: Arc::clone(core),
            id: ticket.id,
            receiver: ticket.receiver.lock().take()?,
            clock: core.lock().settings.clock.clone(),
            deadline_us: ticket.deadline_us,
            reply_without_wait: ticket.reply_without_wait,
        })
    }

    /// Waits for the reply or the timeout. May be cancelled and called again.
    pub(crate) async fn reply(&mut self) -> Reply {
        let timeout = async {
            match self.deadline_us {
                Some(deadline_us) => self.clock.reaches(deadline_us).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            reply = &mut self.receiver => reply.unwrap_or(Reply::NullArray),
            () = timeout => self.end().unwrap_or(Reply::NullArray),
        }
    }

    /// Ends the wait at once, with the reply of a command that may not wait.
    pub(crate) fn reply_without_wait(mut self) -> Reply {
        let reply = std::mem::replace(&mut self.reply_without_wait, Reply::Nothing);
        self.end().unwrap_or(reply)
    }

    /// Ends the wait. Returns the reply if the client was served before.
    fn end(&mut self) -> Option<Reply> {
        self.core.lock().unblock(self.id);
        self.receiver.try_recv().ok()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.receiver.close();
        self.core.lock().unblock(self.id);
    }
}
