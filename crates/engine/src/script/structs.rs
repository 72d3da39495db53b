//! The library `struct`: values as the fields of a C structure.

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};

use super::convert::{truncate, truncate_unsigned};
use super::library::{Call, Limits, add};

pub(super) fn library(lua: &Lua, limits: &Limits) -> Result<Table> {
    let structs = lua.create_table()?;
    let limits = limits.clone();
    add(lua, &structs, "pack", move |call| pack(call, &limits))?;
    add(lua, &structs, "unpack", unpack)?;
    add(lua, &structs, "size", size)?;
    Ok(structs)
}

const MAX_INTEGER_SIZE: i32 = 32;
const MAX_ALIGNMENT: i32 = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Endian {
    Big,
    Little,
}

/// Reads the options of a format.
struct Format<'a> {
    call: &'a Call<'a>,
    text: &'a [u8],
    endian: Endian,
    alignment: i32,
}

/// One option of a format.
#[derive(Clone, Copy)]
struct Field {
    option: u8,
    size: usize,
}

impl<'a> Format<'a> {
    /// A NUL ends the format, as in C.
    fn new(call: &'a Call<'a>, text: &'a [u8]) -> Format<'a> {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Format { call, text, endian: Endian::Little, alignment: 1 }
    }

    fn next(&mut self) -> Result<Option<Field>> {
        let Some((&option, rest)) = self.text.split_first() else { return Ok(None) };
        self.text = rest;
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'f' => 4,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'c' => self.number(1)?,
            b'i' | b'I' => match self.number(4)? {
                size if size > MAX_INTEGER_SIZE => {
                    return Err(self
                        .call
                        .error(format!("integral size {size} is larger than limit of {MAX_INTEGER_SIZE}")));
                }
                size => size,
            },
            _ => 0,
        };
        Ok(Some(Field { option, size: size.unsigned_abs() as usize }))
    }

    /// The digits after an option.
    fn number(&mut self, default: i32) -> Result<i32> {
        let digits = self.text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.text.split_at(digits);
        self.text = rest;
        if number.is_empty() {
            return Ok(default);
        }
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        number.ok_or_else(|| self.call.error("integral size overflow"))
    }

    /// The number of bytes before a field at this position.
    fn padding(&self, at: usize, field: Field) -> usize {
        if field.size == 0 || field.option == b'c' {
            return 0;
        }
        let size = field.size.min(self.alignment.unsigned_abs() as usize);
        size.wrapping_sub(at & (size - 1)) & (size - 1)
    }

    /// An option that is not a field.
    fn control(&mut self, option: u8) -> Result<()> {
        match option {
            b' ' => {}
            b'>' => self.endian = Endian::Big,
            b'<' => self.endian = Endian::Little,
            b'!' => {
                let alignment = self.number(MAX_ALIGNMENT)?;
                if alignment.count_ones() != 1 || alignment < 0 {
                    return Err(self.call.error(format!("alignment {alignment} is not a power of 2")));
                }
                self.alignment = alignment;
            }
            _ => {
                return Err(self
                    .call
                    .bad_argument(1, [b"invalid format option '", &[option][..], b"'"].concat()));
            }
        }
        Ok(())
    }

    /// Changes little-endian bytes to the order of the format, and back.
    fn order(&self, bytes: &mut [u8]) {
        if self.endian == Endian::Big {
            bytes.reverse();
        }
    }
}

fn pack(call: &Call<'_>, limits: &Limits) -> Result<LuaString> {
    let format = call.string(1)?;
    let format = format.as_bytes();
    let mut format = Format::new(call, &format);
    let mut out: Vec<u8> = Vec::new();
    let mut argument = 2;
    while let Some(field) = format.next()? {
        out.resize(out.len() + format.padding(out.len(), field), 0);
        let start = out.len();
        match field.option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = number(call, argument)?;
                let integer =
                    if number < 0.0 { truncate(number).cast_unsigned() } else { truncate_unsigned(number) };
                let mut bytes = [0; MAX_INTEGER_SIZE as usize];
                bytes[..8].copy_from_slice(&integer.to_le_bytes());
                out.extend_from_slice(&bytes[..field.size]);
                format.order(&mut out[start..]);
            }
            b'x' => out.push(0),
            b'f' => {
                out.extend_from_slice(&(number(call, argument)? as f32).to_le_bytes());
                format.order(&mut out[start..]);
            }
            b'd' => {
                out.extend_from_slice(&number(call, argument)?.to_le_bytes());
                format.order(&mut out[start..]);
            }
            b'c' | b's' => {
                check_given(call, argument, "string")?;
                let text = call.string(argument)?;
                let text = text.as_bytes();
                let size = if field.size == 0 { text.len() } else { field.size };
                // As in Redis, the error has the number of the next argument.
                let part = text.get(..size);
                let part = part.ok_or_else(|| call.bad_argument(argument + 1, "string too short"))?;
                limits.check(call.lua, out.len() + size)?;
                out.extend_from_slice(part);
                out.extend((field.option == b's').then_some(0));
            }
            option => {
                format.control(option)?;
                continue;
            }
        }
        argument += usize::from(field.option != b'x');
    }
    call.lua.create_string(out)
}

