//! Sets.

use std::collections::HashSet;

use rand::RngExt;

use hob_commands::SetCommand;

use super::keys::ScanOptions;
use super::{Args, Handler};
use crate::engine::Core;
use crate::number::{int, positive};
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{EventClass, Scan, Set};

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
        SetCommand::SInter => Handler::Data(sinter),
        SetCommand::SUnion => Handler::Data(sunion),
        SetCommand::SDiff => Handler::Data(sdiff),
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
        (0..most).filter_map(|_| set.take_at(rand::rng().random_range(..set.len()))).collect::<Vec<_>>()
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
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(int(count)?),
        _ => return Err(Failure::SYNTAX),
    };
    if count == Some(i64::MIN) {
        return Err(Failure::new(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let max_reply_items = core.settings.max_reply_items;
    let set = core.keys.read::<Set>(args[1])?;
    let (Some(set), Some(count)) = (set, count) else {
        let any = set.and_then(|set| set.at(rand::rng().random_range(..set.len())));
        return Ok(match count {
            Some(_) => Reply::Array(vec![]),
            None => any.map_or(Reply::Null, Reply::bulk),
        });
    };
    let indexes = if count < 0 {
        // With repetitions, a small set can give a huge reply, which must be bounded.
        let count = count.unsigned_abs() as usize;
        if count > max_reply_items {
            return Err(Failure::new("ERR value is out of range"));
        }
        (0..count).map(|_| rand::rng().random_range(..set.len())).collect()
    } else {
        let count = (count as usize).min(set.len());
        rand::seq::index::sample(&mut rand::rng(), set.len(), count).into_vec()
    };
    Ok(Reply::bulks(indexes.into_iter().filter_map(|index| set.at(index))))
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

fn combined(core: &mut Core, keys: Args<'_>, combine: fn(Members, Members) -> Members) -> CommandResult {
    let result = sets(core, keys)?.into_iter().reduce(combine).unwrap_or_default();
    Ok(Reply::Set(result.into_iter().map(Reply::Bulk).collect()))
}

fn sinter(core: &mut Core, args: Args<'_>) -> CommandResult {
    combined(core, &args[1..], |mut left, right| {
        left.retain(|member| right.contains(member));
        left
    })
}

fn sunion(core: &mut Core, args: Args<'_>) -> CommandResult {
    combined(core, &args[1..], |mut left, right| {
        left.extend(right);
        left
    })
}

fn sdiff(core: &mut Core, args: Args<'_>) -> CommandResult {
    combined(core, &args[1..], |mut left, right| {
        left.retain(|member| !right.contains(member));
        left
    })
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
