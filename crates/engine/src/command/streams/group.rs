//! `XGROUP`.

use super::id::{parse_id, parse_id_or_limit};
use super::{no_such_group, wrong_subcommand};
use crate::command::Args;
use crate::command::options::Options;
use crate::engine::Core;
use crate::number::int;
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{EventClass, Group, Stream, StreamId};

const NO_KEY: Failure = Failure::new(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option \
     to create an empty stream automatically.",
);

/// The value of `ENTRIESREAD`; -1 means unknown.
fn entries_read(text: &[u8]) -> CommandResult<Option<i64>> {
    match int(text)? {
        -1 => Ok(None),
        ..0 => Err(Failure::new("ERR value for ENTRIESREAD must be positive or -1")),
        read => Ok(Some(read)),
    }
}

pub(super) fn create(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (mut create_stream, mut read) = (false, None);
    let mut options = Options::after(args, 5);
    while let Some(word) = options.next_word() {
        match word.as_str() {
            "mkstream" => create_stream = true,
            "entriesread" if options.has_more() => read = entries_read(options.value()?)?,
            _ => return Err(wrong_subcommand(args)),
        }
    }
    let (key, name) = (args[2], args[3]);
    let last_id = core.keys.read::<Stream>(key)?.map(|stream| stream.last_id);
    let is_missing = last_id.is_none();
    if is_missing && !create_stream {
        return Err(NO_KEY);
    }
    if args.len() > 8 {
        return Err(wrong_subcommand(args));
    }
    let id = match args[4] {
        b"$" => last_id.unwrap_or(StreamId::MIN),
        id => parse_id(id, 0)?,
    };
    let is_new =
        core.keys.upsert(key, |stream: &mut Stream| stream.create_group(name, Group::new(id, read)))?;
    if is_missing {
        core.keys.touch(key);
    }
    if is_new {
        core.keys.notify(key, EventClass::Stream, "xgroup-create");
        Ok(Reply::OK)
    } else {
        Err(Failure::new("BUSYGROUP Consumer Group name already exists"))
    }
}

pub(super) fn set_id(core: &mut Core, args: Args<'_>) -> CommandResult {
    let mut read = None;
    let mut options = Options::after(args, 5);
    while let Some(word) = options.next_word() {
        match word.as_str() {
            "entriesread" if options.has_more() => read = entries_read(options.value()?)?,
            _ => return Err(wrong_subcommand(args)),
        }
    }
    let stream = find(core, args)?;
    let id = match args[4] {
        _ if args.len() > 7 => return Err(wrong_subcommand(args)),
        b"$" => stream.last_id,
        id => parse_id_or_limit(id, 0)?,
    };
    update(core, args, |group| (group.last_id, group.entries_read) = (id, read))?;
    core.keys.notify(args[2], EventClass::Stream, "xgroup-setid");
    Ok(Reply::OK)
}

pub(super) fn destroy(core: &mut Core, args: Args<'_>) -> CommandResult {
    let removed = core.keys.update(args[2], |stream: &mut Stream| stream.remove_group(args[3]))?;
    let removed = removed.ok_or(NO_KEY)?;
    if removed {
        core.keys.wake(args[2]);
        core.keys.notify(args[2], EventClass::Stream, "xgroup-destroy");
    }
    Ok(Reply::flag(removed))
}

pub(super) fn create_consumer(core: &mut Core, args: Args<'_>) -> CommandResult {
    find(core, args)?;
    let now_ms = core.keys.now_ms.cast_signed();
    let created = update(core, args, |group| group.create_consumer(args[4], now_ms))?;
    if created {
        core.keys.notify(args[2], EventClass::Stream, "xgroup-createconsumer");
    }
    Ok(Reply::flag(created))
}

pub(super) fn delete_consumer(core: &mut Core, args: Args<'_>) -> CommandResult {
    find(core, args)?;
    let pending = update(core, args, |group| group.remove_consumer(args[4]))?;
    if pending.is_some() {
        core.keys.notify(args[2], EventClass::Stream, "xgroup-delconsumer");
    }
    Ok(Reply::len(pending.unwrap_or(0)))
}

/// The stream of a subcommand, if it has the group.
fn find<'a>(core: &'a mut Core, args: Args<'_>) -> CommandResult<&'a Stream> {
    let stream = core.keys.read::<Stream>(args[2])?.ok_or(NO_KEY)?;
    if stream.group(args[3]).is_none() {
        return Err(no_such_group(args[2], args[3]));
    }
    Ok(stream)
}

fn update<R>(core: &mut Core, args: Args<'_>, change: impl FnOnce(&mut Group) -> R) -> CommandResult<R> {
    let changed = core.keys.update(args[2], |stream: &mut Stream| stream.update_group(args[3], change))?;
    changed.flatten().ok_or_else(|| no_such_group(args[2], args[3]))
}
