//! Lua values as JSON.

use mlua::{Function, LuaString, Result, Table, Value};

use super::settings::{InvalidNumbers, Settings};
use crate::number::{write_float, write_general};
use crate::script::library::{Call, Limits, MAX_DEPTH, type_name};

/// `next` is Lua's function that iterates over a table.
pub(super) fn encode(
    call: &Call<'_>,
    next: &Function,
    limits: &Limits,
    settings: Settings,
) -> Result<LuaString> {
    let (1, Some(value)) = (call.count(), call.value(1)) else {
        return Err(call.bad_argument(1, "expected 1 argument"));
    };
    let mut encoder = Encoder { call, next, limits, settings, out: Vec::new(), open: Vec::new(), values: 0 };
    encoder.value(value)?;
    while let Some(table) = encoder.open.pop() {
        encoder.continue_table(table)?;
    }
    call.lua.create_string(encoder.out)
}

/// A table of which a part is written. The tables that contain it are kept in a list and not on the stack, which could
/// overflow.
enum Open {
    /// With the number of items that are written, and of all items.
    Array(Table, i32, i32),
    /// With the last key that is written.
    Object(Table, Value),
}

struct Encoder<'a> {
    call: &'a Call<'a>,
    next: &'a Function,
    limits: &'a Limits,
    settings: Settings,
    out: Vec<u8>,
    open: Vec<Open>,
    values: usize,
}

impl Encoder<'_> {
    /// Writes a value, or the beginning of a table.
    fn value(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::String(text) => self.text(&text.as_bytes())?,
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::Boolean(true) => self.write("true"),
            Value::Boolean(false) => self.write("false"),
            Value::Table(table) => self.begin_table(table)?,
            Value::Nil => self.write("null"),
            null if null.is_null() => self.write("null"),
            other => return Err(self.refuse(other, "type not supported")),
        }
        self.values += 1;
        if self.values.is_multiple_of(64) {
            self.limits.check(self.call.lua, self.out.len())?;
        }
        Ok(())
    }

    fn begin_table(&mut self, table: &Table) -> Result<()> {
        let depth = self.open.len() + 1;
        let max_depth = MAX_DEPTH.min(self.settings.encode_max_depth.unsigned_abs() as usize);
        if depth > max_depth {
            return Err(self.call.error(format!("Cannot serialise, excessive nesting ({depth})")));
        }
        self.open.push(match self.array_length(table)? {
            Some(length) => {
                self.out.push(b'[');
                Open::Array(table.clone(), 0, length)
            }
            None => {
                self.out.push(b'{');
                Open::Object(table.clone(), Value::Nil)
            }
        });
        Ok(())
    }

    /// Writes the next item of a table, or its end.
    fn continue_table(&mut self, table: Open) -> Result<()> {
        match table {
            Open::Array(_, written, length) if written == length => self.out.push(b']'),
            Open::Array(table, written, length) => {
                if written > 0 {
                    self.out.push(b',');
                }
                let item = table.raw_get::<Value>(written + 1)?;
                self.open.push(Open::Array(table, written + 1, length));
                self.value(&item)?;
            }
            Open::Object(table, last_key) => {
                let is_first = last_key.is_nil();
                let (key, value): (Value, Value) = self.next.call((&table, last_key))?;
                if key.is_nil() {
                    self.out.push(b'}');
                    return Ok(());
                }
                if !is_first {
                    self.out.push(b',');
                }
                self.key(&key)?;
                self.open.push(Open::Object(table, key));
                self.value(&value)?;
            }
        }
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Result<()> {
        match key {
            Value::String(text) => self.text(&text.as_bytes())?,
            Value::Integer(_) | Value::Number(_) => {
                self.out.push(b'"');
                self.value(key)?;
                self.out.push(b'"');
            }
            _ => return Err(self.refuse(key, "table key must be a number or string")),
        }
        self.out.push(b':');
        Ok(())
    }

    /// The length of a table that is an array: all its keys are positive integers, and not too many are missing.
    fn array_length(&self, table: &Table) -> Result<Option<i32>> {
        let (mut max, mut items) = (0, 0i32);
        for pair in table.pairs::<Value, Value>() {
            match pair?.0 {
                Value::Integer(key) if key >= 1 => {
                    if key > i64::from(max) {
                        // C's conversion of a key that is too large.
                        max = i32::try_from(key).unwrap_or(i32::MIN);
                    }
                    items = items.wrapping_add(1);
                }
                Value::Number(key) if key >= 1.0 && key.floor() == key => {
                    max = i32::MIN;
                    items = items.wrapping_add(1);
                }
                _ => return Ok(None),
            }
        }
        let sparse = self.settings.sparse_arrays;
        if sparse.ratio > 0 && max > items.wrapping_mul(sparse.ratio) && max > sparse.safe_length {
            if !sparse.as_objects {
                return Err(self.refuse(&Value::Table(table.clone()), "excessively sparse array"));
            }
            return Ok(None);
        }
        // An empty table is an object.
        Ok((max > 0).then_some(max))
    }

    fn number(&mut self, number: f64) -> Result<()> {
        if number.is_finite() {
            // Most numbers are small integers, which need no rounding.
            if number.fract() == 0.0 && number.abs() < 1e9 && self.settings.number_digits >= 9 {
                self.write(&write_float(number));
            } else {
                self.write(&write_general(number, self.settings.number_digits.unsigned_abs() as usize));
            }
            return Ok(());
        }
        match self.settings.encode_invalid_numbers {
            InvalidNumbers::Refuse => {
                return Err(self.refuse(&Value::Number(number), "must not be NaN or Inf"));
            }
            InvalidNumbers::Encode if number.is_nan() => self.write("nan"),
            InvalidNumbers::Encode => self.write(&write_float(number)),
            InvalidNumbers::Null => self.write("null"),
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) -> Result<()> {
        self.out.push(b'"');
        // An escaped byte needs up to six, so the limits are checked on the way.
        for part in text.chunks(1 << 16) {
            part.iter().for_each(|byte| self.character(*byte));
            if part.len() == 1 << 16 {
                self.limits.check(self.call.lua, self.out.len())?;
            }
        }
        self.out.push(b'"');
        Ok(())
    }

    fn character(&mut self, byte: u8) {
        match byte {
            b'"' => self.write("\\\""),
            b'\\' => self.write("\\\\"),
            b'/' => self.write("\\/"),
            0x08 => self.write("\\b"),
            b'\t' => self.write("\\t"),
            b'\n' => self.write("\\n"),
            0x0c => self.write("\\f"),
            b'\r' => self.write("\\r"),
            0x00..=0x1f | 0x7f => self.write(&format!("\\u{byte:04x}")),
            _ => self.out.push(byte),
        }
    }

    fn write(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn refuse(&self, value: &Value, reason: &str) -> mlua::Error {
        self.call.error(format!("Cannot serialise {}: {reason}", type_name(value)))
    }
}
