//! The sockets that were opened or closed on this node a short time ago, and that were not checked since.
//!
//! Redis may lose the last moments without any sign, so each change is checked once, after the node has written its next look
//! into all witness keys. If Redis loses the change later, it also loses that look, and the node notices it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::keys::{SocketId, UserId};

/// The most sockets to check. The oldest are dropped.
const MAX_SOCKETS: usize = 10_000;

/// Changed sockets, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecentSockets(Mutex<VecDeque<RecentSocket>>);

#[derive(Debug)]
struct RecentSocket {
    /// When it is checked for the first time.
    due: Instant,
    user: UserId,
    socket: SocketId,
}

impl RecentSockets {
    /// Adds a socket, to be checked after `delay`.
    pub(crate) fn add(&self, user: &UserId, socket: &SocketId, delay: Duration) {
        let mut sockets = self.0.lock();
        if sockets.len() >= MAX_SOCKETS {
            sockets.pop_front();
        }
        let due = Instant::now() + delay;
        sockets.push_back(RecentSocket { due, user: user.clone(), socket: socket.clone() });
    }

    /// Whether there are sockets to check.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.0.lock().iter().any(|socket| socket.due <= now)
    }

    /// Takes the sockets to check.
    pub(crate) fn take_due(&self, now: Instant) -> Vec<(UserId, SocketId)> {
        let mut sockets = self.0.lock();
        let (due, later): (VecDeque<_>, VecDeque<_>) =
            sockets.drain(..).partition(|socket| socket.due <= now);
        *sockets = later;
        due.into_iter().map(|socket| (socket.user, socket.socket)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_checked_once_after_its_delay() {
        let sockets = RecentSockets::default();
        let (user, socket) = (UserId::new("anna").unwrap(), SocketId::new("s1").unwrap());
        sockets.add(&user, &socket, Duration::from_secs(3600));
        let now = Instant::now();
        assert!(!sockets.is_due(now) && sockets.take_due(now).is_empty());
        let later = now + Duration::from_secs(7200);
        assert!(sockets.is_due(later));
        assert_eq!(sockets.take_due(later), [(user, socket)]);
        assert!(!sockets.is_due(later));
    }

    #[test]
    fn number_of_sockets_is_limited() {
        let sockets = RecentSockets::default();
        let user = UserId::new("anna").unwrap();
        for n in 0..=MAX_SOCKETS {
            sockets.add(&user, &SocketId::new(format!("s{n}")).unwrap(), Duration::ZERO);
        }
        let due = sockets.take_due(Instant::now());
        assert_eq!((due.len(), due[0].1.as_str()), (MAX_SOCKETS, "s1"));
    }
}
