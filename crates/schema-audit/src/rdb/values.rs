//! The values of keys, as far as a check needs them: type, length and the first elements.

use std::io::Read;

use hob_schema::check::{GroupFacts, Sample};

use super::RdbError;
use super::input::Input;
use super::packed::{Elements, integers, listpack, stream_entries, ziplist, zipmap};

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
    /// When fields of a hash expire, in Unix milliseconds; `None` if they do not.
    pub(super) field_expires_ms: Vec<(Vec<u8>, Option<u64>)>,
    /// The time in the id of the oldest entry of a stream.
    pub(super) oldest_id_ms: Option<u64>,
    pub(super) groups: Vec<GroupFacts>,
}

fn value(kind: &str, len: u64, sample: Sample) -> ReadValue {
    ReadValue {
        kind: kind.to_owned(),
        len: Some(len),
        sample,
        field_expires_ms: Vec::new(),
        oldest_id_ms: None,
        groups: Vec::new(),
    }
}

fn hash_value(len: u64, fields: Vec<ReadField>) -> ReadValue {
    let whole = fields.len() as u64 == len;
    let expires = fields.iter().map(|field| (field.name.clone(), field.expires_ms)).collect();
    let fields = fields.into_iter().map(|field| (field.name, field.value)).collect();
    ReadValue { field_expires_ms: expires, ..value("hash", len, Sample::Hash { fields, whole }) }
}

/// A field of a hash, and when it expires.
struct ReadField {
    name: Vec<u8>,
    value: Vec<u8>,
    expires_ms: Option<u64>,
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

    /// Fields and values; the later types have a time of expiry before each field, which one of them counts from the earliest
    /// one.
    fn hash(&mut self, kind: u8) -> Result<ReadValue, RdbError> {
        let earliest_ms = if kind == 24 { u64::from_le_bytes(self.bytes()?) } else { 1 };
        let len = self.length()?;
        let mut fields = Vec::new();
        for _ in 0..len {
            let time = if kind == 4 { 0 } else { self.length()? };
            let expires_ms = (time > 0).then(|| time.saturating_add(earliest_ms.saturating_sub(1)));
            let kept = self.field(&mut fields)?;
            if let Some(field) = fields.last_mut().filter(|_| kept) {
                field.expires_ms = expires_ms;
            }
        }
        Ok(hash_value(len, fields))
    }

    /// A hash of Valkey 9: after each value is the time at which the field expires.
    pub(super) fn valkey_hash(&mut self) -> Result<ReadValue, RdbError> {
        let len = self.length()?;
        let mut fields = Vec::new();
        for _ in 0..len {
            let kept = self.field(&mut fields)?;
            let expires = i64::from_le_bytes(self.bytes()?);
            if let Some(field) = fields.last_mut().filter(|_| kept) {
                field.expires_ms = u64::try_from(expires).ok();
            }
        }
        Ok(hash_value(len, fields))
    }

    /// Reads a field, and says whether it was kept.
    fn field(&mut self, fields: &mut Vec<ReadField>) -> Result<bool, RdbError> {
        let (name, name_len) = self.string_up_to(MAX_VALUE)?;
        let (value, value_len) = self.string_up_to(MAX_VALUE)?;
        let kept = fields.len() < MAX_ELEMENTS && name_len <= MAX_VALUE && value_len <= MAX_VALUE;
        if kept {
            fields.push(ReadField { name, value, expires_ms: None });
        }
        Ok(kept)
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
        let time = |text: &Vec<u8>| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
        let field = |field: &[Vec<u8>]| ReadField {
            name: field[0].clone(),
            value: field[1].clone(),
            expires_ms: field.get(2).and_then(time).filter(|time| *time > 0),
        };
        let fields = elements.chunks_exact(width).take(MAX_ELEMENTS).map(field).collect();
        Ok(hash_value((elements.len() / width) as u64, fields))
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
        let mut oldest_id_ms = None;
        for _ in 0..self.length()? {
            // The id of the first entry of the block.
            let id = self.string()?;
            oldest_id_ms = oldest_id_ms.or(id.first_chunk().map(|ms| u64::from_be_bytes(*ms)));
            let bytes = self.string()?;
            if entries.len() < MAX_ELEMENTS {
                let read = stream_entries(&bytes);
                entries.extend(read.ok_or_else(|| self.error("a block of a stream is damaged"))?);
                entries.truncate(MAX_ELEMENTS);
            }
        }
        let len = self.length()?;
        // The last id; then the first id, the last deleted id and a count. The first entry of a block may be deleted.
        let ids = if kind >= STREAM_2 { 7 } else { 2 };
        for at in 0..ids {
            let part = self.length()?;
            if at == 2 {
                oldest_id_ms = Some(part);
            }
        }
        let mut groups = Vec::new();
        for _ in 0..self.length()? {
            let group = self.group(kind)?;
            if groups.len() < MAX_ELEMENTS {
                groups.push(group);
            }
        }
        let oldest_id_ms = oldest_id_ms.filter(|_| len > 0);
        Ok(ReadValue { oldest_id_ms, groups, ..value("stream", len, Sample::Entries(entries)) })
    }

    fn group(&mut self, kind: u8) -> Result<GroupFacts, RdbError> {
        let name = self.string()?;
        for _ in 0..if kind >= STREAM_2 { 3 } else { 2 } {
            self.length()?;
        }
        let pending = self.length()?;
        for _ in 0..pending {
            // The id and the time of the delivery, and the number of deliveries.
            self.skip(16 + 8)?;
            self.length()?;
        }
        for _ in 0..self.length()? {
            self.skip_string()?;
            self.skip(if kind >= STREAM_3 { 16 } else { 8 })?;
            let own = self.length()?;
            self.skip(own.saturating_mul(16))?;
        }
        Ok(GroupFacts { name, pending })
    }

    /// The value of a module, which only the module can read; its parts are marked so that others can skip it.
    fn module(&mut self) -> Result<ReadValue, RdbError> {
        let id = self.length()?;
        self.skip_module()?;
        Ok(ReadValue { len: None, ..value(&module_name(id), 0, Sample::Unread) })
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
        let bytes = [&1_000_u64.to_le_bytes()[..], &[2, 5, 1, b'a', 1, b'x', 0, 1, b'b', 1, b'y']].concat();
        let read = Input::new(bytes.as_slice()).value(24).unwrap();
        let Sample::Hash { fields, whole: true } = read.sample else { panic!("{:?}", read.sample) };
        assert_eq!(fields, [(b"a".to_vec(), b"x".to_vec()), (b"b".to_vec(), b"y".to_vec())]);
        assert_eq!(read.field_expires_ms, [(b"a".to_vec(), Some(1_004)), (b"b".to_vec(), None)]);
        let none = [0xff; 8];
        let bytes =
            [&[2, 1, b'a', 1, b'x'][..], &1_004_u64.to_le_bytes(), &[1, b'b', 1, b'y'], &none].concat();
        let valkey = Input::new(bytes.as_slice()).valkey_hash().unwrap();
        assert_eq!(valkey.field_expires_ms, read.field_expires_ms);
    }
}
