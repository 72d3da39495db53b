//! MessagePack as Lua values.

use mlua::{MultiValue, Result, Table, Value};

use crate::script::library::{Call, LibraryFailed, Limits, MAX_DEPTH};

/// The hint of Redis's error for too many or too deep values.
const TOO_MANY: &str = "too many return values at once; use unpack_one or unpack_limit instead.";

/// Unpacks at most `limit` values from `offset` on, and returns the next offset before them. Without both, unpacks all
/// values and returns only them.
pub(super) fn unpack(call: &Call<'_>, limits: &Limits, limit: i64, offset: i64) -> Result<MultiValue> {
    let data = call.string(1)?;
    let data = data.as_bytes();
    let unpack_all = limit == 0 && offset == 0;
    if limit < 0 || offset < 0 {
        // Redis also reports the length as the limit.
        return Err(call.error(format!(
            "Invalid request to unpack with offset of {} and limit of {}.",
            offset as i32,
            data.len() as i32
        )));
    }
    let start = usize::try_from(offset).ok().filter(|start| *start <= data.len()).ok_or_else(|| {
        call.error(format!("Start offset {} greater than input length {}.", offset as i32, data.len() as i32))
    })?;
    let limit = if unpack_all { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    let mut unpacker = Unpacker { call, limits, rest: &data[start..], open: Vec::new(), values: 0 };
    let mut found = limits.lifted(call.lua, || unpacker.values(limit))?;
    if !unpack_all {
        let next = if unpacker.rest.is_empty() { -1.0 } else { (data.len() - unpacker.rest.len()) as f64 };
        found.push_front(Value::Number(next));
    }
    Ok(found)
}

/// A table of which a part was read. The tables that contain it are kept in a list and not on the stack, which could
/// overflow.
enum Open {
    /// With the number of items that were read and that follow.
    Array(Table, usize, usize),
    /// With the key, if it was read, and the number of pairs that follow.
    Map(Table, Option<Value>, usize),
}

struct Unpacker<'a> {
    call: &'a Call<'a>,
    limits: &'a Limits,
    rest: &'a [u8],
    open: Vec<Open>,
    values: usize,
}

impl<'a> Unpacker<'a> {
    fn values(&mut self, limit: usize) -> Result<MultiValue> {
        let mut found = MultiValue::new();
        while !self.rest.is_empty() && found.len() < limit {
            self.call.check_results(found.len(), TOO_MANY)?;
            found.push_back(self.whole_value()?);
        }
        Ok(found)
    }

    fn whole_value(&mut self) -> Result<Value> {
        loop {
            let mut complete = self.value()?;
            // A complete value may be the last one of the table that contains it, and so on.
            while let Some(value) = complete {
                let Some(table) = self.open.pop() else { return Ok(value) };
                complete = self.add(table, value)?;
            }
        }
    }

    /// A value, or `None` at the beginning of a table that is not empty.
    fn value(&mut self) -> Result<Option<Value>> {
        self.values += 1;
        if self.values.is_multiple_of(64) {
            self.limits.check(self.call.lua, 0)?;
        }
        let [tag] = self.bytes()?;
        Ok(Some(match tag {
            0x00..=0x7f => number(i64::from(tag)),
            0xe0..=0xff => number(i64::from(tag.cast_signed())),
            0xa0..=0xbf => self.text(usize::from(tag & 0x1f))?,
            0x90..=0x9f => return self.array(usize::from(tag & 0x0f)),
            0x80..=0x8f => return self.map(usize::from(tag & 0x0f)),
            0xc0 => Value::Nil,
            0xc2 => Value::Boolean(false),
            0xc3 => Value::Boolean(true),
            0xca => Value::Number(f64::from(f32::from_be_bytes(self.bytes()?))),
            0xcb => Value::Number(f64::from_be_bytes(self.bytes()?)),
            0xcc => number(i64::from(u8::from_be_bytes(self.bytes()?))),
            0xcd => number(i64::from(u16::from_be_bytes(self.bytes()?))),
            0xce => number(i64::from(u32::from_be_bytes(self.bytes()?))),
            // Redis reads unsigned integers of 64 bits as signed ones.
            0xcf | 0xd3 => number(i64::from_be_bytes(self.bytes()?)),
            0xd0 => number(i64::from(i8::from_be_bytes(self.bytes()?))),
            0xd1 => number(i64::from(i16::from_be_bytes(self.bytes()?))),
            0xd2 => number(i64::from(i32::from_be_bytes(self.bytes()?))),
            0xd9 => {
                let length = u8::from_be_bytes(self.bytes()?);
                self.text(length.into())?
            }
            0xda => {
                let length = self.length_16()?;
                self.text(length)?
            }
            0xdb => {
                let length = self.length_32()?;
                self.text(length)?
            }
            0xdc => {
                let length = self.length_16()?;
                return self.array(length);
            }
            0xdd => {
                let length = self.length_32()?;
                return self.array(length);
            }
            0xde => {
                let length = self.length_16()?;
                return self.map(length);
            }
            0xdf => {
                let length = self.length_32()?;
                return self.map(length);
            }
            0xc1 | 0xc4..=0xc9 | 0xd4..=0xd8 => return Err(self.call.error("Bad data format in input.")),
        }))
    }

    fn array(&mut self, length: usize) -> Result<Option<Value>> {
        let table = self.table()?;
        if length == 0 {
            return Ok(Some(Value::Table(table)));
        }
        self.open.push(Open::Array(table, 0, length));
        Ok(None)
    }

    fn map(&mut self, length: usize) -> Result<Option<Value>> {
        let table = self.table()?;
        if length == 0 {
            return Ok(Some(Value::Table(table)));
        }
        self.open.push(Open::Map(table, None, length));
        Ok(None)
    }

    /// Adds a value to a table. Returns the table at its end.
    fn add(&mut self, table: Open, value: Value) -> Result<Option<Value>> {
        self.open.push(match table {
            Open::Array(table, read, left) => {
                table.raw_set(read + 1, value)?;
                if left == 1 {
                    return Ok(Some(Value::Table(table)));
                }
                Open::Array(table, read + 1, left - 1)
            }
            Open::Map(table, None, left) => Open::Map(table, Some(value), left),
            Open::Map(_, Some(Value::Nil), _) => return Err(LibraryFailed::error("table index is nil")),
            Open::Map(_, Some(Value::Number(key)), _) if key.is_nan() => {
                return Err(LibraryFailed::error("table index is NaN"));
            }
            Open::Map(table, Some(key), left) => {
                table.raw_set(key, value)?;
                if left == 1 {
                    return Ok(Some(Value::Table(table)));
                }
                Open::Map(table, None, left - 1)
            }
        });
        Ok(None)
    }

    fn table(&self) -> Result<Table> {
        if self.open.len() >= MAX_DEPTH {
            return Err(self.call.error(format!("stack overflow ({TOO_MANY})")));
        }
        self.call.lua.create_table()
    }

    fn text(&mut self, length: usize) -> Result<Value> {
        let (text, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.missing())?;
        self.rest = rest;
        self.call.lua.create_string(text).map(Value::String)
    }

    fn length_16(&mut self) -> Result<usize> {
        Ok(u16::from_be_bytes(self.bytes()?).into())
    }

    fn length_32(&mut self) -> Result<usize> {
        Ok(u32::from_be_bytes(self.bytes()?) as usize)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(|| self.missing())?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn missing(&self) -> mlua::Error {
        self.call.error("Missing bytes in input.")
    }
}

fn number(value: i64) -> Value {
    Value::Number(value as f64)
}
