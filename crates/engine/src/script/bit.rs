//! The library `bit`: operations on the low 32 bits of numbers.

use mlua::{Lua, Result, Table, Value};

use super::library::{Call, add};

type Operation = fn(u32, u32) -> u32;

pub(super) fn library(lua: &Lua) -> Result<Table> {
    let bit = lua.create_table()?;
    add(lua, &bit, "tobit", |call| Ok(signed(bits(call, 1)?)))?;
    add(lua, &bit, "bnot", |call| Ok(signed(!bits(call, 1)?)))?;
    add(lua, &bit, "bswap", |call| Ok(signed(bits(call, 1)?.swap_bytes())))?;
    add(lua, &bit, "tohex", to_hex)?;
    let folds: [(&str, Operation); 3] =
        [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, fold) in folds {
        add(lua, &bit, name, move |call| {
            let rest = (2..=call.count()).rev();
            let all = rest.fold(bits(call, 1), |all, at| Ok(fold(all?, bits(call, at)?)));
            all.map(signed)
        })?;
    }
    let shifts: [(&str, Operation); 5] = [
        ("lshift", |bits, by| bits << by),
        ("rshift", |bits, by| bits >> by),
        ("arshift", |bits, by| (bits.cast_signed() >> by).cast_unsigned()),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, shift) in shifts {
        add(lua, &bit, name, move |call| Ok(signed(shift(bits(call, 1)?, bits(call, 2)? & 31))))?;
    }
    Ok(bit)
}

/// The low bits of an argument. A fraction is rounded.
fn bits(call: &Call<'_>, at: usize) -> Result<u32> {
    // The sum's mantissa ends with the bits of the integer.
    const TWO_52_AND_51: f64 = 6_755_399_441_055_744.0;
    Ok((call.number(at)? + TWO_52_AND_51).to_bits() as u32)
}

fn signed(bits: u32) -> Value {
    Value::Number(f64::from(bits.cast_signed()))
}

/// The last digits of a number, in upper case if their number is negative.
fn to_hex(call: &Call<'_>) -> Result<String> {
    let number = bits(call, 1)?;
    let digits = if call.count() < 2 { 8 } else { bits(call, 2)?.cast_signed() };
    let all = if digits < 0 { format!("{number:08X}") } else { format!("{number:08x}") };
    Ok(all[8 - digits.unsigned_abs().min(8) as usize..].to_owned())
}