fn number(call: &Call<'_>, argument: usize) -> Result<f64> {
    check_given(call, argument, "number")?;
    call.number(argument)
}

/// In Redis, the argument after the last one is nil here.
fn check_given(call: &Call<'_>, argument: usize, expected: &str) -> Result<()> {
    if argument > call.count() {
        return Err(call.bad_argument(argument, format!("{expected} expected, got nil")));
    }
    Ok(())
}

fn unpack(call: &Call<'_>) -> Result<MultiValue> {
    let (format, data) = (call.string(1)?, call.string(2)?);
    let (format, data) = (format.as_bytes(), data.as_bytes());
    let start = call.integer_or(3, 1)?;
    if start == 0 {
        return Err(call.bad_argument(3, "offset must be 1 or greater"));
    }
    let mut at = start.cast_unsigned().wrapping_sub(1) as usize;
    let mut format = Format::new(call, &format);
    let mut found = MultiValue::new();
    let part = |at: usize, size: usize| {
        let part = data.get(at..at.saturating_add(size));
        part.ok_or_else(|| call.bad_argument(2, "data string too short"))
    };
    while let Some(field) = format.next()? {
        at = at.wrapping_add(format.padding(at, field));
        let bytes = part(at, field.size)?;
        call.check_results(found.len(), "too many results")?;
        let mut size = field.size;
        match field.option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                found.push_back(Value::Number(integer(&format, bytes, field.option)));
            }
            b'x' => {}
            b'f' => found.push_back(Value::Number(f32::from_le_bytes(ordered(&format, bytes)).into())),
            b'd' => found.push_back(Value::Number(f64::from_le_bytes(ordered(&format, bytes)))),
            b'c' => {
                if size == 0 {
                    let previous = found.pop_back().unwrap_or(Value::Nil);
                    let previous = call.lua.coerce_number(previous)?;
                    let previous = previous.ok_or_else(|| call.error("format 'c0' needs a previous size"))?;
                    size = truncate_unsigned(previous) as usize;
                }
                found.push_back(Value::String(call.lua.create_string(part(at, size)?)?));
            }
            b's' => {
                let length = data[at..].iter().position(|byte| *byte == 0);
                let length = length.ok_or_else(|| call.error("unfinished string in data"))?;
                found.push_back(Value::String(call.lua.create_string(&data[at..at + length])?));
                size = length + 1;
            }
            option => format.control(option)?,
        }
        at = at.wrapping_add(size);
    }
    found.push_back(Value::Number((at as u64).wrapping_add(1).cast_signed() as f64));
    Ok(found)
}

/// Only the lowest 64 bits are used.
fn integer(format: &Format<'_>, bytes: &[u8], option: u8) -> f64 {
    let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value = match format.endian {
        Endian::Big => bytes.iter().fold(0, add),
        Endian::Little => bytes.iter().rev().fold(0, add),
    };
    if option.is_ascii_uppercase() {
        return value as f64;
    }
    // For more than eight bytes, C leaves the shift undefined; x86 uses its last six bits.
    let sign_bits = u64::MAX.wrapping_shl((bytes.len() as u32 * 8).wrapping_sub(1));
    let value = if value & sign_bits == 0 { value } else { value | sign_bits };
    value.cast_signed() as f64
}

fn ordered<const N: usize>(format: &Format<'_>, bytes: &[u8]) -> [u8; N] {
    let mut ordered = [0; N];
    ordered.copy_from_slice(bytes);
    format.order(&mut ordered);
    ordered
}

fn size(call: &Call<'_>) -> Result<Value> {
    let format = call.string(1)?;
    let format = format.as_bytes();
    let mut format = Format::new(call, &format);
    let mut size = 0usize;
    while let Some(field) = format.next()? {
        size = size.wrapping_add(format.padding(size, field));
        match field.option {
            b's' => return Err(call.bad_argument(1, "option 's' has no fixed size")),
            b'c' if field.size == 0 => return Err(call.bad_argument(1, "option 'c0' has no fixed size")),
            option if !option.is_ascii_alphanumeric() => format.control(option)?,
            _ => {}
        }
        size = size.wrapping_add(field.size);
    }
    Ok(Value::Number((size as u64).cast_signed() as f64))
}
