//! The values of keys, as far as a check needs them: type, length and the first elements.

use std::io::Read;

use hob_schema::check::Sample;

use super::RdbError;
use super::input::Input;
use super::packed::{Elements, Pairs, integers, listpack, stream_entries, ziplist, zipmap};

/// Longer values are not checked.
const MAX_VALUE: u64 = 64 << 10;
/// So many elements of a collection are checked.
const MAX_ELEMENTS: usize = 64;
/// The first version of streams whose groups count the entries that they have read, and the one whose consumers have two times.
const STREAM_2: u8 = 19;
const STREAM_3: u8 = 21;

/// What a file says about the value of a key.
#[derive(Debug)]
pub(super) struct ReadValue {
    /// As `TYPE` names it.
    pub(super) kind: String,
    pub(super) len: Option<u64>,
    pub(super) sample: Sample,
}

fn value(kind: &str, len: u64, sample: Sample) -> ReadValue {
    ReadValue { kind: kind.to_owned(), len: Some(len), sample }
}

impl<R: Read> Input<R> {
    /// The value of this type, a number of the file format.
    pub(super) fn value(&mut self, kind: u8) -> Result<ReadValue, RdbError> {
        match kind {
            0 => {
                let (text, len) = self.string_up_to(MAX_VALUE)?;
                let sample = if len > MAX_VALUE { Sample::Unread } else { Sample::Text(text) };
                Ok(value("string", len, sample))
            }
            1 | 2 => {
                let len = self.length()?;
                let items = self.strings(len)?;
                Ok(value(if kind == 1 { "list" } else { "set" }, len, Sample::Items(items)))
            }
            3 | 5 => self.sorted_set(kind),
            4 | 22 | 24 => self.hash(kind),
            7 => self.module(),
            9 => self.packed_pairs(zipmap, 2),
            10 => self.packed_items("list", ziplist),
            11 => self.packed_items("set", integers),
            12 => self.packed_scores(ziplist),
            13 => self.packed_pairs(ziplist, 2),
            14 | 18 => self.quicklist(kind),
            15 | 19 | 21 => self.stream(kind),
            16 => self.packed_pairs(listpack, 2),
            17 => self.packed_scores(listpack),
            20 => self.packed_items("set", listpack),
            23 => self.packed_pairs(listpack, 3),
            25 => {
                // The earliest time at which a field expires.
                self.skip(8)?;
                self.packed_pairs(listpack, 3)
            }
            _ => Err(RdbError::UnknownType { offset: self.offset(), kind }),
        }
    }

    /// So many strings, of which the first ones are kept.
    fn strings(&mut self, count: u64) -> Result<Vec<Vec<u8>>, RdbError> {
        let mut kept = Vec::new();
        for _ in 0..count {
            self.keep(&mut kept)?;
        }
        Ok(kept)
    }

    fn keep(&mut self, kept: &mut Vec<Vec<u8>>) -> Result<(), RdbError> {
        if kept.len() >= MAX_ELEMENTS {
            return self.skip_string();
        }
        let (text, len) = self.string_up_to(MAX_VALUE)?;
        if len <= MAX_VALUE {
            kept.push(text);
        }
        Ok(())
    }

    fn sorted_set(&mut self, kind: u8) -> Result<ReadValue, RdbError> {
        let len = self.length()?;
        let mut members = Vec::new();
        for _ in 0..len {
            let mut member = Vec::new();
            self.keep(&mut member)?;
            let score = if kind == 5 { f64::from_le_bytes(self.bytes()?) } else { self.score()? };
            if members.len() < MAX_ELEMENTS {
                members.extend(member.pop().map(|member| (member, score)));
            }
        }
        Ok(value("zset", len, Sample::Scored(members)))
    }

    /// A score as text, in the oldest form of sorted sets.
    fn score(&mut self) -> Result<f64, RdbError> {
        let length = match self.byte()? {
            253 => return Ok(f64::NAN),
            254 => return Ok(f64::INFINITY),
            255 => return Ok(f64::NEG_INFINITY),
            length => length,
        };
        let mut text = String::new();
        for _ in 0..length {
            text.push(char::from(self.byte()?));
        }
        text.parse().map_err(|_| self.error("a score is not a number"))
    }

    /// Fields and values; the later types have a time of expiry before each field.
    fn hash(&mut self, kind: u8) -> Result<ReadValue, RdbError> {
        if kind == 24 {
            // The earliest time at which a field expires.
            self.skip(8)?;
        }
        let len = self.length()?;
        let mut fields: Pairs = Vec::new();
        for _ in 0..len {
            if kind != 4 {
                self.length()?;
            }
            let (name, name_len) = self.string_up_to(MAX_VALUE)?;
            let (text, text_len) = self.string_up_to(MAX_VALUE)?;
            if fields.len() < MAX_ELEMENTS && name_len <= MAX_VALUE && text_len <= MAX_VALUE {
                fields.push((name, text));
            }
        }
        let whole = fields.len() as u64 == len;
        Ok(value("hash", len, Sample::Hash { fields, whole }))
    }

    fn block(&mut self, read: fn(&[u8]) -> Elements) -> Result<Vec<Vec<u8>>, RdbError> {
        let bytes = self.string()?;
        read(&bytes).ok_or_else(|| self.error("a packed collection is damaged"))
    }

    fn packed_items(&mut self, kind: &str, read: fn(&[u8]) -> Elements) -> Result<ReadValue, RdbError> {
        let mut items = self.block(read)?;
        let len = items.len() as u64;
        items.truncate(MAX_ELEMENTS);
        Ok(value(kind, len, Sample::Items(items)))
    }

