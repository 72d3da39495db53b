//! When a monitor is due: on a grid whose phase comes from its id. A late check does not delay the next ones, and monitors
//! with the same interval are spread over it.

use std::time::Duration;

/// The times `phase + k · interval`, in unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    interval_ms: u64,
    phase_ms: u64,
}

impl Grid {
    /// The grid of an id, the same on every node and after every restart.
    #[must_use]
    pub(crate) fn of(id: &str, interval: Duration) -> Self {
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1);
        // FNV-1a with a final mix, so that ids that differ in one digit are far apart.
        let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { interval_ms, phase_ms: (mixed ^ (mixed >> 29)) % interval_ms }
    }

    /// The first time on the grid after `now_ms`.
    #[must_use]
    pub(crate) fn next_after(self, now_ms: u64) -> u64 {
        let Self { interval_ms, phase_ms } = self;
        if now_ms < phase_ms {
            return phase_ms;
        }
        now_ms - (now_ms - phase_ms) % interval_ms + interval_ms
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// U1
        #[test]
        fn next_time_is_on_the_grid_and_within_one_interval(
            id in "[a-z0-9]{1,12}", interval_ms in 1_u64..100_000_000, now in 0_u64..10_000_000_000_000,
        ) {
            let grid = Grid::of(&id, Duration::from_millis(interval_ms));
            let next = grid.next_after(now);
            prop_assert!(next > now && next <= now + interval_ms.max(grid.phase_ms));
            prop_assert_eq!(grid.next_after(next) - next, interval_ms);
            prop_assert_eq!(grid.next_after(next - 1), next);
        }
    }

    /// U1
    #[test]
    fn phases_are_spread_over_the_interval() {
        let mut by_second = [0_u32; 60];
        for n in 0..6000 {
            let grid = Grid::of(&format!("monitor_{n}"), Duration::from_secs(60));
            by_second[usize::try_from(grid.phase_ms / 1000).unwrap()] += 1;
        }
        assert!(by_second.iter().all(|count| (50..=160).contains(count)), "{by_second:?}");
    }
}
