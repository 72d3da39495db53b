//! Random numbers from a seed: the same on every machine and with every version of every dependency, so that a seed
//! reproduces a run.

use std::time::Duration;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The random numbers of one user of the seed. They do not depend on how many numbers the others take.
    pub(crate) fn new(seed: u64, user: &str) -> Self {
        let mixed = user.bytes().fold(seed, |mixed, byte| Self(mixed ^ u64::from(byte)).next());
        Self(mixed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap_or(0)
    }

    /// A duration in this range, in milliseconds.
    pub(crate) fn ms(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(range.start + self.next() % (range.end - range.start))
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn same_seed_gives_the_same_numbers() {
        let draw = |seed, user| {
            let mut random = Random::new(seed, user);
            [random.next(), random.next()]
        };
        assert_eq!(draw(7, "chat"), draw(7, "chat"));
        assert_ne!(draw(7, "chat"), draw(7, "load"));
        assert_ne!(draw(7, "chat"), draw(8, "chat"));
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items: Vec<usize> = (0..50).collect();
        Random::new(1, "shuffle").shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
