//! The binary format of stored measurements: varints only. Rows of earlier versions end before the fields that were added
//! later.
//!
//! A histogram is the number of its buckets, the sum, the minimum and the maximum, then for each bucket its count, and
//! the difference between its upper bound and that of the previous bucket.

use std::time::Duration;

use hob_histogram::{DecodeError, varint};

use super::histogram::{Bucket, Histogram, LatencyHistogram};
use super::second::{Backoffs, Fault, GeneratorSecond, StepSecond};

/// The code of the first check; 100 to 999 are status codes.
const FIRST_CHECK: u64 = 1000;

impl GeneratorSecond {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::write(&mut out, self.active_users);
        varint::write(&mut out, self.queued_arrivals);
        write_histogram(&mut out, &self.slip);
        let Backoffs { count, total } = self.backoffs;
        for number in [micros(self.ran), self.arrivals, count, micros(total)] {
            varint::write(&mut out, number);
        }
        out
    }

    pub fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
        let [active_users, queued_arrivals] = read_numbers(&mut bytes)?;
        let slip = read_histogram(&mut bytes)?;
        let (ran, arrivals, backoffs) = if bytes.is_empty() {
            // An earlier version: a whole second, and the slip of every arrival.
            (Duration::from_secs(1), slip.count(), Backoffs::default())
        } else {
            let [ran_us, arrivals, count, total_us] = read_numbers(&mut bytes)?;
            let total = Duration::from_micros(total_us);
            (Duration::from_micros(ran_us), arrivals, Backoffs { count, total })
        };
        let second = Self { ran, active_users, slip, arrivals, queued_arrivals, backoffs };
        if bytes.is_empty() { Ok(second) } else { Err(DecodeError) }
    }
}

impl StepSecond {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.failed, self.bytes_in, self.bytes_out, self.faults.len() as u64] {
            varint::write(&mut out, number);
        }
        for (fault, count) in &self.faults {
            varint::write(&mut out, fault_code(*fault));
            varint::write(&mut out, *count);
        }
        write_histogram(&mut out, &self.intended);
        write_histogram(&mut out, &self.actual);
        write_histogram(&mut out, &self.failures);
        out
    }

    pub fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
        let [failed, bytes_in, bytes_out, faults] = read_numbers(&mut bytes)?;
        let mut step = Self { failed, bytes_in, bytes_out, ..Self::default() };
        for _ in 0..faults {
            let [code, count] = read_numbers(&mut bytes)?;
            step.faults.insert(fault_from_code(code)?, count);
        }
        step.intended = read_histogram(&mut bytes)?;
        step.actual = read_histogram(&mut bytes)?;
        if !bytes.is_empty() {
            step.failures = read_histogram(&mut bytes)?;
        }
        if bytes.is_empty() { Ok(step) } else { Err(DecodeError) }
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

fn write_histogram(out: &mut Vec<u8>, latencies: &LatencyHistogram) {
    let buckets = latencies.buckets();
    for number in [buckets.len() as u64, latencies.sum_us(), latencies.min_us(), latencies.max_us()] {
        varint::write(out, number);
    }
    let mut last = 0;
    for (bound, count) in buckets {
        varint::write(out, bound - last);
        varint::write(out, count);
        last = bound;
    }
}

