//! Random elements: `SRANDMEMBER`, `HRANDFIELD`, `ZRANDMEMBER` and `RANDOMKEY`.

use rand::RngExt as _;

use super::Args;
use crate::engine::Core;
use crate::number::int;
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{Hash, SortedSet};

const OUT_OF_RANGE: Failure = Failure::new("ERR value is out of range");

/// How many elements a command returns, and whether with their values.
pub(super) struct Sample {
    count: i64,
    with_values: bool,
}

impl Sample {
    /// Parses `[count [word]]`; `None` without a count, which asks for one element and not for an array.
    pub(super) fn parse(args: Args<'_>, word: Option<&str>) -> CommandResult<Option<Sample>> {
        let [_, _, count, rest @ ..] = args else { return Ok(None) };
        let count = int(count)?;
        if count == i64::MIN {
            return Err(Failure::new(
                "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            ));
        }
        let with_values = match (rest, word) {
            ([], _) => false,
            ([given], Some(word)) if given.eq_ignore_ascii_case(word.as_bytes()) => true,
            _ => return Err(Failure::SYNTAX),
        };
        if with_values && count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
            return Err(OUT_OF_RANGE);
        }
        Ok(Some(Sample { count, with_values }))
    }

    /// Random indexes below `len`: different ones, or with repetitions if the count is negative.
    pub(super) fn indexes(&self, len: usize, max_reply_items: usize) -> CommandResult<Vec<usize>> {
        let count = usize::try_from(self.count.unsigned_abs()).unwrap_or(usize::MAX);
        if self.count >= 0 {
            return Ok(rand::seq::index::sample(&mut rand::rng(), len, count.min(len)).into_vec());
        }
        // With repetitions, a small collection can give a huge reply, which must be bounded.
        if count > max_reply_items {
            return Err(OUT_OF_RANGE);
        }
        Ok((0..count).map(|_| rand::rng().random_range(..len)).collect())
    }
}

/// An index of a collection that is not empty.
pub(super) fn any_index(len: usize) -> usize {
    rand::rng().random_range(..len)
}

pub(super) fn hrandfield(core: &mut Core, args: Args<'_>) -> CommandResult {
    let sample = Sample::parse(args, Some("withvalues"))?;
    let max_reply_items = core.settings.max_reply_items;
    let hash = core.keys.read::<Hash>(args[1])?;
    let (Some(hash), Some(sample)) = (hash, &sample) else {
        let any = hash.and_then(|hash| hash.at(any_index(hash.len()))).map(|(field, _)| Reply::bulk(field));
        return Ok(any.unwrap_or(if sample.is_some() { Reply::Array(vec![]) } else { Reply::Null }));
    };
    let chosen = sample.indexes(hash.len(), max_reply_items)?.into_iter().filter_map(|index| hash.at(index));
    Ok(if sample.with_values {
        Reply::Pairs(chosen.map(|(field, value)| (Reply::bulk(field), Reply::bulk(value))).collect())
    } else {
        Reply::bulks(chosen.map(|(field, _)| field))
    })
}

pub(super) fn zrandmember(core: &mut Core, args: Args<'_>) -> CommandResult {
    let sample = Sample::parse(args, Some("withscores"))?;
    let max_reply_items = core.settings.max_reply_items;
    let set = core.keys.read::<SortedSet>(args[1])?;
    let (Some(set), Some(sample)) = (set, &sample) else {
        let any = set.and_then(|set| set.at(any_index(set.len()))).map(|(member, _)| Reply::bulk(member));
        return Ok(any.unwrap_or(if sample.is_some() { Reply::Array(vec![]) } else { Reply::Null }));
    };
    let chosen = sample.indexes(set.len(), max_reply_items)?.into_iter().filter_map(|index| set.at(index));
    Ok(if sample.with_values {
        Reply::Scored(chosen.map(|(member, score)| (member.to_vec(), score)).collect())
    } else {
        Reply::bulks(chosen.map(|(member, _)| member))
    })
}
