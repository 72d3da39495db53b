//! Which keys an audit checks if it does not check all.
//!
//! The names of all keys are read, so the number of keys in each family is exact. The first keys of a family are checked in any
//! case; each other key is checked if the hash of its name and of a seed is below a threshold. The order in which a server
//! returns its keys therefore does not matter: what is estimated is only the part of the family that the hash has chosen from.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::estimate::CONFIDENCE;

/// So many keys of each family are checked in any case, so that small families are not left out.
pub(crate) const ALWAYS_CHECKED: u64 = 100;

/// How many keys to check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SampleSize {
    /// This part of the keys, above 0 and at most 1.
    Share(f64),
    /// About so many keys.
    Keys(u64),
}

/// A text that is not a [`SampleSize`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a part of the keys such as 1% nor a number of keys such as 10000")]
pub struct BadSampleSize(String);

impl FromStr for SampleSize {
    type Err = BadSampleSize;

    fn from_str(text: &str) -> Result<SampleSize, BadSampleSize> {
        let bad = || BadSampleSize(text.to_owned());
        if let Some(percent) = text.strip_suffix('%') {
            let share = percent.trim().parse::<f64>().map_err(|_| bad())? / 100.0;
            return if share > 0.0 && share <= 1.0 { Ok(SampleSize::Share(share)) } else { Err(bad()) };
        }
        let keys = text.replace('_', "").parse::<u64>().map_err(|_| bad())?;
        if keys > 0 { Ok(SampleSize::Keys(keys)) } else { Err(bad()) }
    }
}

/// A sample of the keys. The same seed chooses the same keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    pub size: SampleSize,
    pub seed: u64,
}

/// What a report says about its sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleFacts {
    /// The probability with which a key was chosen, after the first ones of its family.
    pub share: f64,
    pub seed: u64,
    /// Keys that were checked.
    pub checked: u64,
    pub confidence: f64,
}

/// Decides for each key whether it is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selection {
    /// All keys; longer values only of some.
    All,
    Part {
        share: f64,
        seed: u64,
    },
}

impl Selection {
    /// `expected` is the number of keys.
    pub(crate) fn new(sampling: Option<Sampling>, expected: u64) -> Selection {
        let Some(Sampling { size, seed }) = sampling else { return Selection::All };
        let share = match size {
            SampleSize::Share(share) => share,
            SampleSize::Keys(keys) => (keys as f64 / expected.max(1) as f64).min(1.0),
        };
        Selection::Part { share, seed }
    }

    pub(crate) fn facts(self, checked: u64) -> Option<SampleFacts> {
        match self {
            Selection::All => None,
            Selection::Part { share, seed } => {
                Some(SampleFacts { share, seed, checked, confidence: CONFIDENCE })
            }
        }
    }

    /// Whether to check the key with this number in its family.
    pub(crate) fn choose(self, key: &[u8], number: u64) -> Choice {
        match self {
            Selection::All => Choice::Always,
            Selection::Part { .. } if number < ALWAYS_CHECKED => Choice::Always,
            Selection::Part { share, seed } if unit_hash(key, seed) < share => Choice::Chosen,
            Selection::Part { .. } => Choice::LeftOut,
        }
    }
}

/// What a selection decided about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Always,
    /// By its hash.
    Chosen,
    LeftOut,
}

/// A number from 0 to below 1.
fn unit_hash(key: &[u8], seed: u64) -> f64 {
    // FNV-1a, then the finalizer of MurmurHash3 so that all bits depend on each other.
    let start = 0xcbf2_9ce4_8422_2325 ^ mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
    let hash =
        key.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (mix(hash) >> 11) as f64 / (1_u64 << 53) as f64
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ (bits >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_a_part_or_a_number() {
        assert_eq!("1%".parse(), Ok(SampleSize::Share(0.01)));
        assert_eq!("100 %".parse(), Ok(SampleSize::Share(1.0)));
        assert_eq!("10_000".parse(), Ok(SampleSize::Keys(10_000)));
        for bad in ["", "0", "0%", "101%", "-1%", "NaN%", "many", "1.5"] {
            assert!(bad.parse::<SampleSize>().is_err(), "{bad}");
        }
    }

    #[test]
    fn number_of_keys_becomes_a_part_of_all() {
        let share = |keys, expected| {
            let sampling = Sampling { size: SampleSize::Keys(keys), seed: 1 };
            Selection::new(Some(sampling), expected).facts(0).unwrap().share
        };
        assert_eq!((share(10, 1_000), share(10, 5), share(10, 0)), (0.01, 1.0, 1.0));
    }

    /// Names with the same ending, and seeds that differ by one, choose independently.
    #[test]
    fn chosen_part_has_the_wanted_size_for_similar_names() {
        for seed in 0..20 {
            let selection = Selection::Part { share: 0.1, seed };
            let chosen = |number: &u32| {
                selection.choose(format!("{number}-of-many").as_bytes(), 100) == Choice::Chosen
            };
            let keys = (0..20_000).filter(chosen).count();
            // Four standard deviations.
            assert!((1_830..=2_170).contains(&keys), "{keys}");
        }
    }
}
