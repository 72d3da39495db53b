//! Unions, intersections and differences of sorted sets.

use std::collections::{HashMap, HashSet};

use super::{Args, Options};
use crate::engine::Core;
use crate::number::{float, int, read_int};
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{EventClass, Set, SortedSet, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Union,
    Intersection,
    Difference,
}

#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            // Opposite infinities add up to zero, as in Redis.
            Aggregate::Sum => number_or_zero(a + b),
            Aggregate::Min => a.min(b),
            Aggregate::Max => a.max(b),
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// Members and scores of one input; the members of a plain set have the score 1.
struct Input {
    members: Vec<(Vec<u8>, f64)>,
    weight: f64,
}

struct Query {
    inputs: Vec<Input>,
    aggregate: Aggregate,
    with_scores: bool,
}

impl Query {
    /// Parses `numkeys key [key ...] [options]`, with the number of keys at `at`.
    fn parse(
        core: &mut Core,
        args: Args<'_>,
        at: usize,
        operation: Operation,
        command: &str,
    ) -> CommandResult<Query> {
        let count = int(args[at])?;
        if count < 1 {
            return Err(format!("ERR at least 1 input key is needed for '{command}' command").into());
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let keys = args[at + 1..].get(..count).ok_or(Failure::SYNTAX)?;
        let inputs = keys.iter().map(|key| Input::read(core, key)).collect::<CommandResult<_>>()?;
        let mut query = Query { inputs, aggregate: Aggregate::Sum, with_scores: false };
        let stores = at == 2;
        let mut options = Options::after(args, at + 1 + count);
        while let Some(word) = options.next_word() {
            match word.as_str() {
                "weights" if operation != Operation::Difference && options.left() >= count => {
                    for input in &mut query.inputs {
                        let weight = float(options.value()?);
                        input.weight = weight.map_err(|_| Failure::new("ERR weight value is not a float"))?;
                    }
                }
                "aggregate" if operation != Operation::Difference => {
                    query.aggregate = match options.value()?.to_ascii_lowercase().as_slice() {
                        b"sum" => Aggregate::Sum,
                        b"min" => Aggregate::Min,
                        b"max" => Aggregate::Max,
                        _ => return Err(Failure::SYNTAX),
                    };
                }
                "withscores" if !stores => query.with_scores = true,
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(query)
    }

    /// The members of the result and their scores. Unlike a stored score, one of these may be -0, as in Redis.
    fn compute(&mut self, operation: Operation) -> HashMap<&[u8], f64> {
        if operation != Operation::Difference {
            // The order of additions can change the last digit of a sum. Redis begins with the smallest set.
            self.inputs.sort_by_key(|input| input.members.len());
        }
        let weighted = |input: &Input, score: f64| number_or_zero(input.weight * score);
        let (first, others) = self.inputs.split_first().expect("there is at least one key");
        let mut result: HashMap<&[u8], f64> = first
            .members
            .iter()
            .map(|(member, score)| (member.as_slice(), weighted(first, *score)))
            .collect();
        for other in others {
            match operation {
                Operation::Union => {
                    for (member, score) in &other.members {
                        let score = weighted(other, *score);
                        result
                            .entry(member)
                            .and_modify(|sum| *sum = self.aggregate.of(*sum, score))
                            .or_insert(score);
                    }
                }
                Operation::Intersection => {
                    let scores: HashMap<&[u8], f64> =
                        other.members.iter().map(|(member, score)| (member.as_slice(), *score)).collect();
                    result.retain(|member, sum| {
                        let score = scores.get(member);
                        score.is_some_and(|score| {
                            *sum = self.aggregate.of(*sum, other.weight * score);
                            true
                        })
                    });
                }
                Operation::Difference => {
                    let members: HashSet<&[u8]> =
                        other.members.iter().map(|(member, _)| member.as_slice()).collect();
                    result.retain(|member, _| !members.contains(member));
                }
            }
        }
        result
    }
}

impl Input {
    fn read(core: &mut Core, key: &[u8]) -> CommandResult<Input> {
        let members = match core.keys.get(key).map(|entry| &entry.value) {
            None => Vec::new(),
            Some(Value::SortedSet(set)) => (0..set.len())
                .filter_map(|at| set.at(at))
                .map(|(member, score)| (member.to_vec(), score))
                .collect(),
            Some(Value::Set(set)) => Set::iter(set).map(|member| (member.to_vec(), 1.0)).collect(),
            Some(_) => return Err(Failure::WRONG_TYPE),
        };
        Ok(Input { members, weight: 1.0 })
    }
}

/// `ZUNION`, `ZINTER` and `ZDIFF`.
pub(super) fn combine(core: &mut Core, args: Args<'_>, operation: Operation, command: &str) -> CommandResult {
    let mut query = Query::parse(core, args, 1, operation, command)?;
    let with_scores = query.with_scores;
    let result = query.compute(operation);
    let set = sorted(&result);
    let members = set.range(0..set.len()).map(|ranked| &*ranked.member);
    Ok(if with_scores {
        Reply::Scored(members.map(|member| (member.to_vec(), result[member])).collect())
    } else {
        Reply::bulks(members)
    })
}

fn sorted(members: &HashMap<&[u8], f64>) -> SortedSet {
    let mut set = SortedSet::default();
    members.iter().for_each(|(member, score)| set.set(member, *score));
    set
}

/// `ZUNIONSTORE`, `ZINTERSTORE` and `ZDIFFSTORE`.
pub(super) fn store(
    core: &mut Core,
    args: Args<'_>,
    operation: Operation,
    command: &'static str,
) -> CommandResult {
    core.keys.lookups.counted = true;
    let mut query = Query::parse(core, args, 2, operation, command)?;
    let set = sorted(&query.compute(operation));
    let length = set.len();
    if length > 0 {
        core.keys.put(args[1], Value::SortedSet(Box::new(set)), None);
        core.keys.changed(args[1], EventClass::SortedSet, command);
    } else if core.keys.remove(args[1]).is_some() {
        core.keys.changed(args[1], EventClass::Generic, "del");
    }
    Ok(Reply::len(length))
}

/// `ZINTERCARD`.
pub(super) fn zintercard(core: &mut Core, args: Args<'_>) -> CommandResult {
    let count = usize::try_from(int(args[1])?).unwrap_or(0);
    let (query, options) = args.split_at((2usize.saturating_add(count)).min(args.len()));
    let mut query = Query::parse(core, query, 1, Operation::Intersection, "zintercard")?;
    let mut limit = usize::MAX;
    let mut options = Options::after(options, 0);
    while let Some(word) = options.next_word() {
        if word != "limit" {
            return Err(Failure::SYNTAX);
        }
        let value = read_int(options.value()?).and_then(|value| usize::try_from(value).ok());
        let value = value.ok_or(Failure::new("ERR LIMIT can't be negative"))?;
        limit = if value == 0 { usize::MAX } else { value };
    }
    Ok(Reply::len(query.compute(Operation::Intersection).len().min(limit)))
}
