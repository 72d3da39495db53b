//! Numbers that look random and depend only on their seed, for data that must look the same each time.

/// A number from 0 to below 1.
#[must_use]
pub fn noise(seed: u64) -> f64 {
    // SplitMix64.
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_and_repeatable() {
        let all: Vec<f64> = (0..10_000).map(noise).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((0.49..0.51).contains(&mean), "{mean}");
        assert!(all.iter().all(|number| (0.0..1.0).contains(number)));
        assert_eq!(all[7].to_bits(), noise(7).to_bits());
    }
}
