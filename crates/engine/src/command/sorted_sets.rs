//! Sorted sets.

use std::ops::Range;

use hob_commands::SortedSetCommand;

use super::keys::ScanOptions;
use super::options::{Options, index_range};
use super::pops::{Kind, Pop, pop_or_wait, pop_several, pop_several_or_wait};
use super::random::zrandmember;
use super::sorted_set_algebra::{Operation, combine, store, zintercard};
use super::sorted_set_ranges::{
    By, Direction, lex_bounds, range, range_store, score_bounds, zcount, zlexcount,
};
use super::{Args, Handler};
use crate::engine::Core;
use crate::number::{float, int, positive, write_float};
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{End, EventClass, Scan, SortedSet};

pub(super) fn handler(id: SortedSetCommand) -> Handler {
    match id {
        SortedSetCommand::ZAdd => Handler::Data(zadd),
        SortedSetCommand::ZRem => Handler::Data(zrem),
        SortedSetCommand::ZScore => Handler::Data(zscore),
        SortedSetCommand::ZMScore => Handler::Data(zmscore),
        SortedSetCommand::ZIncrBy => Handler::Data(zincrby),
        SortedSetCommand::ZCard => Handler::Data(zcard),
        SortedSetCommand::ZCount => Handler::Data(zcount),
        SortedSetCommand::ZLexCount => Handler::Data(zlexcount),
        SortedSetCommand::ZRange => Handler::Data(|core, args| range(core, args, None, None)),
        SortedSetCommand::ZRevRange => {
            Handler::Data(|core, args| range(core, args, Some(By::Rank), Some(Direction::Down)))
        }
        SortedSetCommand::ZRangeByScore => {
            Handler::Data(|core, args| range(core, args, Some(By::Score), Some(Direction::Up)))
        }
        SortedSetCommand::ZRevRangeByScore => {
            Handler::Data(|core, args| range(core, args, Some(By::Score), Some(Direction::Down)))
        }
        SortedSetCommand::ZRangeByLex => {
            Handler::Data(|core, args| range(core, args, Some(By::Lex), Some(Direction::Up)))
        }
        SortedSetCommand::ZRevRangeByLex => {
            Handler::Data(|core, args| range(core, args, Some(By::Lex), Some(Direction::Down)))
        }
        SortedSetCommand::ZRangeStore => Handler::Data(range_store),
        SortedSetCommand::ZRank => Handler::Data(|core, args| rank(core, args, Direction::Up)),
        SortedSetCommand::ZRevRank => Handler::Data(|core, args| rank(core, args, Direction::Down)),
        SortedSetCommand::ZRemRangeByRank => Handler::Data(zremrangebyrank),
        SortedSetCommand::ZRemRangeByScore => Handler::Data(zremrangebyscore),
        SortedSetCommand::ZRemRangeByLex => Handler::Data(zremrangebylex),
        SortedSetCommand::ZPopMin => Handler::Data(|core, args| pop(core, args, End::Left)),
        SortedSetCommand::ZPopMax => Handler::Data(|core, args| pop(core, args, End::Right)),
        SortedSetCommand::ZScan => Handler::Data(zscan),
        SortedSetCommand::ZRandMember => Handler::Data(zrandmember),
        SortedSetCommand::ZInterCard => Handler::Data(zintercard),
        SortedSetCommand::ZUnion => {
            Handler::Data(|core, args| combine(core, args, Operation::Union, "zunion"))
        }
        SortedSetCommand::ZInter => {
            Handler::Data(|core, args| combine(core, args, Operation::Intersection, "zinter"))
        }
        SortedSetCommand::ZDiff => {
            Handler::Data(|core, args| combine(core, args, Operation::Difference, "zdiff"))
        }
        SortedSetCommand::ZUnionStore => {
            Handler::Data(|core, args| store(core, args, Operation::Union, "zunionstore"))
        }
        SortedSetCommand::ZInterStore => {
            Handler::Data(|core, args| store(core, args, Operation::Intersection, "zinterstore"))
        }
        SortedSetCommand::ZDiffStore => {
            Handler::Data(|core, args| store(core, args, Operation::Difference, "zdiffstore"))
        }
        SortedSetCommand::ZMPop => Handler::Data(|core, args| pop_several(core, args, Kind::SortedSet)),
        SortedSetCommand::BZPopMin => {
            Handler::Blocking(|core, args| pop_or_wait(core, args, Pop::Member(End::Left)))
        }
        SortedSetCommand::BZPopMax => {
            Handler::Blocking(|core, args| pop_or_wait(core, args, Pop::Member(End::Right)))
        }
        SortedSetCommand::BZMPop => {
            Handler::Blocking(|core, args| pop_several_or_wait(core, args, Kind::SortedSet))
        }
    }
}

