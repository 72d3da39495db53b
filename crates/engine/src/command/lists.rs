//! Lists.

use hob_commands::ListCommand;

use super::options::index_range;
use super::{Args, Handler};
use crate::engine::Core;
use crate::number::{int, positive};
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{End, List};

pub(super) fn handler(id: ListCommand) -> Handler {
    match id {
        ListCommand::LPush => Handler::Data(|core, args| push(core, args, End::Left)),
        ListCommand::RPush => Handler::Data(|core, args| push(core, args, End::Right)),
        ListCommand::LPushX => Handler::Data(|core, args| push_existing(core, args, End::Left)),
        ListCommand::RPushX => Handler::Data(|core, args| push_existing(core, args, End::Right)),
        ListCommand::LPop => Handler::Data(|core, args| pop(core, args, End::Left, "lpop")),
        ListCommand::RPop => Handler::Data(|core, args| pop(core, args, End::Right, "rpop")),
        ListCommand::LRange => Handler::Data(lrange),
        ListCommand::LTrim => Handler::Data(ltrim),
        ListCommand::LLen => Handler::Data(llen),
        ListCommand::LIndex => Handler::Data(lindex),
        ListCommand::LSet => Handler::Data(lset),
        ListCommand::LRem => Handler::Data(lrem),
        ListCommand::LMove => Handler::Data(lmove),
    }
}

fn push(core: &mut Core, args: Args<'_>, end: End) -> CommandResult {
    let length = core.keys.upsert(args[1], |list: &mut List| {
        args[2..].iter().for_each(|item| list.push(end, item));
        list.len()
    })?;
    core.keys.touch(args[1]);
    Ok(Reply::len(length))
}

fn push_existing(core: &mut Core, args: Args<'_>, end: End) -> CommandResult {
    if core.keys.read::<List>(args[1])?.is_none() {
        return Ok(Reply::Int(0));
    }
    push(core, args, end)
}

fn pop(core: &mut Core, args: Args<'_>, end: End, command: &str) -> CommandResult {
    let key = args[1];
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(positive(count)?),
        _ => return Err(Failure::arity(command)),
    };
    let most = count.unwrap_or(1);
    let popped = core.keys.update(key, |list: &mut List| {
        (0..most.min(list.len())).filter_map(|_| list.pop(end)).collect::<Vec<_>>()
    })?;
    if popped.as_ref().is_some_and(|items| !items.is_empty()) {
        core.keys.touch(key);
    }
    Ok(match (popped, count) {
        (None, None) => Reply::Null,
        (None, Some(_)) => Reply::NullArray,
        (Some(items), None) => Reply::bulk_or_null(items.into_iter().next().map(Vec::from)),
        (Some(items), Some(_)) => Reply::bulks(items),
    })
}

fn lrange(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (start, stop) = (int(args[2])?, int(args[3])?);
    let Some(list) = core.keys.read::<List>(args[1])? else {
        return Ok(Reply::Array(vec![]));
    };
    Ok(Reply::bulks(list.range(index_range(start, stop, list.len()))))
}

fn ltrim(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (start, stop) = (int(args[2])?, int(args[3])?);
    let trimmed = core.keys.update(args[1], |list: &mut List| {
        list.keep(index_range(start, stop, list.len()));
    })?;
    if trimmed.is_some() {
        core.keys.touch(args[1]);
    }
    Ok(Reply::OK)
}

fn llen(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(Reply::len(core.keys.read::<List>(args[1])?.map_or(0, List::len)))
}

/// The position of an index, which may count from the end.
fn position(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add_unsigned(len as u64)? } else { index };
    usize::try_from(index).ok().filter(|position| *position < len)
}

fn lindex(core: &mut Core, args: Args<'_>) -> CommandResult {
    let list = core.keys.read::<List>(args[1])?;
    let Some(list) = list else { return Ok(Reply::Null) };
    let item = position(int(args[2])?, list.len()).and_then(|position| list.get(position));
    Ok(item.map_or(Reply::Null, Reply::bulk))
}

fn lset(core: &mut Core, args: Args<'_>) -> CommandResult {
    let length = core.keys.read::<List>(args[1])?.ok_or(Failure::NO_SUCH_KEY)?.len();
    let position = position(int(args[2])?, length).ok_or(Failure::new("ERR index out of range"))?;
    core.keys.update(args[1], |list: &mut List| list.set(position, args[3]))?;
    core.keys.touch(args[1]);
    Ok(Reply::OK)
}

fn lrem(core: &mut Core, args: Args<'_>) -> CommandResult {
    let count = int(args[2])?;
    let end = if count < 0 { End::Right } else { End::Left };
    let most = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let removed = core.keys.update(args[1], |list: &mut List| list.remove(args[3], end, most))?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        core.keys.touch(args[1]);
    }
    Ok(Reply::len(removed))
}

fn end(word: &[u8]) -> CommandResult<End> {
    match word {
        word if word.eq_ignore_ascii_case(b"left") => Ok(End::Left),
        word if word.eq_ignore_ascii_case(b"right") => Ok(End::Right),
        _ => Err(Failure::SYNTAX),
    }
}

fn lmove(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (source, target) = (args[1], args[2]);
    let (from, to) = (end(args[3])?, end(args[4])?);
    if core.keys.read::<List>(source)?.is_none() {
        return Ok(Reply::Null);
    }
    core.keys.read::<List>(target)?;
    if source == target {
        // In place: a list with one item must not be removed, and lose its deadline, meanwhile.
        let turned = core.keys.update(source, |list: &mut List| {
            let item = list.pop(from)?;
            list.push(to, &item);
            Some(item)
        })?;
        core.keys.touch(source);
        return Ok(Reply::bulk_or_null(turned.flatten().map(Vec::from)));
    }
    let popped = core.keys.update(source, |list: &mut List| list.pop(from))?;
    let item = popped.flatten().expect("a list that is there holds an item");
    core.keys.upsert(target, |list: &mut List| list.push(to, &item))?;
    core.keys.touch(source);
    core.keys.touch(target);
    Ok(Reply::Bulk(item.into()))
}
