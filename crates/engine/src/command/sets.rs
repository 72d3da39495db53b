//! Sets.

use std::collections::HashSet;

use hob_commands::SetCommand;

use super::keys::ScanOptions;
use super::random::{Sample, any_index};
use super::{Args, Handler, Options};
use crate::engine::Core;
use crate::number::{positive, read_int};
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{EventClass, Scan, Set, Value};

pub(super) fn handler(id: SetCommand) -> Handler {
    match id {
        SetCommand::SAdd => Handler::Data(sadd),
        SetCommand::SRem => Handler::Data(srem),
        SetCommand::SMembers => Handler::Data(smembers),
        SetCommand::SIsMember => Handler::Data(sismember),
        SetCommand::SMIsMember => Handler::Data(smismember),
        SetCommand::SCard => Handler::Data(scard),
        SetCommand::SPop => Handler::Data(spop),
        SetCommand::SRandMember => Handler::Data(srandmember),
        SetCommand::SInter => Handler::Data(|core, args| Algebra::Inter.reply(core, args)),
        SetCommand::SInterStore => Handler::Data(|core, args| Algebra::Inter.store(core, args)),
        SetCommand::SUnion => Handler::Data(|core, args| Algebra::Union.reply(core, args)),
        SetCommand::SUnionStore => Handler::Data(|core, args| Algebra::Union.store(core, args)),
        SetCommand::SDiff => Handler::Data(|core, args| Algebra::Diff.reply(core, args)),
        SetCommand::SDiffStore => Handler::Data(|core, args| Algebra::Diff.store(core, args)),
        SetCommand::SInterCard => Handler::Data(sintercard),
        SetCommand::SMove => Handler::Data(smove),
        SetCommand::SScan => Handler::Data(sscan),
    }
}

fn sadd(core: &mut Core, args: Args<'_>) -> CommandResult {
    let members = &args[2..];
    let added = core.keys.upsert(args[1], |set: &mut Set| members.iter().filter(|m| set.add(m)).count())?;
    if added > 0 {
        core.keys.changed(args[1], EventClass::Set, "sadd");
    }
    Ok(Reply::len(added))
}

fn srem(core: &mut Core, args: Args<'_>) -> CommandResult {
    let members = &args[2..];
    let removed =
        core.keys.update(args[1], |set: &mut Set| members.iter().filter(|m| set.remove(m)).count())?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        core.keys.reduced(args[1], EventClass::Set, "srem");
    }
    Ok(Reply::len(removed))
}

fn members<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Reply {
    Reply::Set(items.into_iter().map(Reply::bulk).collect())
}

fn smembers(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(members(core.keys.read::<Set>(args[1])?.into_iter().flat_map(Set::iter)))
}

fn sismember(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(Reply::flag(core.keys.read::<Set>(args[1])?.is_some_and(|set| set.contains(args[2]))))
}

fn smismember(core: &mut Core, args: Args<'_>) -> CommandResult {
    let set = core.keys.read::<Set>(args[1])?;
    let is_member = |member: &&[u8]| Reply::flag(set.is_some_and(|set| set.contains(member)));
    Ok(Reply::Array(args[2..].iter().map(is_member).collect()))
}

fn scard(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(Reply::len(core.keys.read::<Set>(args[1])?.map_or(0, Set::len)))
}

fn spop(core: &mut Core, args: Args<'_>) -> CommandResult {
    let key = args[1];
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(positive(count)?),
        _ => return Err(Failure::SYNTAX),
    };
    let popped = core.keys.update(key, |set: &mut Set| {
        let most = count.unwrap_or(1).min(set.len());
        (0..most).filter_map(|_| set.take_at(any_index(set.len()))).collect::<Vec<_>>()
    })?;
    let popped = popped.unwrap_or_default();
    if !popped.is_empty() {
        core.keys.reduced(key, EventClass::Set, "spop");
    }
    Ok(match count {
        None => Reply::bulk_or_null(popped.into_iter().next().map(Vec::from)),
        Some(_) => members(popped.iter().map(AsRef::as_ref)),
    })
}

fn srandmember(core: &mut Core, args: Args<'_>) -> CommandResult {
    if args.len() > 3 {
        return Err(Failure::SYNTAX);
    }
    let sample = Sample::parse(args, None)?;
    let max_reply_items = core.settings.max_reply_items;
    let set = core.keys.read::<Set>(args[1])?;
    let (Some(set), Some(sample)) = (set, &sample) else {
        let any = set.and_then(|set| set.at(any_index(set.len()))).map(Reply::bulk);
        return Ok(any.unwrap_or(if sample.is_some() { Reply::Array(vec![]) } else { Reply::Null }));
    };
    let chosen = sample.indexes(set.len(), max_reply_items)?;
    Ok(Reply::bulks(chosen.into_iter().filter_map(|index| set.at(index))))
}