const NOT_A_NUMBER: Failure = Failure::new("ERR resulting score is not a number (NaN)");

#[derive(Default)]
struct AddFlags {
    only_new: bool,
    only_existing: bool,
    only_greater: bool,
    only_less: bool,
    count_changed: bool,
    increment: bool,
}

impl AddFlags {
    /// The flags, and how many arguments they took.
    fn parse(args: Args<'_>) -> CommandResult<(AddFlags, usize)> {
        let mut flags = AddFlags::default();
        let mut words = 0;
        let mut options = Options::after(args, 2);
        while let Some(word) = options.next_word() {
            match word.as_str() {
                "nx" => flags.only_new = true,
                "xx" => flags.only_existing = true,
                "gt" => flags.only_greater = true,
                "lt" => flags.only_less = true,
                "ch" => flags.count_changed = true,
                "incr" => flags.increment = true,
                _ => break,
            }
            words += 1;
        }
        Ok((flags, words))
    }

    fn check(&self, pairs: usize) -> CommandResult<()> {
        if self.only_new && self.only_existing {
            return Err(Failure::new("ERR XX and NX options at the same time are not compatible"));
        }
        let ordered = usize::from(self.only_greater) + usize::from(self.only_less);
        if ordered > 1 || (ordered > 0 && self.only_new) {
            return Err(Failure::new("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        if self.increment && pairs > 1 {
            return Err(Failure::new("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// The new score of a member; `None` if it does not change.
    fn decide(&self, current: Option<f64>, given: f64) -> CommandResult<Option<f64>> {
        let Some(current) = current else {
            return Ok((!self.only_existing).then_some(given));
        };
        if self.only_new {
            return Ok(None);
        }
        let next = if self.increment { current + given } else { given };
        if next.is_nan() {
            return Err(NOT_A_NUMBER);
        }
        let held_back = (self.only_greater && next <= current) || (self.only_less && next >= current);
        Ok((!held_back).then_some(next))
    }
}

fn zadd(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (flags, words) = AddFlags::parse(args)?;
    let pairs = &args[2 + words..];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Failure::SYNTAX);
    }
    flags.check(pairs.len() / 2)?;
    add(core, args[1], &flags, pairs)
}

fn zincrby(core: &mut Core, args: Args<'_>) -> CommandResult {
    let flags = AddFlags { increment: true, ..AddFlags::default() };
    add(core, args[1], &flags, &args[2..])
}

fn add(core: &mut Core, key: &[u8], flags: &AddFlags, pairs: Args<'_>) -> CommandResult {
    // All scores are parsed before the first is written, so that an invalid one changes nothing.
    let scores = pairs.iter().step_by(2).map(|text| float(text)).collect::<CommandResult<Vec<f64>>>()?;
    if core.keys.read::<SortedSet>(key)?.is_none() && flags.only_existing {
        return Ok(if flags.increment { Reply::Null } else { Reply::Int(0) });
    }
    let members = pairs.iter().skip(1).step_by(2);
    let (mut added, mut updated, mut last) = (0, 0, None);
    core.keys.upsert(key, |set: &mut SortedSet| -> CommandResult<()> {
        for (member, given) in members.zip(scores) {
            let current = set.score(member);
            last = flags.decide(current, given)?;
            let Some(next) = last else { continue };
            added += usize::from(current.is_none());
            if current.is_some_and(|current| current != next) {
                updated += 1;
            }
            if current != Some(next) {
                set.set(member, next);
            }
        }
        Ok(())
    })??;
    if added + updated > 0 {
        core.keys.changed(key, EventClass::SortedSet, if flags.increment { "zincr" } else { "zadd" });
    }
    if flags.increment {
        return Ok(last.map_or(Reply::Null, Reply::Double));
    }
    Ok(Reply::len(if flags.count_changed { added + updated } else { added }))
}

fn zrem(core: &mut Core, args: Args<'_>) -> CommandResult {
    let members = &args[2..];
    let removed = core
        .keys
        .update(args[1], |set: &mut SortedSet| members.iter().filter(|member| set.remove(member)).count())?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        core.keys.reduced(args[1], EventClass::SortedSet, "zrem");
    }
    Ok(Reply::len(removed))
}

fn score(set: Option<&SortedSet>, member: &[u8]) -> Reply {
    set.and_then(|set| set.score(member)).map_or(Reply::Null, Reply::Double)
}

fn zscore(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(score(core.keys.read(args[1])?, args[2]))
}

fn zmscore(core: &mut Core, args: Args<'_>) -> CommandResult {
    let set = core.keys.read(args[1])?;
    Ok(Reply::Array(args[2..].iter().map(|member| score(set, member)).collect()))
}

fn zcard(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(Reply::len(core.keys.read::<SortedSet>(args[1])?.map_or(0, SortedSet::len)))
}

fn rank(core: &mut Core, args: Args<'_>, direction: Direction) -> CommandResult {
    let Some(set) = core.keys.read::<SortedSet>(args[1])? else {
        return Ok(Reply::Null);
    };
    let rank = set.rank(args[2]).map(|rank| match direction {
        Direction::Up => rank,
        Direction::Down => set.len() - 1 - rank,
    });
    Ok(rank.map_or(Reply::Null, Reply::len))
}

fn remove_ranks(
    core: &mut Core,
    key: &[u8],
    event: &'static str,
    ranks: impl FnOnce(&SortedSet) -> Range<usize>,
) -> CommandResult {
    let removed = core.keys.update(key, |set: &mut SortedSet| {
        let ranks = ranks(set);
        ranks.clone().rev().for_each(|place| drop(set.take(place)));
        ranks.len()
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        core.keys.reduced(key, EventClass::SortedSet, event);
    }
    Ok(Reply::len(removed))
}

fn zremrangebyrank(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (start, stop) = (int(args[2])?, int(args[3])?);
    remove_ranks(core, args[1], "zremrangebyrank", |set| index_range(start, stop, set.len()))
}

fn zremrangebyscore(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (min, max) = score_bounds(args[2], args[3])?;
    remove_ranks(core, args[1], "zremrangebyscore", |set| set.ranks(min, max))
}

fn zremrangebylex(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (min, max) = lex_bounds(args[2], args[3])?;
    remove_ranks(core, args[1], "zremrangebylex", |set| set.lex_ranks(min, max))
}

fn pop(core: &mut Core, args: Args<'_>, end: End) -> CommandResult {
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(positive(count)?),
        _ => return Err(Failure::SYNTAX),
    };
    let popped = pop_members(core, args[1], end, count.unwrap_or(1))?.unwrap_or_default();
    if count.is_some() {
        return Ok(Reply::Scored(popped));
    }
    // Without a count, RESP3 returns one flat pair instead of an array of pairs.
    let flat = popped.into_iter().flat_map(|(member, score)| [Reply::Bulk(member), Reply::Double(score)]);
    Ok(Reply::Array(flat.collect()))
}

/// Members with their scores.
type Scored = Vec<(Vec<u8>, f64)>;

/// Removes up to `max_members` members from one end; `None` if the key does not exist.
pub(super) fn pop_members(
    core: &mut Core,
    key: &[u8],
    end: End,
    max_members: usize,
) -> CommandResult<Option<Scored>> {
    let popped = core.keys.update(key, |set: &mut SortedSet| {
        let most = max_members.min(set.len());
        let mut take = || set.take(if end == End::Left { 0 } else { set.len() - 1 });
        (0..most).map(|_| take()).map(|ranked| (ranked.member.to_vec(), ranked.score)).collect::<Vec<_>>()
    })?;
    if popped.as_ref().is_some_and(|members| !members.is_empty()) {
        let event = if end == End::Left { "zpopmin" } else { "zpopmax" };
        core.keys.reduced(key, EventClass::SortedSet, event);
    }
    Ok(popped)
}

fn zscan(core: &mut Core, args: Args<'_>) -> CommandResult {
    let options = ScanOptions::parse(args, 2)?;
    let Some(set) = core.keys.read::<SortedSet>(args[1])? else {
        return Ok(options.nothing());
    };
    let page = Scan::page(options.cursor, options.count, set.len(), |index| {
        set.at(index).filter(|(member, _)| options.wants(member))
    });
    let flat = page
        .found
        .into_iter()
        .flat_map(|(member, score)| [Reply::bulk(member), Reply::Bulk(scanned_score(score).into_bytes())]);
    Ok(ScanOptions::reply(page.cursor, flat.collect()))
}

/// A score in the reply of `ZSCAN`, where Redis prints integers in full while the set is small.
fn scanned_score(score: f64) -> String {
    const MAX_PLAIN_INTEGER: f64 = (1u64 << 62) as f64;
    if score.fract() == 0.0 && score.abs() <= MAX_PLAIN_INTEGER {
        return (score as i64).to_string();
    }
    write_float(score)
}
