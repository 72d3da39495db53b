//! The claims that a worker believes to hold.
//!
//! A claim is certain for one lease after the start of the renewal that the database confirmed. A process that was
//! suspended for longer must not use a quota for items that another worker has claimed since: it asks the database
//! first. A claim that a renewal does not find is dropped, with all its items.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A claim of this worker.
#[derive(Debug)]
pub(crate) struct HeldClaim {
    pub(crate) number: i64,
    /// When the last renewal began.
    renewed: Mutex<Instant>,
    /// Ends the work on the items.
    pub(crate) dropped: CancellationToken,
}

#[derive(Debug, Default)]
pub(crate) struct HeldClaims {
    claims: Mutex<BTreeMap<i64, Arc<HeldClaim>>>,
}

impl HeldClaim {
    /// Whether the lease cannot have expired yet.
    pub(crate) fn is_certain(&self, lease: Duration, now: Instant) -> bool {
        !self.dropped.is_cancelled() && now.duration_since(*lock(&self.renewed)) < lease
    }
}

impl HeldClaims {
    /// Adds a claim that was requested at `began`. Its work ends with `stop`, too.
    pub(crate) fn add(&self, number: i64, began: Instant, stop: &CancellationToken) -> Arc<HeldClaim> {
        let claim = HeldClaim { number, renewed: Mutex::new(began), dropped: stop.child_token() };
        let claim = Arc::new(claim);
        lock(&self.claims).insert(number, Arc::clone(&claim));
        claim
    }

    pub(crate) fn remove(&self, numbers: &[i64]) {
        let mut claims = lock(&self.claims);
        numbers.iter().for_each(|number| drop(claims.remove(number)));
    }

    /// The newest claim at the moment: a renewal that begins now must find it and all earlier ones.
    pub(crate) fn newest(&self) -> i64 {
        lock(&self.claims).last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Applies a renewal that began at `began`, when `newest` was the newest claim. Drops the claims that it did not
    /// find, and returns how many.
    pub(crate) fn renewed(&self, began: Instant, newest: i64, found: &[i64]) -> usize {
        let mut claims = lock(&self.claims);
        for claim in found.iter().filter_map(|number| claims.get(number)) {
            *lock(&claim.renewed) = began;
        }
        let lost: Vec<i64> = claims
            .range(..=newest)
            .map(|(number, _)| *number)
            .filter(|number| !found.contains(number))
            .collect();
        for number in &lost {
            if let Some(claim) = claims.remove(number) {
                claim.dropped.cancel();
            }
        }
        lost.len()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    #[test]
    fn claim_is_certain_for_one_lease_after_a_renewal() {
        let (claims, stop, began) = (HeldClaims::default(), CancellationToken::new(), Instant::now());
        let claim = claims.add(1, began, &stop);
        let just_before = LEASE.checked_sub(Duration::from_millis(1)).unwrap();
        assert!(claim.is_certain(LEASE, began + just_before));
        assert!(!claim.is_certain(LEASE, began + LEASE));
        let renewed = began + LEASE / 2;
        assert_eq!(claims.renewed(renewed, 1, &[1]), 0);
        assert!(claim.is_certain(LEASE, renewed + just_before));
        assert!(!claim.is_certain(LEASE, renewed + LEASE));
    }

    #[test]
    fn claim_that_a_renewal_does_not_find_is_dropped() {
        let (claims, stop, now) = (HeldClaims::default(), CancellationToken::new(), Instant::now());
        let [lost, held] = [1, 2].map(|number| claims.add(number, now, &stop));
        let newest = claims.newest();
        let later = claims.add(3, now, &stop);
        assert_eq!(claims.renewed(now, newest, &[2]), 1);
        assert!(lost.dropped.is_cancelled() && !lost.is_certain(LEASE, now));
        assert!(held.is_certain(LEASE, now));
        assert!(later.is_certain(LEASE, now), "claimed after the renewal began");
        stop.cancel();
        assert!(held.dropped.is_cancelled(), "the run stops");
    }
}
