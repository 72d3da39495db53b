//! Hashes.

use hob_commands::HashCommand;

use super::keys::ScanOptions;
use super::random::hrandfield;
use super::{Args, Handler};
use crate::engine::Core;
use crate::number::{LongDouble, int, read_int};
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{EventClass, Hash, Scan};

pub(super) fn handler(id: HashCommand) -> Handler {
    match id {
        HashCommand::HSet => Handler::Data(|core, args| Ok(Reply::len(set_all(core, args, "hset")?))),
        HashCommand::HMSet => Handler::Data(|core, args| set_all(core, args, "hmset").map(|_| Reply::OK)),
        HashCommand::HGet => Handler::Data(hget),
        HashCommand::HMGet => Handler::Data(hmget),
        HashCommand::HGetAll => Handler::Data(hgetall),
        HashCommand::HDel => Handler::Data(hdel),
        HashCommand::HExists => Handler::Data(hexists),
        HashCommand::HLen => Handler::Data(hlen),
        HashCommand::HKeys => Handler::Data(hkeys),
        HashCommand::HVals => Handler::Data(hvals),
        HashCommand::HSetNx => Handler::Data(hsetnx),
        HashCommand::HIncrBy => Handler::Data(hincrby),
        HashCommand::HIncrByFloat => Handler::Data(hincrbyfloat),
        HashCommand::HScan => Handler::Data(hscan),
        HashCommand::HStrLen => Handler::Data(hstrlen),
        HashCommand::HRandField => Handler::Data(hrandfield),
    }
}

fn set_all(core: &mut Core, args: Args<'_>, command: &str) -> CommandResult<usize> {
    if !args.len().is_multiple_of(2) {
        return Err(Failure::arity(command));
    }
    let pairs = args[2..].chunks_exact(2);
    let added = core.keys.upsert(args[1], |hash: &mut Hash| {
        pairs.map(|pair| hash.set(pair[0], pair[1])).filter(|added| *added).count()
    })?;
    core.keys.changed(args[1], EventClass::Hash, "hset");
    Ok(added)
}

fn set_one(
    core: &mut Core,
    key: &[u8],
    field: &[u8],
    value: &[u8],
    event: &'static str,
) -> CommandResult<()> {
    core.keys.upsert(key, |hash: &mut Hash| hash.set(field, value))?;
    core.keys.changed(key, EventClass::Hash, event);
    Ok(())
}

/// A copy of one field's value.
fn field(core: &mut Core, key: &[u8], field: &[u8]) -> CommandResult<Option<Vec<u8>>> {
    Ok(core.keys.read::<Hash>(key)?.and_then(|hash| hash.get(field)).map(<[u8]>::to_vec))
}

fn hget(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(Reply::bulk_or_null(field(core, args[1], args[2])?))
}

fn hmget(core: &mut Core, args: Args<'_>) -> CommandResult {
    let hash = core.keys.read::<Hash>(args[1])?;
    let value = |field: &&[u8]| hash.and_then(|hash| hash.get(field)).map_or(Reply::Null, Reply::bulk);
    Ok(Reply::Array(args[2..].iter().map(value).collect()))
}

fn hgetall(core: &mut Core, args: Args<'_>) -> CommandResult {
    let hash = core.keys.read::<Hash>(args[1])?;
    let pairs = hash.into_iter().flat_map(Hash::iter);
    Ok(Reply::Map(pairs.map(|(field, value)| (Reply::bulk(field), Reply::bulk(value))).collect()))
}

fn hdel(core: &mut Core, args: Args<'_>) -> CommandResult {
    let removed = core
        .keys
        .update(args[1], |hash: &mut Hash| args[2..].iter().filter(|field| hash.remove(field)).count())?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        core.keys.reduced(args[1], EventClass::Hash, "hdel");
    }
    Ok(Reply::len(removed))
}

fn hexists(core: &mut Core, args: Args<'_>) -> CommandResult {
    let hash = core.keys.read::<Hash>(args[1])?;
    Ok(Reply::flag(hash.is_some_and(|hash| hash.get(args[2]).is_some())))
}

fn hstrlen(core: &mut Core, args: Args<'_>) -> CommandResult {
    let hash = core.keys.read::<Hash>(args[1])?;
    Ok(Reply::len(hash.and_then(|hash| hash.get(args[2])).map_or(0, <[u8]>::len)))
}

fn hlen(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(Reply::len(core.keys.read::<Hash>(args[1])?.map_or(0, Hash::len)))
}

fn hkeys(core: &mut Core, args: Args<'_>) -> CommandResult {
    let hash = core.keys.read::<Hash>(args[1])?;
    Ok(Reply::bulks(hash.into_iter().flat_map(Hash::iter).map(|(field, _)| field)))
}

fn hvals(core: &mut Core, args: Args<'_>) -> CommandResult {
    let hash = core.keys.read::<Hash>(args[1])?;
    Ok(Reply::bulks(hash.into_iter().flat_map(Hash::iter).map(|(_, value)| value)))
}

fn hsetnx(core: &mut Core, args: Args<'_>) -> CommandResult {
    let missing = field(core, args[1], args[2])?.is_none();
    if missing {
        set_one(core, args[1], args[2], args[3], "hset")?;
    }
    Ok(Reply::flag(missing))
}

fn hincrby(core: &mut Core, args: Args<'_>) -> CommandResult {
    let by = int(args[3])?;
    let current = match field(core, args[1], args[2])? {
        Some(value) => read_int(&value).ok_or(Failure::new("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = current.checked_add(by).ok_or(Failure::OVERFLOW)?;
    set_one(core, args[1], args[2], itoa::Buffer::new().format(sum).as_bytes(), "hincrby")?;
    Ok(Reply::Int(sum))
}

fn hincrbyfloat(core: &mut Core, args: Args<'_>) -> CommandResult {
    let by = LongDouble::read(args[3]).ok_or(Failure::NOT_A_FLOAT)?;
    if !by.is_finite() {
        return Err(Failure::new("ERR value is NaN or Infinity"));
    }
    let current = match field(core, args[1], args[2])? {
        Some(value) => LongDouble::read(&value).ok_or(Failure::new("ERR hash value is not a float"))?,
        None => LongDouble::ZERO,
    };
    let sum = current.plus(by)?.write().into_bytes();
    set_one(core, args[1], args[2], &sum, "hincrbyfloat")?;
    Ok(Reply::Bulk(sum))
}

fn hscan(core: &mut Core, args: Args<'_>) -> CommandResult {
    let options = ScanOptions::parse(args, 2)?;
    let Some(hash) = core.keys.read::<Hash>(args[1])? else {
        return Ok(options.nothing());
    };
    let page = Scan::page(options.cursor, options.count, hash.len(), |index| {
        hash.at(index).filter(|(field, _)| options.wants(field))
    });
    let flat = page.found.into_iter().flat_map(|(field, value)| [field, value]);
    Ok(ScanOptions::reply(page.cursor, flat.map(Reply::bulk).collect()))
}
