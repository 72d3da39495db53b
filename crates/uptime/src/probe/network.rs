//! Whether the network of this node works. While it does not, failed checks do not count.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::monitor::check::{FailureClass, Observation};

/// How long a result is reused, so that many failing checks test the network once.
const MAX_AGE: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// An address outside this network. Nothing is sent: connecting a UDP socket only looks up a route.
const FAR_AWAY: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

#[derive(Debug, Default)]
pub(crate) struct LocalNetwork {
    seen: Mutex<Option<(Instant, NetworkHealth)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkHealth {
    Up,
    Down,
}

impl LocalNetwork {
    /// Connects to the targets, or looks up a route if there are none.
    pub(crate) async fn health(&self, targets: &[String]) -> NetworkHealth {
        let mut seen = self.seen.lock().await;
        if let Some((at, health)) = *seen
            && at.elapsed() < MAX_AGE
        {
            return health;
        }
        let health = if targets.is_empty() { route() } else { reach_any(targets).await };
        if health == NetworkHealth::Down && seen.is_none_or(|(_, before)| before == NetworkHealth::Up) {
            tracing::warn!("network of this node is down, failed checks do not count");
        }
        *seen = Some((Instant::now(), health));
        health
    }
}

/// Whether the network of this node may have caused the failure. It cannot if the target responded or is on this machine.
pub(crate) fn may_be_local(observation: &Observation) -> bool {
    let loopback = observation.address.is_some_and(|address| address.ip().is_loopback());
    let class = observation.failure().map(|failure| failure.class);
    !loopback && matches!(class, Some(FailureClass::Name | FailureClass::Connect | FailureClass::Timeout))
}

fn route() -> NetworkHealth {
    let connected = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| socket.connect(FAR_AWAY));
    if connected.is_ok() { NetworkHealth::Up } else { NetworkHealth::Down }
}

async fn reach_any(targets: &[String]) -> NetworkHealth {
    let connect = |target: String| async move {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(target)).await;
        matches!(connected, Ok(Ok(_)))
    };
    let mut all: tokio::task::JoinSet<bool> = targets.iter().cloned().map(connect).collect();
    while let Some(reached) = all.join_next().await {
        if matches!(reached, Ok(true)) {
            return NetworkHealth::Up;
        }
    }
    NetworkHealth::Down
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_reachable_target_is_enough() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        // Bound but not listening, so that no other process gets the port.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let targets = [closed.local_addr().unwrap().to_string(), listener.local_addr().unwrap().to_string()];
        assert_eq!(LocalNetwork::default().health(&targets).await, NetworkHealth::Up);
        assert_eq!(LocalNetwork::default().health(&targets[..1]).await, NetworkHealth::Down);
    }

    #[test]
    fn failure_of_a_local_target_is_not_caused_by_the_network() {
        let mut failed = Observation::failed(FailureClass::Connect, "refused");
        assert!(may_be_local(&failed));
        failed.address = Some("127.0.0.1:80".parse().unwrap());
        assert!(!may_be_local(&failed));
        assert!(!may_be_local(&Observation::failed(FailureClass::Assertion, "status")));
    }
}
