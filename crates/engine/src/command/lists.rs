//! Lists.

use hob_commands::ListCommand;

use super::options::{Options, index_range};
use super::pops::{Kind, Pop, blmove, brpoplpush, pop_or_wait, pop_several, pop_several_or_wait};
use super::{Args, Handler};
use crate::engine::Core;
use crate::number::{int, positive, read_int};
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::value::Bytes;
use crate::store::{End, EventClass, List};

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
        ListCommand::RPopLPush => Handler::Data(rpoplpush),
        ListCommand::LMPop => Handler::Data(|core, args| pop_several(core, args, Kind::List)),
        ListCommand::LPos => Handler::Data(lpos),
        ListCommand::LInsert => Handler::Data(linsert),
        ListCommand::BLPop => Handler::Blocking(|core, args| pop_or_wait(core, args, Pop::Item(End::Left))),
        ListCommand::BRPop => Handler::Blocking(|core, args| pop_or_wait(core, args, Pop::Item(End::Right))),
        ListCommand::BLMove => Handler::Blocking(blmove),
        ListCommand::BRPopLPush => Handler::Blocking(brpoplpush),
        ListCommand::BLMPop => Handler::Blocking(|core, args| pop_several_or_wait(core, args, Kind::List)),
    }
}

fn push(core: &mut Core, args: Args<'_>, end: End) -> CommandResult {
    let length = core.keys.upsert(args[1], |list: &mut List| {
        args[2..].iter().for_each(|item| list.push(end, item));
        list.len()
    })?;
    core.keys.changed(args[1], EventClass::List, push_event(end));
    Ok(Reply::len(length))
}

fn push_event(end: End) -> &'static str {
    match end {
        End::Left => "lpush",
        End::Right => "rpush",
    }
}

fn pop_event(end: End) -> &'static str {
    match end {
        End::Left => "lpop",
        End::Right => "rpop",
    }
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
    let popped = pop_items(core, key, end, count.unwrap_or(1))?;
    Ok(match (popped, count) {
        (None, None) => Reply::Null,
        (None, Some(_)) => Reply::NullArray,
        (Some(items), None) => Reply::bulk_or_null(items.into_iter().next().map(Vec::from)),
        (Some(items), Some(_)) => Reply::bulks(items),
    })
}

/// Removes up to `max_items` items from one end; `None` if the key does not exist.
pub(super) fn pop_items(
    core: &mut Core,
    key: &[u8],
    end: End,
    max_items: usize,
) -> CommandResult<Option<Vec<Bytes>>> {
    let popped = core.keys.update(key, |list: &mut List| {
        (0..max_items.min(list.len())).filter_map(|_| list.pop(end)).collect::<Vec<_>>()
    })?;
    if popped.as_ref().is_some_and(|items| !items.is_empty()) {
        core.keys.reduced(key, EventClass::List, pop_event(end));
    }
    Ok(popped)
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
        core.keys.reduced(args[1], EventClass::List, "ltrim");
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
    core.keys.changed(args[1], EventClass::List, "lset");
    Ok(Reply::OK)
}

fn lrem(core: &mut Core, args: Args<'_>) -> CommandResult {
    let count = int(args[2])?;
    let end = if count < 0 { End::Right } else { End::Left };
    let most = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let removed = core.keys.update(args[1], |list: &mut List| list.remove(args[3], end, most))?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        core.keys.reduced(args[1], EventClass::List, "lrem");
    }
    Ok(Reply::len(removed))
}

pub(super) fn end(word: &[u8]) -> CommandResult<End> {
    match word {
        word if word.eq_ignore_ascii_case(b"left") => Ok(End::Left),
        word if word.eq_ignore_ascii_case(b"right") => Ok(End::Right),
        _ => Err(Failure::SYNTAX),
    }
}

fn lmove(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (from, to) = (end(args[3])?, end(args[4])?);
    Ok(Reply::bulk_or_null(move_item(core, args[1], args[2], from, to)?.map(Vec::from)))
}

fn rpoplpush(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(Reply::bulk_or_null(move_item(core, args[1], args[2], End::Right, End::Left)?.map(Vec::from)))
}

