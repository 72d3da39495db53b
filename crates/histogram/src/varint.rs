//! Variable-length numbers: unsigned LEB128, with seven bits per byte, the low bits first.

/// The bytes are not in the expected format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode the bytes: they end early, or a number is out of range")]
pub struct DecodeError;

/// Appends a number.
pub fn write(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number from the front of the bytes.
pub fn read(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(DecodeError)?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if (bits << shift) >> shift != bits {
            return Err(DecodeError);
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(DecodeError)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_numbers_are_short() {
        for (number, length) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX, 10)] {
            let mut out = Vec::new();
            write(&mut out, number);
            assert_eq!(out.len(), length, "{number}");
        }
        let mut out = Vec::new();
        write(&mut out, 300);
        assert_eq!(out, [0xac, 0x02]);
    }

    #[test]
    fn incomplete_and_too_large_numbers_are_rejected() {
        let mut more_than_64_bits = [0xff_u8; 10];
        more_than_64_bits[9] = 2;
        for bytes in [&[][..], &[0x80], &[0xff; 11], &more_than_64_bits] {
            assert_eq!(read(&mut &*bytes), Err(DecodeError), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn numbers_round_trip(numbers in prop::collection::vec((0..64_u32, any::<u64>()), 0..10)) {
            let numbers: Vec<u64> = numbers.into_iter().map(|(power, number)| number >> power).collect();
            let mut out = Vec::new();
            numbers.iter().for_each(|number| write(&mut out, *number));
            let mut bytes = &*out;
            for number in numbers {
                prop_assert_eq!(read(&mut bytes), Ok(number));
            }
            prop_assert!(bytes.is_empty());
        }
    }
}
