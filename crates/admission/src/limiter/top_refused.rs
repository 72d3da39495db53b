//! The callers that a rule refuses most, in fixed memory (the space-saving algorithm).

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::identity::Identity;

const CAPACITY: usize = 64;

/// Counts refusals by caller. A caller with more than 1/64 of all refusals is always included.
#[derive(Debug, Default)]
pub(crate) struct TopRefused {
    counts: Mutex<HashMap<Identity, u64>>,
}

impl TopRefused {
    pub(crate) fn add(&self, identity: &Identity) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(identity) {
            *count += 1;
            return;
        }
        let mut inherited = 0;
        if counts.len() >= CAPACITY {
            let smallest = counts
                .iter()
                .min_by_key(|(_, count)| **count)
                .map(|(caller, count)| (caller.clone(), *count));
            if let Some((caller, count)) = smallest {
                counts.remove(&caller);
                inherited = count;
            }
        }
        counts.insert(identity.clone(), inherited + 1);
    }

    /// Returns the counts and resets them.
    pub(crate) fn take(&self) -> HashMap<Identity, u64> {
        std::mem::take(&mut self.counts.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_callers_do_not_hide_the_most_refused_one() {
        let top_refused = TopRefused::default();
        let busiest = Identity::new("203.0.113.7").unwrap();
        for number in 0..10_000 {
            top_refused.add(&Identity::new(&format!("caller:{number}")).unwrap());
            if number % 10 == 0 {
                top_refused.add(&busiest);
            }
        }
        let counts = top_refused.take();
        assert!(counts.len() <= CAPACITY);
        assert!(counts[&busiest] >= 1000);
        assert!(top_refused.take().is_empty());
    }
}