/// Moves an item between lists, or from one end of a list to the other; `None` if the source does not exist.
pub(super) fn move_item(
    core: &mut Core,
    source: &[u8],
    target: &[u8],
    from: End,
    to: End,
) -> CommandResult<Option<Bytes>> {
    if core.keys.read::<List>(source)?.is_none() {
        return Ok(None);
    }
    core.keys.read::<List>(target)?;
    if source == target {
        // In place: a list with one item must not be removed, and lose its deadline, meanwhile.
        let turned = core.keys.update(source, |list: &mut List| {
            let item = list.pop(from)?;
            list.push(to, &item);
            Some(item)
        })?;
        core.keys.changed(source, EventClass::List, push_event(to));
        core.keys.notify(source, EventClass::List, pop_event(from));
        return Ok(turned.flatten());
    }
    let popped = core.keys.update(source, |list: &mut List| list.pop(from))?;
    let item = popped.flatten().expect("a list that is there holds an item");
    core.keys.upsert(target, |list: &mut List| list.push(to, &item))?;
    core.keys.changed(target, EventClass::List, push_event(to));
    core.keys.reduced(source, EventClass::List, pop_event(from));
    Ok(Some(item))
}

fn linsert(core: &mut Core, args: Args<'_>) -> CommandResult {
    let after = match args[2] {
        word if word.eq_ignore_ascii_case(b"before") => 0,
        word if word.eq_ignore_ascii_case(b"after") => 1,
        _ => return Err(Failure::SYNTAX),
    };
    let Some(list) = core.keys.read::<List>(args[1])? else { return Ok(Reply::Int(0)) };
    let Some(pivot) = list.range(0..list.len()).position(|item| item == args[3]) else {
        return Ok(Reply::Int(-1));
    };
    let length = core.keys.update(args[1], |list: &mut List| {
        list.insert(pivot + after, args[4]);
        list.len()
    })?;
    core.keys.changed(args[1], EventClass::List, "linsert");
    Ok(Reply::len(length.unwrap_or(0)))
}

/// The options of `LPOS`.
struct Search {
    /// Skips this many matches.
    skip: usize,
    from: End,
    /// How many positions to return; 0: all. `None`: one, and not in an array.
    count: Option<usize>,
    /// How many items to compare; 0: all.
    max_items: usize,
}

impl Search {
    fn parse(args: Args<'_>) -> CommandResult<Search> {
        let mut search = Search { skip: 0, from: End::Left, count: None, max_items: 0 };
        let mut options = Options::after(args, 3);
        while let Some(word) = options.next_word() {
            let value = options.value()?;
            match word.as_str() {
                "rank" => {
                    let rank = int(value)?;
                    search.from = if rank < 0 { End::Right } else { End::Left };
                    search.skip = rank.unsigned_abs().checked_sub(1).ok_or(Failure::new(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                         negative to start from the end of the list",
                    ))? as usize;
                }
                "count" => search.count = Some(not_negative(value, "ERR COUNT can't be negative")?),
                "maxlen" => search.max_items = not_negative(value, "ERR MAXLEN can't be negative")?,
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(search)
    }

    fn find(&self, list: &List, wanted: &[u8]) -> Vec<usize> {
        let unlimited = |limit: usize| if limit == 0 { usize::MAX } else { limit };
        let place = |place: usize| match self.from {
            End::Left => place,
            End::Right => list.len() - 1 - place,
        };
        (0..list.len().min(unlimited(self.max_items)))
            .map(place)
            .filter(|index| list.get(*index) == Some(wanted))
            .skip(self.skip)
            .take(self.count.map_or(1, unlimited))
            .collect()
    }
}

fn not_negative(text: &[u8], message: &'static str) -> CommandResult<usize> {
    let value = read_int(text).ok_or(Failure::new(message))?;
    usize::try_from(value).map_err(|_| Failure::new(message))
}

fn lpos(core: &mut Core, args: Args<'_>) -> CommandResult {
    let search = Search::parse(args)?;
    let list = core.keys.read::<List>(args[1])?;
    let found = list.map(|list| search.find(list, args[2])).unwrap_or_default();
    if search.count.is_some() {
        return Ok(Reply::Array(found.into_iter().map(Reply::len).collect()));
    }
    Ok(found.first().copied().map_or(Reply::Null, Reply::len))
}