fn read_histogram(bytes: &mut &[u8]) -> Result<LatencyHistogram, DecodeError> {
    let [len, sum_us, min_us, max_us] = read_numbers(bytes)?;
    let mut histogram = Histogram::default();
    let mut bound = 0_u64;
    for _ in 0..len {
        let [difference, count] = read_numbers(bytes)?;
        bound = bound.checked_add(difference).ok_or(DecodeError)?;
        histogram.add(Bucket::of(bound), count);
    }
    Ok(LatencyHistogram::new(histogram, sum_us, min_us, max_us))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn read_numbers<const N: usize>(bytes: &mut &[u8]) -> Result<[u64; N], DecodeError> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = varint::read(bytes)?;
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;
    use crate::generator::Control;
    use crate::generator::meter::{Meter, RequestOutcome};
    use crate::results::second::Second;

    #[test]
    fn seconds_round_trip() {
        let faults = [(Fault::Timeout, 1), (Fault::Status(503), 2), (Fault::Check(1), 3)];
        let step = StepSecond {
            intended: [(10, 2), (1000, 1)].into_iter().collect(),
            actual: [(10, 3)].into_iter().collect(),
            failures: [(7, 6)].into_iter().collect(),
            failed: 6,
            bytes_in: 1 << 40,
            bytes_out: 0,
            faults: faults.into(),
        };
        assert_eq!(StepSecond::decode(&step.encode()), Ok(step));
        let slip = [(5, 1)].into_iter().collect();
        let backoffs = Backoffs { count: 2, total: Duration::from_millis(350) };
        let ran = Duration::from_micros(120_500);
        let generator =
            GeneratorSecond { ran, active_users: 7, slip, arrivals: 9, queued_arrivals: 3, backoffs };
        assert_eq!(GeneratorSecond::decode(&generator.encode()), Ok(generator));
    }

    /// One second with the requests of `stored_requests`, as earlier versions stored it: with the failed requests in the
    /// histograms of all requests.
    const EARLIER_STEP: &str = "04f0870d8475030301f70302e907010e89d493db0400808c8d9e0200010101fe07010101ff070102010201881701\
        b43901f03bc80190f10401c0b2290180c0a01c018080d08102020caa87f9d80100d5c4a16f0002d50202d502020101d70701911301fc13c801\
        b0d00101c0e50d018096b509018080eb55018080f80f01";
    const EARLIER_GENERATOR: &str =
        "ac02010ba4a75300e0dc2a0002010201030301070108c8014f01a60501d6ce0301a0fb200180900601";
    /// The same second as it is stored now.
    const STORED_STEP: &str = "04f0870d8475030301f70302e907010a89c493db04ff0f808c8d9e02ff0f0102010201881701b43901f03bc80190\
        f10401c0b2290180c0a01c018080d08102020a8082f9d801aa05d5c4a16faa05020101d70701911301fc13c801b0d00101c0e50d018096b509\
        018080eb55018080f80f0104801000800800010101fe07010101";
    const STORED_GENERATOR: &str =
        "ac02010ba4a75300e0dc2a0002010201030301070108c8014f01a60501d6ce0301a0fb200180900601a0f7360101f09309";

    fn stored_requests() -> Second {
        let start = Instant::now();
        let mut meter = Meter::new(Control::new().clock(start), 1);
        let us = [
            0,
            1,
            1_023,
            1_024,
            2_047,
            2_048,
            2_050,
            5_000,
            12_345,
            99_999,
            777_777,
            59_999_999,
            600_000_000,
        ];
        let faults =
            [Fault::Timeout, Fault::Status(503), Fault::Check(1), Fault::Status(503)].into_iter().map(Some);
        let us = us.into_iter().chain([700_000_000]).chain(std::iter::repeat_n(20_007, 200));
        for (us, fault) in us.zip(faults.chain(std::iter::repeat(None))) {
            let (intended, actual) = (Duration::from_micros(us), Duration::from_micros(us / 3));
            meter.record(
                start,
                0,
                RequestOutcome { intended, actual, fault, bytes_in: 1_000, bytes_out: 70 },
                1,
            );
            meter.record_slip(Duration::from_micros(us / 1_000));
        }
        meter.record_arrival();
        meter.record_queued_arrival();
        meter.record_backoff(Duration::from_millis(150));
        meter.finish(start + Duration::from_millis(900), 300).remove(0)
    }

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn stored_seconds_can_be_read() {
        let second = stored_requests();
        let (step, generator) = (bytes(STORED_STEP), bytes(STORED_GENERATOR));
        assert_eq!(
            (hex(&second.steps[&0].encode()), hex(&second.generator.encode())),
            (hex(&step), hex(&generator))
        );
        assert_eq!(StepSecond::decode(&step).as_ref(), Ok(&second.steps[&0]));
        assert_eq!(GeneratorSecond::decode(&generator).as_ref(), Ok(&second.generator));
    }

    #[test]
    fn seconds_of_earlier_versions_can_be_read() {
        let generator = GeneratorSecond::decode(&bytes(EARLIER_GENERATOR)).unwrap();
        let slip = stored_requests().generator.slip;
        assert_eq!(
            (generator.active_users, generator.queued_arrivals, generator.arrivals),
            (300, 1, slip.count())
        );
        assert_eq!((generator.slip, generator.ran), (slip, Duration::from_secs(1)));
        let step = StepSecond::decode(&bytes(EARLIER_STEP)).unwrap();
        assert_eq!((step.requests(), step.failed, step.failures.count()), (214, 4, 0));
        let quantiles = [0.01, 0.03, 0.5, 0.95, 0.99, 0.995, 0.999, 1.0];
        let intended = quantiles.map(|quantile| step.intended.quantile_us(quantile));
        assert_eq!(
            intended,
            [1_023, 2_051, 20_015, 20_015, 60_030_975, 600_000_000, 600_000_000, 600_000_000]
        );
        let actual = quantiles.map(|quantile| step.actual.quantile_us(quantile));
        assert_eq!(actual, [341, 683, 6_671, 6_671, 20_004_863, 200_015_871, 233_333_333, 233_333_333]);
    }

    proptest! {
        #[test]
        fn histograms_round_trip(latencies in prop::collection::vec((0..600_000_000_u64, 1..50_u64), 0..40)) {
            let latencies = LatencyHistogram::from_iter(latencies);
            let mut out = Vec::new();
            write_histogram(&mut out, &latencies);
            let mut bytes = &*out;
            prop_assert_eq!(read_histogram(&mut bytes), Ok(latencies));
            prop_assert!(bytes.is_empty());
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (StepSecond::decode(&bytes), GeneratorSecond::decode(&bytes));
        }
    }
}
