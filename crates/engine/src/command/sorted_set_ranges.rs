//! Ranges of a sorted set: by rank, by score, and by member among members of one score.

use std::ops::Range;

use super::Args;
use super::options::{Options, index_range};
use crate::engine::Core;
use crate::number::{int, parse_decimal};
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{Bound, EventClass, LexBound, SortedSet, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Up,
    Down,
}

/// What the two bounds of a range are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Rank,
    Score,
    Lex,
}

pub(super) fn score_bounds(min: &[u8], max: &[u8]) -> CommandResult<(Bound, Bound)> {
    Ok((score_bound(min)?, score_bound(max)?))
}

fn score_bound(text: &[u8]) -> CommandResult<Bound> {
    let (exclusive, number) = match text {
        [b'(', number @ ..] => (true, number),
        number => (false, number),
    };
    // An empty number is zero, as with `strtod`.
    let score = if number.is_empty() { Some(0.0) } else { parse_decimal(number) };
    let score = score.ok_or(Failure::new("ERR min or max is not a float"))?;
    Ok(Bound { score, exclusive })
}

pub(super) fn lex_bounds<'a>(min: &'a [u8], max: &'a [u8]) -> CommandResult<(LexBound<'a>, LexBound<'a>)> {
    Ok((lex_bound(min)?, lex_bound(max)?))
}

fn lex_bound(text: &[u8]) -> CommandResult<LexBound<'_>> {
    match text {
        b"-" => Ok(LexBound::Lowest),
        b"+" => Ok(LexBound::Highest),
        [b'[', member @ ..] => Ok(LexBound::Inclusive(member)),
        [b'(', member @ ..] => Ok(LexBound::Exclusive(member)),
        _ => Err(Failure::new("ERR min or max not valid string range item")),
    }
}

pub(super) fn zcount(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (min, max) = score_bounds(args[2], args[3])?;
    let set = core.keys.read::<SortedSet>(args[1])?;
    Ok(Reply::len(set.map_or(0, |set| set.ranks(min, max).len())))
}

pub(super) fn zlexcount(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (min, max) = lex_bounds(args[2], args[3])?;
    let set = core.keys.read::<SortedSet>(args[1])?;
    Ok(Reply::len(set.map_or(0, |set| set.lex_ranks(min, max).len())))
}

/// `ZRANGE` and its older forms, whose names determine the kind of bounds and the direction.
pub(super) fn range(
    core: &mut Core,
    args: Args<'_>,
    by: Option<By>,
    direction: Option<Direction>,
) -> CommandResult {
    let query = RangeQuery::parse(args, 2, Scores::Selectable, by, direction)?;
    Ok(query.answer(core.keys.read(args[1])?))
}

/// `ZRANGESTORE`: the members of the range replace the value of the first key.
pub(super) fn range_store(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (to, from) = (args[1], args[2]);
    let query = RangeQuery::parse(args, 3, Scores::Stored, None, None)?;
    // As in Redis, the source is counted as a read.
    core.keys.lookups.counted = true;
    let mut stored = SortedSet::default();
    if let Some(set) = core.keys.read::<SortedSet>(from)? {
        set.range(query.selected(set)).for_each(|ranked| stored.set(&ranked.member, ranked.score));
    }
    let count = stored.len();
    if count > 0 {
        core.keys.put(to, Value::SortedSet(Box::new(stored)), None);
        core.keys.changed(to, EventClass::SortedSet, "zrangestore");
    } else if core.keys.remove(to).is_some() {
        core.keys.changed(to, EventClass::Generic, "del");
    }
    Ok(Reply::len(count))
}

/// The parsed arguments of a range command.
struct RangeQuery<'a> {
    bounds: RangeBounds<'a>,
    direction: Direction,
    limit: Option<(i64, i64)>,
    with_scores: bool,
}

#[derive(Clone, Copy)]
enum RangeBounds<'a> {
    Ranks(i64, i64),
    Scores(Bound, Bound),
    Members(LexBound<'a>, LexBound<'a>),
}

/// Whether scores are an option of the reply, or always stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scores {
    Selectable,
    Stored,
}

impl<'a> RangeQuery<'a> {
    /// Parses the two bounds at `at`, and the options after them.
    fn parse(
        args: Args<'a>,
        at: usize,
        scores: Scores,
        mut by: Option<By>,
        mut direction: Option<Direction>,
    ) -> CommandResult<RangeQuery<'a>> {
        let (mut limit, mut with_scores) = (None, false);
        let mut options = Options::after(args, at + 2);
        while let Some(word) = options.next_word() {
            match word.as_str() {
                "byscore" if by.is_none() => by = Some(By::Score),
                "bylex" if by.is_none() => by = Some(By::Lex),
                "rev" if direction.is_none() => direction = Some(Direction::Down),
                "withscores" if scores == Scores::Selectable => with_scores = true,
                "limit" => {
                    let (offset, count) = (options.value()?, options.value()?);
                    limit = Some((int(offset)?, int(count)?));
                }
                _ => return Err(Failure::SYNTAX),
            }
        }
        let (by, direction) = (by.unwrap_or(By::Rank), direction.unwrap_or(Direction::Up));
        if limit.is_some() && by == By::Rank {
            return Err(Failure::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Lex {
            return Err(Failure::new("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (first, second) = (args[at], args[at + 1]);
        let (min, max) = if direction == Direction::Up { (first, second) } else { (second, first) };
        let bounds = match by {
            By::Rank => RangeBounds::Ranks(int(first)?, int(second)?),
            By::Score => score_bounds(min, max).map(|(min, max)| RangeBounds::Scores(min, max))?,
            By::Lex => lex_bounds(min, max).map(|(min, max)| RangeBounds::Members(min, max))?,
        };
        Ok(RangeQuery { bounds, direction, limit, with_scores })
    }

    fn answer(&self, set: Option<&SortedSet>) -> Reply {
        let Some(set) = set else {
            return self.reply(std::iter::empty());
        };
        let items = set.range(self.selected(set)).map(|ranked| (&*ranked.member, ranked.score));
        match self.direction {
            Direction::Up => self.reply(items),
            Direction::Down => self.reply(items.rev()),
        }
    }

    /// The ranks in the range, within the limit.
    fn selected(&self, set: &SortedSet) -> Range<usize> {
        let ranks = self.ranks(set);
        let Some((offset, count)) = self.limit else {
            return ranks;
        };
        let Ok(offset) = usize::try_from(offset) else {
            return ranks.start..ranks.start;
        };
        let offset = offset.min(ranks.len());
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(ranks.len() - offset);
        match self.direction {
            Direction::Up => ranks.start + offset..ranks.start + offset + count,
            Direction::Down => ranks.end - offset - count..ranks.end - offset,
        }
    }

    fn ranks(&self, set: &SortedSet) -> Range<usize> {
        match self.bounds {
            RangeBounds::Scores(min, max) => set.ranks(min, max),
            RangeBounds::Members(min, max) => set.lex_ranks(min, max),
            RangeBounds::Ranks(start, stop) => {
                let chosen = index_range(start, stop, set.len());
                match self.direction {
                    Direction::Up => chosen,
                    Direction::Down => set.len() - chosen.end..set.len() - chosen.start,
                }
            }
        }
    }

    fn reply<'b>(&self, items: impl Iterator<Item = (&'b [u8], f64)>) -> Reply {
        if self.with_scores {
            Reply::Scored(items.map(|(member, score)| (member.to_vec(), score)).collect())
        } else {
            Reply::bulks(items.map(|(member, _)| member))
        }
    }
}
