//! The binary format of stored measurements: unsigned LEB128 numbers, seven bits to a byte.

use super::histogram::Histogram;
use super::second::{Fault, GeneratorSecond, StepSecond};

/// The bytes are not in the format of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored measurements are corrupt: cannot decode the bytes")]
pub struct DecodeError;

/// The code of the first check; 100 to 999 are status codes.
const FIRST_CHECK: u64 = 1000;

impl GeneratorSecond {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write_number(&mut out, self.active_users);
        write_number(&mut out, self.queued_arrivals);
        write_histogram(&mut out, &self.slip);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader(bytes);
        let (active_users, queued_arrivals) = (reader.number()?, reader.number()?);
        let second = Self { active_users, queued_arrivals, slip: reader.histogram()? };
        if reader.is_empty() { Ok(second) } else { Err(DecodeError) }
    }
}

impl StepSecond {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.failed, self.bytes_in, self.bytes_out, self.faults.len() as u64] {
            write_number(&mut out, number);
        }
        for (fault, count) in &self.faults {
            write_number(&mut out, fault_code(*fault));
            write_number(&mut out, *count);
        }
        write_histogram(&mut out, &self.intended);
        write_histogram(&mut out, &self.actual);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader(bytes);
        let [failed, bytes_in, bytes_out, faults] =
            [reader.number()?, reader.number()?, reader.number()?, reader.number()?];
        let mut step = Self { failed, bytes_in, bytes_out, ..Self::default() };
        for _ in 0..faults {
            let (fault, count) = (fault_from_code(reader.number()?)?, reader.number()?);
            step.faults.insert(fault, count);
        }
        step.intended = reader.histogram()?;
        step.actual = reader.histogram()?;
        if reader.is_empty() { Ok(step) } else { Err(DecodeError) }
    }
}

fn fault_code(fault: Fault) -> u64 {
    match fault {
        Fault::Connect => 1,
        Fault::Tls => 2,
        Fault::Timeout => 3,
        Fault::Closed => 4,
        Fault::Protocol => 5,
        Fault::TooLarge => 6,
        Fault::Extract => 7,
        Fault::Status(status) => status.into(),
        Fault::Check(index) => FIRST_CHECK + u64::from(index),
    }
}

fn fault_from_code(code: u64) -> Result<Fault, DecodeError> {
    Ok(match code {
        1 => Fault::Connect,
        2 => Fault::Tls,
        3 => Fault::Timeout,
        4 => Fault::Closed,
        5 => Fault::Protocol,
        6 => Fault::TooLarge,
        7 => Fault::Extract,
        100..FIRST_CHECK => Fault::Status(code as u16),
        FIRST_CHECK..2000 => Fault::Check((code - FIRST_CHECK) as u16),
        _ => return Err(DecodeError),
    })
}

fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Bucket bounds are written as differences, which are short.
fn write_histogram(out: &mut Vec<u8>, histogram: &Histogram) {
    let buckets = histogram.buckets();
    for number in [buckets.len() as u64, histogram.sum_us(), histogram.min_us(), histogram.max_us()] {
        write_number(out, number);
    }
    let mut last = 0;
    for (value, count) in buckets {
        write_number(out, value - last);
        write_number(out, *count);
        last = *value;
    }
}

#[derive(Debug)]
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(DecodeError)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DecodeError)
    }

    fn histogram(&mut self) -> Result<Histogram, DecodeError> {
        let [len, sum_us, min_us, max_us] = [self.number()?, self.number()?, self.number()?, self.number()?];
        let mut buckets = Vec::new();
        let mut last = 0_u64;
        for _ in 0..len {
            last = last.checked_add(self.number()?).ok_or(DecodeError)?;
            buckets.push((last, self.number()?));
        }
        Ok(Histogram::new(buckets, sum_us, min_us, max_us))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_round_trip() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            write_number(&mut out, number);
            assert_eq!(Reader(&out).number(), Ok(number));
        }
        assert_eq!(Reader(&[0x80]).number(), Err(DecodeError));
        assert_eq!(Reader(&[0xff; 11]).number(), Err(DecodeError));
    }

    #[test]
    fn seconds_round_trip() {
        let faults = [(Fault::Timeout, 1), (Fault::Status(503), 2), (Fault::Check(1), 3)];
        let step = StepSecond {
            intended: Histogram::new(vec![(10, 2), (1000, 1)], 1020, 10, 1000),
            actual: Histogram::new(vec![(10, 3)], 30, 10, 10),
            failed: 6,
            bytes_in: 1 << 40,
            bytes_out: 0,
            faults: faults.into(),
        };
        assert_eq!(StepSecond::decode(&step.encode()), Ok(step));
        let slip = Histogram::new(vec![(5, 1)], 5, 5, 5);
        let generator = GeneratorSecond { active_users: 7, slip, queued_arrivals: 3 };
        assert_eq!(GeneratorSecond::decode(&generator.encode()), Ok(generator));
    }

    proptest! {
        #[test]
        fn histograms_round_trip(buckets in prop::collection::btree_map(1..200_u64, 1..50_u64, 0..40)) {
            let buckets: Vec<_> = buckets.into_iter().collect();
            let sum = buckets.iter().map(|(value, count)| value * count).sum();
            let histogram = Histogram::new(buckets, sum, 1, 200);
            let mut out = Vec::new();
            write_histogram(&mut out, &histogram);
            let mut reader = Reader(&out);
            prop_assert_eq!(reader.histogram().unwrap(), histogram);
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (StepSecond::decode(&bytes), GeneratorSecond::decode(&bytes));
        }
    }
}
