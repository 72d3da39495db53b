//! Strings and counters.

use hob_commands::StringCommand;

use super::options::{Deadline, Options, index_range};
use super::{Args, Handler, bits};
use crate::engine::Core;
use crate::number::{LongDouble, int};
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{EventClass, Str, Value};

pub(super) fn handler(id: StringCommand) -> Handler {
    match id {
        StringCommand::Get => Handler::Data(get),
        StringCommand::Set => Handler::Data(set),
        StringCommand::SetNx => Handler::Data(setnx),
        StringCommand::SetEx => Handler::Data(setex),
        StringCommand::PSetEx => Handler::Data(psetex),
        StringCommand::GetSet => Handler::Data(getset),
        StringCommand::GetDel => Handler::Data(getdel),
        StringCommand::GetEx => Handler::Data(getex),
        StringCommand::MGet => Handler::Data(mget),
        StringCommand::MSet => Handler::Data(mset),
        StringCommand::MSetNx => Handler::Data(msetnx),
        StringCommand::SetRange => Handler::Data(setrange),
        StringCommand::Append => Handler::Data(append),
        StringCommand::StrLen => Handler::Data(strlen),
        StringCommand::SetBit => Handler::Data(bits::setbit),
        StringCommand::GetBit => Handler::Data(bits::getbit),
        StringCommand::BitCount => Handler::Data(bits::bitcount),
        StringCommand::BitPos => Handler::Data(bits::bitpos),
        StringCommand::BitOp => Handler::Data(bits::bitop),
        StringCommand::GetRange | StringCommand::SubStr => Handler::Data(getrange),
        StringCommand::Incr => Handler::Data(|core, args| add(core, args[1], 1)),
        StringCommand::Decr => Handler::Data(|core, args| add(core, args[1], -1)),
        StringCommand::IncrBy => Handler::Data(|core, args| add(core, args[1], int(args[2])?)),
        StringCommand::DecrBy => Handler::Data(decrby),
        StringCommand::IncrByFloat => Handler::Data(incrbyfloat),
    }
}

fn value_of(core: &mut Core, key: &[u8]) -> CommandResult<Reply> {
    // As in Redis, commands that return the old value and write a new one count and report a missing key as well.
    let counted = std::mem::replace(&mut core.keys.lookups.counted, true);
    let value = core.keys.read::<Str>(key).map(|value| value.map(Str::to_vec));
    core.keys.lookups.counted = counted;
    Ok(Reply::bulk_or_null(value?))
}

fn put(core: &mut Core, key: &[u8], value: &[u8], deadline: Option<u64>) {
    core.keys.put(key, Value::Str(Str::new(value)), deadline);
    core.keys.changed(key, EventClass::String, "set");
}

fn get(core: &mut Core, args: Args<'_>) -> CommandResult {
    value_of(core, args[1])
}

#[derive(Default)]
struct SetOptions<'a> {
    only_if: Option<Existence>,
    get: bool,
    keep_ttl: bool,
    deadline: Option<Deadline<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Existence {
    Missing,
    Present,
}

