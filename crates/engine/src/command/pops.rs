//! Commands that pop from the first of several keys, and those that wait until there is something to pop.

use super::lists::{end, move_item, pop_items};
use super::sorted_sets::pop_members;
use super::{Args, Options};
use crate::blocked::{Attempt, Wait, timeout_seconds};
use crate::engine::Core;
use crate::number::read_int;
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{End, List};

/// What a command pops from a key.
#[derive(Clone, Copy)]
pub(super) enum Pop {
    Item(End),
    Items(End, usize),
    Member(End),
    Members(End, usize),
}

/// The type of the keys of `LMPOP` or `ZMPOP`, which name the ends differently.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    List,
    SortedSet,
}

impl Pop {
    /// Pops from a key; `None` if it does not exist.
    fn take_from(self, core: &mut Core, key: &[u8]) -> CommandResult<Option<Reply>> {
        let popped = match self {
            Pop::Item(end) => pop_items(core, key, end, 1)?
                .map(|items| items.into_iter().map(|item| Reply::Bulk(item.into())).collect()),
            Pop::Items(end, count) => {
                pop_items(core, key, end, count)?.map(|items| vec![Reply::bulks(items)])
            }
            Pop::Member(end) => pop_members(core, key, end, 1)?.map(|members| {
                members
                    .into_iter()
                    .flat_map(|(member, score)| [Reply::Bulk(member), Reply::Double(score)])
                    .collect()
            }),
            Pop::Members(end, count) => pop_members(core, key, end, count)?.map(|members| {
                let pair = |(member, score)| Reply::Array(vec![Reply::Bulk(member), Reply::Double(score)]);
                vec![Reply::Array(members.into_iter().map(pair).collect())]
            }),
        };
        Ok(popped.map(|popped: Vec<Reply>| Reply::Array([vec![Reply::bulk(key)], popped].concat())))
    }

    fn take_from_first(self, core: &mut Core, keys: Args<'_>) -> CommandResult<Option<Reply>> {
        for key in keys {
            if let Some(reply) = self.take_from(core, key)? {
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    fn or_wait(self, core: &mut Core, keys: Args<'_>, timeout: &[u8]) -> CommandResult<Attempt> {
        let deadline_us = timeout_seconds(core, timeout)?;
        if let Some(reply) = self.take_from_first(core, keys)? {
            return Ok(Attempt::Done(reply));
        }
        Ok(Attempt::Wait(Wait {
            keys: keys.iter().map(|key| key.to_vec()).collect(),
            deadline_us,
            reply_without_wait: Reply::NullArray,
            // A key that now has another type is as good as missing.
            serve: Box::new(move |core, key| self.take_from(core, key).ok().flatten().map(Ok)),
        }))
    }
}

/// `BLPOP`, `BRPOP`, `BZPOPMIN` and `BZPOPMAX`.
pub(super) fn pop_or_wait(core: &mut Core, args: Args<'_>, pop: Pop) -> CommandResult<Attempt> {
    let (timeout, keys) = args[1..].split_last().ok_or(Failure::SYNTAX)?;
    pop.or_wait(core, keys, timeout)
}

/// `LMPOP` and `ZMPOP`.
pub(super) fn pop_several(core: &mut Core, args: Args<'_>, kind: Kind) -> CommandResult {
    let (keys, pop) = parse_several(args, 1, kind)?;
    Ok(pop.take_from_first(core, keys)?.unwrap_or(Reply::NullArray))
}

/// `BLMPOP` and `BZMPOP`.
pub(super) fn pop_several_or_wait(core: &mut Core, args: Args<'_>, kind: Kind) -> CommandResult<Attempt> {
    let (keys, pop) = parse_several(args, 2, kind)?;
    pop.or_wait(core, keys, args[1])
}

/// Parses `numkeys key [key ...] end [COUNT count]`.
fn parse_several<'a>(args: Args<'a>, at: usize, kind: Kind) -> CommandResult<(Args<'a>, Pop)> {
    let above_zero =
        |text: &[u8]| read_int(text).and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let keys = above_zero(args[at]).ok_or(Failure::new("ERR numkeys should be greater than 0"))?;
    let end_at = keys.checked_add(at + 1).filter(|end_at| *end_at < args.len()).ok_or(Failure::SYNTAX)?;
    let end = match kind {
        Kind::List => end(args[end_at])?,
        Kind::SortedSet if args[end_at].eq_ignore_ascii_case(b"min") => End::Left,
        Kind::SortedSet if args[end_at].eq_ignore_ascii_case(b"max") => End::Right,
        Kind::SortedSet => return Err(Failure::SYNTAX),
    };
    let mut count = None;
    let mut options = Options::after(args, end_at + 1);
    while let Some(word) = options.next_word() {
        if count.is_some() || word != "count" {
            return Err(Failure::SYNTAX);
        }
        let given = above_zero(options.value()?);
        count = Some(given.ok_or(Failure::new("ERR count should be greater than 0"))?);
    }
    let count = count.unwrap_or(1);
    let pop = match kind {
        Kind::List => Pop::Items(end, count),
        Kind::SortedSet => Pop::Members(end, count),
    };
    Ok((&args[at + 1..end_at], pop))
}

pub(super) fn blmove(core: &mut Core, args: Args<'_>) -> CommandResult<Attempt> {
    let ends = (end(args[3])?, end(args[4])?);
    move_or_wait(core, args, ends, args[5])
}

pub(super) fn brpoplpush(core: &mut Core, args: Args<'_>) -> CommandResult<Attempt> {
    move_or_wait(core, args, (End::Right, End::Left), args[3])
}

fn move_or_wait(
    core: &mut Core,
    args: Args<'_>,
    (from, to): (End, End),
    timeout: &[u8],
) -> CommandResult<Attempt> {
    let deadline_us = timeout_seconds(core, timeout)?;
    if let Some(item) = move_item(core, args[1], args[2], from, to)? {
        return Ok(Attempt::Done(Reply::Bulk(item.into())));
    }
    let target = args[2].to_vec();
    Ok(Attempt::Wait(Wait {
        keys: vec![args[1].to_vec()],
        deadline_us,
        reply_without_wait: Reply::Null,
        serve: Box::new(move |core, source| {
            core.keys.read::<List>(source).ok()??;
            // A target of another type ends the wait with an error, and the item stays.
            let moved = move_item(core, source, &target, from, to).transpose()?;
            Some(moved.map(|item| Reply::Bulk(item.into())))
        }),
    }))
}
