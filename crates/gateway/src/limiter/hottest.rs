//! The callers that a rule refuses most, in fixed memory (the space-saving algorithm).

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::admission::identity::Identity;

const MOST: usize = 64;

/// Counts refusals by caller. Whoever is refused more often than one in 64 times is among them for certain.
#[derive(Debug, Default)]
pub(crate) struct Hottest {
    counts: Mutex<HashMap<Identity, u64>>,
}

impl Hottest {
    pub(crate) fn add(&self, identity: &Identity) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(identity) {
            *count += 1;
            return;
        }
        let mut inherited = 0;
        if counts.len() >= MOST {
            let coldest =
                counts.iter().min_by_key(|(_, count)| **count).map(|(who, count)| (who.clone(), *count));
            if let Some((who, count)) = coldest {
                counts.remove(&who);
                inherited = count;
            }
        }
        counts.insert(identity.clone(), inherited + 1);
    }

    /// The counts so far; counting starts again.
    pub(crate) fn take(&self) -> HashMap<Identity, u64> {
        std::mem::take(&mut self.counts.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_strangers_does_not_hide_the_hottest() {
        let hottest = Hottest::default();
        let store = Identity::new("203.0.113.7").unwrap();
        for number in 0..10_000 {
            hottest.add(&Identity::new(&format!("stranger:{number}")).unwrap());
            if number % 10 == 0 {
                hottest.add(&store);
            }
        }
        let counts = hottest.take();
        assert!(counts.len() <= MOST);
        assert!(counts[&store] >= 1000);
        assert!(hottest.take().is_empty());
    }
}
