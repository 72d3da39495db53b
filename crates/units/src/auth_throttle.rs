//! Limits failed authentication attempts per client.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Wrong credentials before a client is blocked: enough for typing mistakes, too few to guess a token.
const MAX_FAILURES: u32 = 10;
/// The time after which a blocked client gets another attempt.
const REFILL: Duration = Duration::from_secs(60);
/// The maximum number of clients that are remembered.
const MAX_CLIENTS: usize = 10_000;
/// How many recent wrong credentials are remembered per client.
const REMEMBERED: usize = 4;

/// Blocks a client after ten wrong credentials; it gets another attempt every minute. Clones share their state.
///
/// The client is an address, or the /64 network of an IPv6 address. A program that repeats the same wrong credential is not
/// guessing, so it counts once.
#[derive(Clone, Debug, Default)]
pub struct AuthThrottle {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    clients: Mutex<HashMap<IpAddr, Failures>>,
    /// Hashes with a random key, so that the digests reveal nothing about the credentials.
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    /// The time at which the client has all its attempts again.
    forgotten_at: Instant,
    /// Digests of the last wrong credentials, newest first.
    last: [Option<u64>; REMEMBERED],
}

impl AuthThrottle {
    /// How long the client has to wait for its next attempt; `None` if it may try now.
    #[must_use]
    pub fn blocked_for(&self, client: IpAddr) -> Option<Duration> {
        self.blocked_for_at(client, Instant::now())
    }

    /// Counts a wrong credential.
    pub fn record_failure(&self, client: IpAddr, credential: &[u8]) {
        self.record_failure_at(client, credential, Instant::now());
    }

    fn blocked_for_at(&self, client: IpAddr, now: Instant) -> Option<Duration> {
        let clients = self.clients();
        let backlog = clients.get(&network(client))?.forgotten_at.saturating_duration_since(now);
        backlog.checked_sub(REFILL * (MAX_FAILURES - 1)).filter(|wait| !wait.is_zero())
    }

    fn record_failure_at(&self, client: IpAddr, credential: &[u8], now: Instant) {
        let digest = Some(self.inner.hasher.hash_one(credential));
        let client = network(client);
        let mut clients = self.clients();
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&client) {
            make_room(&mut clients, now);
        }
        let failures =
            clients.entry(client).or_insert(Failures { forgotten_at: now, last: [None; REMEMBERED] });
        if failures.forgotten_at > now && failures.last.contains(&digest) {
            return;
        }
        failures.last.rotate_right(1);
        failures.last[0] = digest;
        failures.forgotten_at = (failures.forgotten_at.max(now) + REFILL).min(now + REFILL * MAX_FAILURES);
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<IpAddr, Failures>> {
        self.inner.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the clients that have all their attempts again. If there are none, removes the half with the fewest
/// failures.
fn make_room(clients: &mut HashMap<IpAddr, Failures>, now: Instant) {
    clients.retain(|_, failures| failures.forgotten_at > now);
    if clients.len() >= MAX_CLIENTS {
        let mut ends: Vec<Instant> = clients.values().map(|failures| failures.forgotten_at).collect();
        let (_, middle, _) = ends.select_nth_unstable(MAX_CLIENTS / 2);
        let (middle, mut ties) = (*middle, 0);
        // Of the clients that have as many failures as the median, every other one is removed, so that about half of
        // the clients are removed even if all have the same number.
        clients.retain(|_, failures| {
            ties += usize::from(failures.forgotten_at == middle);
            failures.forgotten_at > middle || (failures.forgotten_at == middle && ties % 2 == 0)
        });
    }
}

/// The network that counts as one client. IPv6 clients usually have a /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    fn guess(throttle: &AuthThrottle, client: IpAddr, number: usize, now: Instant) {
        throttle.record_failure_at(client, format!("guess {number}").as_bytes(), now);
    }

    #[test]
    fn client_is_blocked_after_ten_failures_and_gets_one_attempt_per_minute() {
        let (throttle, start) = (AuthThrottle::default(), Instant::now());
        for number in 0..10 {
            assert_eq!(throttle.blocked_for_at(client(1), start), None, "{number}");
            guess(&throttle, client(1), number, start);
        }
        assert_eq!(throttle.blocked_for_at(client(1), start), Some(REFILL));
        assert_eq!(throttle.blocked_for_at(client(2), start), None);
        assert_eq!(throttle.blocked_for_at(client(1), start + REFILL), None);
        guess(&throttle, client(1), 10, start + REFILL);
        assert_eq!(throttle.blocked_for_at(client(1), start + REFILL), Some(REFILL));
        for number in 11..100 {
            guess(&throttle, client(1), number, start + REFILL);
        }
        assert_eq!(
            throttle.blocked_for_at(client(1), start + REFILL),
            Some(REFILL),
            "a burst is not punished longer"
        );
    }

    #[test]
    fn repeated_credential_counts_once() {
        let (throttle, start) = (AuthThrottle::default(), Instant::now());
        for number in 0..1_000 {
            guess(&throttle, client(1), number % 3, start);
        }
        assert_eq!(throttle.blocked_for_at(client(1), start), None);
    }

    #[test]
    fn memory_is_bounded_and_the_worst_clients_are_kept() {
        let (throttle, start) = (AuthThrottle::default(), Instant::now());
        for number in 0..10 {
            guess(&throttle, client(7), number, start);
        }
        for number in 100..100_000 {
            guess(&throttle, client(number), 0, start);
            assert!(throttle.clients().len() <= MAX_CLIENTS);
        }
        assert_eq!(throttle.blocked_for_at(client(7), start), Some(REFILL));
        guess(&throttle, client(8), 0, start + REFILL * MAX_FAILURES);
        for number in 0..20_000 {
            guess(&throttle, client(1_000_000 + number), 0, start + REFILL * MAX_FAILURES);
        }
        assert!(throttle.clients().len() <= MAX_CLIENTS);
    }

    #[test]
    fn whole_network_is_one_client() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
    }
}
