//! Lua values as MessagePack.

use mlua::{Lua, LuaString, Result, Table, Value};

use crate::script::convert::truncate;
use crate::script::library::{Call, Limits};

/// A table in this number of tables becomes nil.
const MAX_DEPTH: usize = 16;

pub(super) fn pack(call: &Call<'_>, limits: &Limits) -> Result<LuaString> {
    if call.count() == 0 {
        return Err(call.bad_argument(0, "MessagePack pack needs input."));
    }
    let mut packer = Packer { lua: call.lua, limits, out: Vec::new(), values: 0 };
    for value in (1..=call.count()).filter_map(|at| call.value(at)) {
        packer.value(value, 0)?;
    }
    call.lua.create_string(packer.out)
}

struct Packer<'a> {
    lua: &'a Lua,
    limits: &'a Limits,
    out: Vec<u8>,
    values: usize,
}

impl Packer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        match value {
            Value::Boolean(false) => self.out.push(0xc2),
            Value::Boolean(true) => self.out.push(0xc3),
            Value::Integer(number) => self.integer(*number),
            Value::Number(number) => self.number(*number),
            Value::String(text) => {
                let text = text.as_bytes();
                self.limits.check(self.lua, self.out.len() + text.len())?;
                self.length(text.len(), Head::TEXT);
                self.out.extend_from_slice(&text);
            }
            Value::Table(table) if depth < MAX_DEPTH => self.table(table, depth)?,
            _ => self.out.push(0xc0),
        }
        self.values += 1;
        if self.values.is_multiple_of(64) {
            self.limits.check(self.lua, self.out.len())?;
        }
        Ok(())
    }

    fn number(&mut self, number: f64) {
        let integer = truncate(number);
        if integer as f64 == number {
            self.integer(integer);
        } else if f64::from(number as f32) == number {
            self.tagged(0xca, (number as f32).to_be_bytes());
        } else {
            self.tagged(0xcb, number.to_be_bytes());
        }
    }

    /// In the shortest form.
    fn integer(&mut self, number: i64) {
        match number {
            -32..=0x7f => self.out.push(number as u8),
            0x80..=0xff => self.tagged(0xcc, [number as u8]),
            0x100..=0xffff => self.tagged(0xcd, (number as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.tagged(0xce, (number as u32).to_be_bytes()),
            0x1_0000_0000.. => self.tagged(0xcf, number.to_be_bytes()),
            -0x80..=-33 => self.tagged(0xd0, [number as u8]),
            -0x8000..=-0x81 => self.tagged(0xd1, (number as i16).to_be_bytes()),
            -0x8000_0000..=-0x8001 => self.tagged(0xd2, (number as i32).to_be_bytes()),
            ..=-0x8000_0001 => self.tagged(0xd3, number.to_be_bytes()),
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        let mut pairs = 0;
        let mut is_array = true;
        let mut max = 0;
        for pair in table.pairs::<Value, Value>() {
            let (key, _) = pair?;
            pairs += 1;
            match index(&key) {
                Some(key) => max = max.max(key),
                None => is_array = false,
            }
        }
        if is_array && max == pairs {
            self.length(pairs, Head::ARRAY);
            for at in 1..=pairs {
                self.value(&table.raw_get::<Value>(at)?, depth + 1)?;
            }
            return Ok(());
        }
        self.length(pairs, Head::MAP);
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, depth + 1)?;
            self.value(&value, depth + 1)?;
        }
        Ok(())
    }

    fn length(&mut self, length: usize, head: Head) {
        match length {
            _ if length < head.short_limit => self.out.push(head.short | length as u8),
            0..=0xff if head.byte.is_some() => {
                self.out.extend(head.byte);
                self.out.push(length as u8);
            }
            0..=0xffff => self.tagged(head.word, (length as u16).to_be_bytes()),
            _ => self.tagged(head.word + 1, (length as u32).to_be_bytes()),
        }
    }

    fn tagged<const N: usize>(&mut self, tag: u8, bytes: [u8; N]) {
        self.out.push(tag);
        self.out.extend_from_slice(&bytes);
    }
}

/// How the length of a value is written.
#[derive(Clone, Copy)]
struct Head {
    short: u8,
    short_limit: usize,
    byte: Option<u8>,
    /// For 16 bits; the tag for 32 bits is the next one.
    word: u8,
}

impl Head {
    const TEXT: Head = Head { short: 0xa0, short_limit: 32, byte: Some(0xd9), word: 0xda };
    const ARRAY: Head = Head { short: 0x90, short_limit: 16, byte: None, word: 0xdc };
    const MAP: Head = Head { short: 0x80, short_limit: 16, byte: None, word: 0xde };
}

/// A key that can be the index of an array.
fn index(key: &Value) -> Option<usize> {
    let index = match key {
        Value::Integer(key) => i32::try_from(*key).ok()?,
        _ => return None,
    };
    usize::try_from(index).ok().filter(|index| *index > 0)
}