impl<'a> SetOptions<'a> {
    fn parse(args: Args<'a>) -> CommandResult<SetOptions<'a>> {
        let mut parsed = SetOptions::default();
        let mut options = Options::after(args, 3);
        while let Some(word) = options.next_word() {
            match word.as_str() {
                "nx" if parsed.only_if != Some(Existence::Present) => {
                    parsed.only_if = Some(Existence::Missing);
                }
                "xx" if parsed.only_if != Some(Existence::Missing) => {
                    parsed.only_if = Some(Existence::Present);
                }
                "get" => parsed.get = true,
                "keepttl" if parsed.deadline.is_none() => parsed.keep_ttl = true,
                "ex" | "px" | "exat" | "pxat"
                    if !parsed.keep_ttl && Deadline::is_compatible(parsed.deadline, &word) =>
                {
                    parsed.deadline = Deadline::from_option(&word, options.value()?);
                }
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(parsed)
    }
}

fn set(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (key, value) = (args[1], args[2]);
    let options = SetOptions::parse(args)?;
    let deadline = options.deadline.map(|deadline| deadline.resolve(core, "set")).transpose()?;
    let old = if options.get { Some(value_of(core, key)?) } else { None };
    let present = core.keys.contains(key);
    let wanted = match options.only_if {
        None => true,
        Some(Existence::Missing) => !present,
        Some(Existence::Present) => present,
    };
    if wanted {
        let kept = if options.keep_ttl { core.keys.deadline(key) } else { None };
        put(core, key, value, deadline.or(kept));
        if deadline.is_some() {
            core.keys.notify(key, EventClass::Generic, "expire");
        }
    }
    Ok(old.unwrap_or(if wanted { Reply::OK } else { Reply::Null }))
}

fn setnx(core: &mut Core, args: Args<'_>) -> CommandResult {
    let missing = !core.keys.contains(args[1]);
    if missing {
        put(core, args[1], args[2], None);
    }
    Ok(Reply::flag(missing))
}

fn setex(core: &mut Core, args: Args<'_>) -> CommandResult {
    set_for(core, args, "ex", "setex")
}

fn psetex(core: &mut Core, args: Args<'_>) -> CommandResult {
    set_for(core, args, "px", "psetex")
}

fn set_for(core: &mut Core, args: Args<'_>, unit: &str, command: &str) -> CommandResult {
    let deadline = Deadline::from_option(unit, args[2]).ok_or(Failure::SYNTAX)?.resolve(core, command)?;
    put(core, args[1], args[3], Some(deadline));
    core.keys.notify(args[1], EventClass::Generic, "expire");
    Ok(Reply::OK)
}

fn getset(core: &mut Core, args: Args<'_>) -> CommandResult {
    let old = value_of(core, args[1])?;
    put(core, args[1], args[2], None);
    Ok(old)
}

fn getdel(core: &mut Core, args: Args<'_>) -> CommandResult {
    let old = value_of(core, args[1])?;
    if core.keys.remove(args[1]).is_some() {
        core.keys.changed(args[1], EventClass::Generic, "del");
    }
    Ok(old)
}

fn getex(core: &mut Core, args: Args<'_>) -> CommandResult {
    let key = args[1];
    let mut deadline = None;
    let mut persist = false;
    let mut options = Options::after(args, 2);
    while let Some(word) = options.next_word() {
        match word.as_str() {
            "persist" if deadline.is_none() => persist = true,
            "ex" | "px" | "exat" | "pxat" if !persist && Deadline::is_compatible(deadline, &word) => {
                deadline = Deadline::from_option(&word, options.value()?);
            }
            _ => return Err(Failure::SYNTAX),
        }
    }
    let value = value_of(core, key)?;
    if value == Reply::Null {
        return Ok(value);
    }
    if let Some(deadline) = deadline {
        let deadline = deadline.resolve(core, "getex")?;
        if deadline <= core.keys.now_ms {
            core.keys.remove(key);
            core.keys.changed(key, EventClass::Generic, "del");
        } else {
            core.keys.set_deadline(key, Some(deadline));
            core.keys.changed(key, EventClass::Generic, "expire");
        }
    } else if persist && core.keys.deadline(key).is_some() {
        core.keys.set_deadline(key, None);
        core.keys.changed(key, EventClass::Generic, "persist");
    }
    Ok(value)
}

fn mget(core: &mut Core, args: Args<'_>) -> CommandResult {
    let values = args[1..].iter().map(|key| value_of(core, key).unwrap_or(Reply::Null));
    Ok(Reply::Array(values.collect()))
}

fn mset(core: &mut Core, args: Args<'_>) -> CommandResult {
    if args.len().is_multiple_of(2) {
        return Err(Failure::arity("mset"));
    }
    for pair in args[1..].chunks_exact(2) {
        put(core, pair[0], pair[1], None);
    }
    Ok(Reply::OK)
}

fn msetnx(core: &mut Core, args: Args<'_>) -> CommandResult {
    if args.len().is_multiple_of(2) {
        return Err(Failure::arity("msetnx"));
    }
    if args[1..].iter().step_by(2).any(|key| core.keys.contains(key)) {
        return Ok(Reply::Int(0));
    }
    mset(core, args).map(|_| Reply::Int(1))
}

fn setrange(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (key, bytes) = (args[1], args[3]);
    let offset = usize::try_from(int(args[2])?).map_err(|_| Failure::new("ERR offset is out of range"))?;
    let before = core.keys.read::<Str>(key)?.map_or(0, Str::len);
    if bytes.is_empty() {
        return Ok(Reply::len(before));
    }
    let end = offset.saturating_add(bytes.len());
    if end > core.settings.max_value_bytes {
        return Err(TOO_LONG);
    }
    core.keys.upsert(key, |value: &mut Str| value.write_at(offset, bytes))?;
    core.keys.changed(key, EventClass::String, "setrange");
    Ok(Reply::len(before.max(end)))
}

const TOO_LONG: Failure = Failure::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

fn append(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (key, tail) = (args[1], args[2]);
    let before = core.keys.read::<Str>(key)?.map(Str::len);
    let length = before.unwrap_or(0) + tail.len();
    if length > core.settings.max_value_bytes {
        return Err(TOO_LONG);
    }
    if before.is_some() {
        core.keys.update(key, |value: &mut Str| value.append(tail))?;
    } else {
        core.keys.put(key, Value::Str(Str::new(tail)), None);
    }
    core.keys.changed(key, EventClass::String, "append");
    Ok(Reply::len(length))
}

fn strlen(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(Reply::len(core.keys.read::<Str>(args[1])?.map_or(0, Str::len)))
}

fn getrange(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (start, stop) = (int(args[2])?, int(args[3])?);
    let Some(value) = core.keys.read::<Str>(args[1])? else {
        return Ok(Reply::bulk(""));
    };
    let bytes = value.to_vec();
    // Unlike in lists, a stop before the beginning still selects the first byte.
    let empty = start < 0 && stop < 0 && start > stop;
    let before_all = stop < 0 && stop.unsigned_abs() > bytes.len() as u64;
    let stop = if before_all { 0 } else { stop };
    let range = if empty { 0..0 } else { index_range(start, stop, bytes.len()) };
    Ok(Reply::bulk(&bytes[range]))
}

fn add(core: &mut Core, key: &[u8], by: i64) -> CommandResult {
    let changed = core.keys.update(key, |value: &mut Str| -> CommandResult<i64> {
        let current = value.as_int().ok_or(Failure::NOT_AN_INTEGER)?;
        let sum = current.checked_add(by).ok_or(Failure::OVERFLOW)?;
        *value = Str::Int(sum);
        Ok(sum)
    });
    let sum = changed?.transpose()?.unwrap_or_else(|| {
        core.keys.put(key, Value::Str(Str::Int(by)), None);
        by
    });
    core.keys.changed(key, EventClass::String, "incrby");
    Ok(Reply::Int(sum))
}

fn decrby(core: &mut Core, args: Args<'_>) -> CommandResult {
    let by = int(args[2])?.checked_neg().ok_or(Failure::new("ERR decrement would overflow"))?;
    add(core, args[1], by)
}

fn incrbyfloat(core: &mut Core, args: Args<'_>) -> CommandResult {
    let key = args[1];
    let current = match core.keys.read::<Str>(key)? {
        Some(value) => LongDouble::read(&value.to_vec()).ok_or(Failure::NOT_A_FLOAT)?,
        None => LongDouble::ZERO,
    };
    let by = LongDouble::read(args[2]).ok_or(Failure::NOT_A_FLOAT)?;
    let sum = current.plus(by)?.write().into_bytes();
    core.keys.upsert(key, |value: &mut Str| *value = Str::new(&sum))?;
    core.keys.changed(key, EventClass::String, "incrbyfloat");
    Ok(Reply::Bulk(sum))
}
