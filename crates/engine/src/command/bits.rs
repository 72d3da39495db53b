//! Strings as arrays of bits.

use std::ops::Range;

use super::Args;
use super::options::index_range;
use crate::engine::Core;
use crate::number::{int, read_int};
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{EventClass, Str, Value};

pub(super) fn setbit(core: &mut Core, args: Args<'_>) -> CommandResult {
    let key = args[1];
    let offset = bit_offset(core, args[2])?;
    let bit = match read_int(args[3]) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(Failure::new("ERR bit is not an integer or out of range")),
    };
    let (at, mask) = (offset / 8, 0x80 >> (offset % 8));
    let (before, is_changed) = core.keys.upsert(key, |value: &mut Str| {
        let mut bytes = value.to_vec();
        let grows = bytes.len() <= at;
        bytes.resize(bytes.len().max(at + 1), 0);
        let before = bytes[at] & mask != 0;
        bytes[at] = if bit { bytes[at] | mask } else { bytes[at] & !mask };
        *value = Str::Raw(bytes);
        (before, grows || before != bit)
    })?;
    if is_changed {
        core.keys.changed(key, EventClass::String, "setbit");
    }
    Ok(Reply::flag(before))
}

pub(super) fn getbit(core: &mut Core, args: Args<'_>) -> CommandResult {
    let offset = bit_offset(core, args[2])?;
    let bytes = core.keys.read::<Str>(args[1])?.map(Str::to_vec).unwrap_or_default();
    Ok(Reply::flag(offset / 8 < bytes.len() && bit_at(&bytes, offset)))
}

fn bit_offset(core: &Core, text: &[u8]) -> CommandResult<usize> {
    let offset = read_int(text).and_then(|offset| usize::try_from(offset).ok());
    let offset = offset.filter(|offset| offset / 8 < core.settings.max_value_bytes);
    offset.ok_or(Failure::new("ERR bit offset is not an integer or out of range"))
}

fn bit_at(bytes: &[u8], offset: usize) -> bool {
    bytes[offset / 8] & (0x80 >> (offset % 8)) != 0
}

/// The bits between two indexes, of bytes or of bits.
fn bit_range(start: i64, stop: i64, unit: Option<&&[u8]>, bytes: usize) -> CommandResult<Range<usize>> {
    let bits_per_unit = match unit.map(|unit| unit.to_ascii_lowercase()).as_deref() {
        None | Some(b"byte") => 8,
        Some(b"bit") => 1,
        Some(_) => return Err(Failure::SYNTAX),
    };
    let units = bytes * 8 / bits_per_unit;
    // Unlike in lists, an index before the beginning means the beginning.
    let clamped = |index: i64| if index < 0 { (index.saturating_add(units as i64)).max(0) } else { index };
    let range = index_range(clamped(start), clamped(stop), units);
    Ok(range.start * bits_per_unit..range.end * bits_per_unit)
}

pub(super) fn bitcount(core: &mut Core, args: Args<'_>) -> CommandResult {
    let Some(value) = core.keys.read::<Str>(args[1])? else {
        return Ok(Reply::Int(0));
    };
    let bytes = value.to_vec();
    let range = match &args[2..] {
        [] => 0..bytes.len() * 8,
        [start, stop, unit @ ..] if unit.len() <= 1 => {
            let (start, stop) = (int(start)?, int(stop)?);
            let range = bit_range(start, stop, unit.first(), bytes.len())?;
            if start < 0 && stop < 0 && start > stop { 0..0 } else { range }
        }
        _ => return Err(Failure::SYNTAX),
    };
    Ok(Reply::len(count_ones(&bytes, range)))
}

fn count_ones(bytes: &[u8], range: Range<usize>) -> usize {
    let whole = range.start.div_ceil(8)..range.end / 8;
    if whole.start >= whole.end {
        return range.filter(|offset| bit_at(bytes, *offset)).count();
    }
    let edges = (range.start..whole.start * 8).chain(whole.end * 8..range.end);
    let ones: usize = bytes[whole].iter().map(|byte| byte.count_ones() as usize).sum();
    ones + edges.filter(|offset| bit_at(bytes, *offset)).count()
}

pub(super) fn bitpos(core: &mut Core, args: Args<'_>) -> CommandResult {
    let bit = match int(args[2])? {
        0 => false,
        1 => true,
        _ => return Err(Failure::new("ERR The bit argument must be 1 or 0.")),
    };
    let Some(value) = core.keys.read::<Str>(args[1])? else {
        return Ok(Reply::Int(if bit { -1 } else { 0 }));
    };
    let bytes = value.to_vec();
    let (range, ends_early) = match &args[3..] {
        [] => (0..bytes.len() * 8, false),
        [start] => (bit_range(int(start)?, -1, None, bytes.len())?, false),
        [start, stop, unit @ ..] if unit.len() <= 1 => {
            let start = int(start)?;
            // Redis checks the unit before the end.
            bit_range(0, 0, unit.first(), 0)?;
            (bit_range(start, int(stop)?, unit.first(), bytes.len())?, true)
        }
        _ => return Err(Failure::SYNTAX),
    };
    if range.is_empty() {
        return Ok(Reply::Int(-1));
    }
    let end = range.end;
    Ok(match first_bit(&bytes, range, bit) {
        Some(offset) => Reply::len(offset),
        // The string counts as followed by zeros, unless the client says where it ends.
        None if !bit && !ends_early => Reply::len(end),
        None => Reply::Int(-1),
    })
}

fn first_bit(bytes: &[u8], range: Range<usize>, bit: bool) -> Option<usize> {
    let without = if bit { 0x00 } else { 0xff };
    let mut offset = range.start;
    while offset < range.end {
        if offset.is_multiple_of(8) && offset + 8 <= range.end && bytes[offset / 8] == without {
            offset += 8;
        } else if bit_at(bytes, offset) == bit {
            return Some(offset);
        } else {
            offset += 1;
        }
    }
    None
}

pub(super) fn bitop(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (target, keys) = (args[2], &args[3..]);
    // `NOT` has one operand.
    let combine: Option<fn(u8, u8) -> u8> = match args[1].to_ascii_lowercase().as_slice() {
        b"and" => Some(|left, right| left & right),
        b"or" => Some(|left, right| left | right),
        b"xor" => Some(|left, right| left ^ right),
        b"not" if keys.len() == 1 => None,
        b"not" => return Err(Failure::new("ERR BITOP NOT must be called with a single source key.")),
        _ => return Err(Failure::SYNTAX),
    };
    // As in Redis, the sources are counted as read.
    core.keys.lookups.counted = true;
    let mut values = Vec::new();
    for key in keys {
        values.push(core.keys.read::<Str>(key)?.map(Str::to_vec).unwrap_or_default());
    }
    core.keys.lookups.counted = false;
    let length = values.iter().map(Vec::len).max().unwrap_or(0);
    let mut operands = values.into_iter();
    let mut result = operands.next().unwrap_or_default();
    result.resize(length, 0);
    match combine {
        None => result.iter_mut().for_each(|byte| *byte = !*byte),
        Some(combine) => operands.for_each(|operand| {
            // Shorter strings count as followed by zeros.
            let bytes = operand.iter().copied().chain(std::iter::repeat(0));
            result.iter_mut().zip(bytes).for_each(|(left, right)| *left = combine(*left, right));
        }),
    }
    if length > 0 {
        core.keys.put(target, Value::Str(Str::new(&result)), None);
        core.keys.changed(target, EventClass::String, "set");
    } else if core.keys.remove(target).is_some() {
        core.keys.changed(target, EventClass::Generic, "del");
    }
    Ok(Reply::len(length))
}