fn smove(core: &mut Core, args: Args<'_>) -> CommandResult {
    let (source, target, member) = (args[1], args[2], args[3]);
    let Some(set) = core.keys.read::<Set>(source)? else { return Ok(Reply::Int(0)) };
    let present = set.contains(member);
    core.keys.read::<Set>(target)?;
    if !present || source == target {
        return Ok(Reply::flag(present));
    }
    core.keys.update(source, |set: &mut Set| set.remove(member))?;
    core.keys.reduced(source, EventClass::Set, "srem");
    if core.keys.upsert(target, |set: &mut Set| set.add(member))? {
        core.keys.changed(target, EventClass::Set, "sadd");
    }
    Ok(Reply::Int(1))
}

type Members = HashSet<Vec<u8>>;

/// Copies of all named sets; a missing key is an empty set.
fn sets(core: &mut Core, keys: Args<'_>) -> CommandResult<Vec<Members>> {
    keys.iter()
        .map(|key| {
            let set = core.keys.read::<Set>(key)?;
            Ok(set.into_iter().flat_map(Set::iter).map(<[u8]>::to_vec).collect())
        })
        .collect()
}

/// Unions, intersections and differences.
#[derive(Clone, Copy)]
enum Algebra {
    Inter,
    Union,
    Diff,
}

impl Algebra {
    fn of(self, core: &mut Core, keys: Args<'_>) -> CommandResult<Members> {
        let combined = sets(core, keys)?.into_iter().reduce(|mut left, right| {
            match self {
                Algebra::Inter => left.retain(|member| right.contains(member)),
                Algebra::Union => left.extend(right),
                Algebra::Diff => left.retain(|member| !right.contains(member)),
            }
            left
        });
        Ok(combined.unwrap_or_default())
    }

    fn reply(self, core: &mut Core, args: Args<'_>) -> CommandResult {
        Ok(Reply::Set(self.of(core, &args[1..])?.into_iter().map(Reply::Bulk).collect()))
    }

    fn store(self, core: &mut Core, args: Args<'_>) -> CommandResult {
        let event = match self {
            Algebra::Inter => "sinterstore",
            Algebra::Union => "sunionstore",
            Algebra::Diff => "sdiffstore",
        };
        core.keys.lookups.counted = true;
        let members = self.of(core, &args[2..])?;
        if !members.is_empty() {
            let mut set = Set::default();
            for member in &members {
                set.add(member);
            }
            core.keys.put(args[1], Value::Set(Box::new(set)), None);
            core.keys.changed(args[1], EventClass::Set, event);
        } else if core.keys.remove(args[1]).is_some() {
            core.keys.changed(args[1], EventClass::Generic, "del");
        }
        Ok(Reply::len(members.len()))
    }
}

fn sintercard(core: &mut Core, args: Args<'_>) -> CommandResult {
    let not_negative = |text: &[u8]| read_int(text).and_then(|value| usize::try_from(value).ok());
    let count = not_negative(args[1]).filter(|count| *count > 0);
    let count = count.ok_or(Failure::new("ERR numkeys should be greater than 0"))?;
    let keys = args[2..].get(..count);
    let keys = keys.ok_or(Failure::new("ERR Number of keys can't be greater than number of args"))?;
    let mut limit = 0;
    let mut options = Options::after(args, 2 + count);
    while let Some(word) = options.next_word() {
        if word != "limit" {
            return Err(Failure::SYNTAX);
        }
        limit = not_negative(options.value()?).ok_or(Failure::new("ERR LIMIT can't be negative"))?;
    }
    let found = Algebra::Inter.of(core, keys)?.len();
    Ok(Reply::len(if limit == 0 { found } else { found.min(limit) }))
}

fn sscan(core: &mut Core, args: Args<'_>) -> CommandResult {
    let options = ScanOptions::parse(args, 2)?;
    let Some(set) = core.keys.read::<Set>(args[1])? else {
        return Ok(options.nothing());
    };
    let page = Scan::page(options.cursor, options.count, set.len(), |index| {
        set.at(index).filter(|member| options.wants(member))
    });
    Ok(ScanOptions::reply(page.cursor, page.found.into_iter().map(Reply::bulk).collect()))
}
