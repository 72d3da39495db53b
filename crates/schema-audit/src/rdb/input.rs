//! Reads the elements of an RDB file: lengths, strings, numbers. Nothing is allocated for a length that the file only claims.

use std::io::{self, Read};

use super::RdbError;
use super::lzf;

/// Longer strings do not exist in Redis.
const MAX_STRING: u64 = 512 << 20;
/// A string is read in pieces of this size, so that a wrong length fails before it is allocated.
const PIECE: u64 = 64 * 1024;

/// The bytes of a file, and the position in it.
#[derive(Debug)]
pub(super) struct Input<R> {
    reader: R,
    offset: u64,
}

/// A length, or the form of a string that has none.
enum Length {
    Plain(u64),
    Encoded(u8),
}

impl<R: Read> Input<R> {
    pub(super) fn new(reader: R) -> Input<R> {
        Input { reader, offset: 0 }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn error(&self, reason: &'static str) -> RdbError {
        RdbError::Malformed { offset: self.offset, reason }
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(|error| self.failure(error))?;
        self.offset += N as u64;
        Ok(bytes)
    }

    fn failure(&self, error: io::Error) -> RdbError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.error("the file ends too early"),
            _ => RdbError::Read(error),
        }
    }

    pub(super) fn byte(&mut self) -> Result<u8, RdbError> {
        Ok(self.bytes::<1>()?[0])
    }

    pub(super) fn length(&mut self) -> Result<u64, RdbError> {
        match self.any_length()? {
            Length::Plain(length) => Ok(length),
            Length::Encoded(_) => Err(self.error("a length was expected")),
        }
    }

    fn any_length(&mut self) -> Result<Length, RdbError> {
        let first = self.byte()?;
        let low = first & 0x3f;
        Ok(match first >> 6 {
            0 => Length::Plain(low.into()),
            1 => Length::Plain(u64::from(low) << 8 | u64::from(self.byte()?)),
            2 if first == 0x80 => Length::Plain(u32::from_be_bytes(self.bytes()?).into()),
            2 if first == 0x81 => Length::Plain(u64::from_be_bytes(self.bytes()?)),
            3 => Length::Encoded(low),
            _ => return Err(self.error("unknown form of a length")),
        })
    }

    /// A whole string.
    pub(super) fn string(&mut self) -> Result<Vec<u8>, RdbError> {
        Ok(self.string_up_to(MAX_STRING)?.0)
    }

    /// The length of a string, and the string itself if it is not longer than `max`.
    pub(super) fn string_up_to(&mut self, max: u64) -> Result<(Vec<u8>, u64), RdbError> {
        let text = match self.any_length()? {
            Length::Plain(length) if length > MAX_STRING => return Err(self.error("a string is too long")),
            Length::Plain(length) if length > max => {
                self.skip(length)?;
                return Ok((Vec::new(), length));
            }
            Length::Plain(length) => self.take(length)?,
            Length::Encoded(0) => i8::from_le_bytes(self.bytes()?).to_string().into_bytes(),
            Length::Encoded(1) => i16::from_le_bytes(self.bytes()?).to_string().into_bytes(),
            Length::Encoded(2) => i32::from_le_bytes(self.bytes()?).to_string().into_bytes(),
            Length::Encoded(3) => {
                let (packed, length) = (self.length()?, self.length()?);
                if packed > MAX_STRING || length > MAX_STRING {
                    return Err(self.error("a string is too long"));
                }
                if length > max {
                    self.skip(packed)?;
                    return Ok((Vec::new(), length));
                }
                let packed = self.take(packed)?;
                lzf::unpack(&packed, length as usize)
                    .ok_or_else(|| self.error("a compressed string is damaged"))?
            }
            Length::Encoded(_) => return Err(self.error("unknown form of a string")),
        };
        let length = text.len() as u64;
        Ok((text, length))
    }

    /// So many bytes as they are.
    fn take(&mut self, length: u64) -> Result<Vec<u8>, RdbError> {
        let mut bytes = Vec::with_capacity(length.min(PIECE) as usize);
        let read = self.reader.by_ref().take(length).read_to_end(&mut bytes).map_err(RdbError::Read)?;
        self.offset += read as u64;
        if (read as u64) < length { Err(self.error("the file ends too early")) } else { Ok(bytes) }
    }

    pub(super) fn skip(&mut self, length: u64) -> Result<(), RdbError> {
        let skipped =
            io::copy(&mut self.reader.by_ref().take(length), &mut io::sink()).map_err(RdbError::Read)?;
        self.offset += skipped;
        if skipped < length { Err(self.error("the file ends too early")) } else { Ok(()) }
    }

    pub(super) fn skip_string(&mut self) -> Result<(), RdbError> {
        self.string_up_to(0).map(drop)
    }
}
