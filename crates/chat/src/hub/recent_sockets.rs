//! The sockets that were opened or closed on this node a short time ago. Redis may lose such a change without any sign, if
//! it lost only the last moments; so each is checked again until it is certain to stay.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::keys::{SocketId, UserId};

/// How long a change is checked. Replicas that are further behind are found by the witness keys.
const KEEP: Duration = Duration::from_secs(60);
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

    /// The sockets to check now.
    pub(crate) fn due(&self, now: Instant) -> Vec<(UserId, SocketId)> {
        let mut sockets = self.0.lock();
        sockets.retain(|socket| now.saturating_duration_since(socket.due) < KEEP);
        let due = sockets.iter().filter(|socket| socket.due <= now);
        due.map(|socket| (socket.user.clone(), socket.socket.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_checked_after_its_delay_and_not_forever() {
        let sockets = RecentSockets::default();
        let (user, socket) = (UserId::new("anna").unwrap(), SocketId::new("s1").unwrap());
        sockets.add(&user, &socket, Duration::from_secs(5));
        let now = Instant::now();
        assert!(sockets.due(now).is_empty());
        assert_eq!(sockets.due(now + Duration::from_secs(6)), [(user, socket)]);
        assert!(sockets.due(now + Duration::from_secs(6) + KEEP).is_empty());
        assert!(sockets.due(now + Duration::from_secs(6)).is_empty(), "it is forgotten");
    }

    #[test]
    fn number_of_sockets_is_limited() {
        let sockets = RecentSockets::default();
        let user = UserId::new("anna").unwrap();
        for n in 0..=MAX_SOCKETS {
            sockets.add(&user, &SocketId::new(format!("s{n}")).unwrap(), Duration::ZERO);
        }
        let due = sockets.due(Instant::now());
        assert_eq!((due.len(), due[0].1.as_str()), (MAX_SOCKETS, "s1"));
    }
}