    /// Fields and values, or with `width` three also the times at which the fields expire.
    fn packed_pairs(&mut self, read: fn(&[u8]) -> Elements, width: usize) -> Result<ReadValue, RdbError> {
        let elements = self.block(read)?;
        let len = elements.len() / width;
        let fields: Pairs = elements
            .chunks_exact(width)
            .take(MAX_ELEMENTS)
            .map(|field| (field[0].clone(), field[1].clone()))
            .collect();
        let whole = fields.len() == len;
        Ok(value("hash", len as u64, Sample::Hash { fields, whole }))
    }

    fn packed_scores(&mut self, read: fn(&[u8]) -> Elements) -> Result<ReadValue, RdbError> {
        let elements = self.block(read)?;
        let score = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
        let members = elements.chunks_exact(2).take(MAX_ELEMENTS);
        let members: Option<Vec<_>> = members.map(|pair| Some((pair[0].clone(), score(&pair[1])?))).collect();
        let members = members.ok_or_else(|| self.error("a score is not a number"))?;
        Ok(value("zset", elements.len() as u64 / 2, Sample::Scored(members)))
    }

    /// Blocks of elements. Since Redis 7 a block may also be one long element.
    fn quicklist(&mut self, kind: u8) -> Result<ReadValue, RdbError> {
        const PLAIN: u64 = 1;
        let (mut len, mut items) = (0, Vec::new());
        for _ in 0..self.length()? {
            if kind == 18 && self.length()? == PLAIN {
                len += 1;
                self.keep(&mut items)?;
                continue;
            }
            let elements = self.block(if kind == 18 { listpack } else { ziplist })?;
            len += elements.len() as u64;
            items.extend(elements);
            items.truncate(MAX_ELEMENTS);
        }
        Ok(value("list", len, Sample::Items(items)))
    }

    fn stream(&mut self, kind: u8) -> Result<ReadValue, RdbError> {
        let mut entries = Vec::new();
        for _ in 0..self.length()? {
            self.skip_string()?;
            let bytes = self.string()?;
            if entries.len() < MAX_ELEMENTS {
                let read = stream_entries(&bytes);
                entries.extend(read.ok_or_else(|| self.error("a block of a stream is damaged"))?);
                entries.truncate(MAX_ELEMENTS);
            }
        }
        let len = self.length()?;
        // The last id; then the first id, the last deleted id and a count.
        let ids = if kind >= STREAM_2 { 7 } else { 2 };
        for _ in 0..ids {
            self.length()?;
        }
        for _ in 0..self.length()? {
            self.group(kind)?;
        }
        Ok(value("stream", len, Sample::Entries(entries)))
    }

    fn group(&mut self, kind: u8) -> Result<(), RdbError> {
        self.skip_string()?;
        for _ in 0..if kind >= STREAM_2 { 3 } else { 2 } {
            self.length()?;
        }
        for _ in 0..self.length()? {
            // The id and the time of the delivery, and the number of deliveries.
            self.skip(16 + 8)?;
            self.length()?;
        }
        for _ in 0..self.length()? {
            self.skip_string()?;
            self.skip(if kind >= STREAM_3 { 16 } else { 8 })?;
            let pending = self.length()?;
            self.skip(pending.saturating_mul(16))?;
        }
        Ok(())
    }

    /// The value of a module, which only the module can read; its parts are marked so that others can skip it.
    fn module(&mut self) -> Result<ReadValue, RdbError> {
        let id = self.length()?;
        self.skip_module()?;
        Ok(ReadValue { kind: module_name(id), len: None, sample: Sample::Unread })
    }

    pub(super) fn skip_module(&mut self) -> Result<(), RdbError> {
        loop {
            match self.length()? {
                0 => return Ok(()),
                1 | 2 => drop(self.length()?),
                3 => self.skip(4)?,
                4 => self.skip(8)?,
                5 => self.skip_string()?,
                _ => return Err(self.error("unknown part of a module's value")),
            }
        }
    }
}

/// The name of a module's type: nine characters of six bits each, before ten bits of its version.
fn module_name(id: u64) -> String {
    const CHARS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).rev().map(|at| char::from(CHARS[(id >> (10 + 6 * at) & 0x3f) as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_is_named_and_skipped() {
        // ReJSON-RL, version 3, with an unsigned number and a string.
        let name = b"ReJSON-RL".iter().fold(0_u64, |id, char| {
            let chars = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            id << 6 | chars.iter().position(|known| known == char).unwrap() as u64
        });
        let mut bytes = vec![0x81];
        bytes.extend((name << 10 | 3).to_be_bytes());
        bytes.extend([2, 7, 5, 2, b'{', b'}', 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let read = Input::new(bytes.as_slice()).value(7).unwrap();
        assert_eq!((read.kind.as_str(), read.len), ("ReJSON-RL", None));
    }

    #[test]
    fn hash_fields_with_a_ttl_are_read() {
        let bytes = [&[0; 8][..], &[2, 5, 1, b'a', 1, b'x', 0, 1, b'b', 1, b'y']].concat();
        let read = Input::new(bytes.as_slice()).value(24).unwrap();
        let Sample::Hash { fields, whole: true } = read.sample else { panic!("{:?}", read.sample) };
        assert_eq!(fields, [(b"a".to_vec(), b"x".to_vec()), (b"b".to_vec(), b"y".to_vec())]);
    }
}
