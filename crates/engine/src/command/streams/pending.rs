//! `XACK` and `XPENDING`.

use super::id::{Interval, parse_ids};
use super::{id_reply, no_such_key_or_group};
use crate::command::Args;
use crate::engine::Core;
use crate::number::int;
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{Group, Stream};

pub(super) fn xack(core: &mut Core, args: Args<'_>) -> CommandResult {
    let stream = core.keys.read::<Stream>(args[1])?;
    if stream.and_then(|stream| stream.group(args[2])).is_none() {
        return Ok(Reply::Int(0));
    }
    let ids = parse_ids(&args[3..])?;
    let acknowledged = core.keys.update(args[1], |stream: &mut Stream| {
        stream.update_group(args[2], |group| ids.iter().filter(|id| group.acknowledge(**id)).count())
    })?;
    Ok(Reply::len(acknowledged.flatten().unwrap_or(0)))
}

/// Which pending entries a client wants.
struct Wanted<'a> {
    min_idle_ms: i64,
    interval: Interval,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    fn parse(args: Args<'a>) -> CommandResult<Wanted<'a>> {
        let mut rest = &args[3..];
        let mut min_idle_ms = 0;
        if rest[0].eq_ignore_ascii_case(b"idle") {
            min_idle_ms = int(rest[1])?;
            rest = &rest[2..];
        }
        let [start, end, count, consumer @ ..] = rest else {
            return Err(Failure::SYNTAX);
        };
        let count = usize::try_from(int(count)?).unwrap_or(0);
        let interval = Interval::parse(start, end)?;
        Ok(Wanted { min_idle_ms, interval, count, consumer: consumer.first().copied() })
    }
}

pub(super) fn xpending(core: &mut Core, args: Args<'_>) -> CommandResult {
    let wanted = match args.len() {
        3 => None,
        6..=9 => Some(Wanted::parse(args)?),
        _ => return Err(Failure::SYNTAX),
    };
    let now_ms = core.keys.now_ms.cast_signed();
    let stream = core.keys.read::<Stream>(args[1])?;
    let group = stream.and_then(|stream| stream.group(args[2]));
    let group = group.ok_or_else(|| no_such_key_or_group(args[1], args[2]))?;
    Ok(match wanted {
        None => summary(group),
        Some(wanted) => list(group, &wanted, now_ms),
    })
}

fn summary(group: &Group) -> Reply {
    let pending = group.pending();
    let (Some((first, _)), Some((last, _))) = (pending.first_key_value(), pending.last_key_value()) else {
        return Reply::Array(vec![Reply::Int(0), Reply::Null, Reply::Null, Reply::NullArray]);
    };
    let consumers = group.consumers().filter(|(_, consumer)| !consumer.pending().is_empty());
    let consumers = consumers.map(|(name, consumer)| {
        Reply::Array(vec![Reply::bulk(name), Reply::bulk(consumer.pending().len().to_string())])
    });
    Reply::Array(vec![
        Reply::len(pending.len()),
        id_reply(*first),
        id_reply(*last),
        Reply::Array(consumers.collect()),
    ])
}

fn list(group: &Group, wanted: &Wanted<'_>, now_ms: i64) -> Reply {
    let pending = group.pending_of(wanted.consumer, wanted.interval.start, wanted.interval.end);
    let idle_ms = |delivered_ms: i64| now_ms.wrapping_sub(delivered_ms);
    let pending = pending.filter(|(_, pending)| {
        wanted.min_idle_ms == 0 || idle_ms(pending.delivered_ms) >= wanted.min_idle_ms
    });
    let replies = pending.take(wanted.count).map(|(id, pending)| {
        Reply::Array(vec![
            id_reply(id),
            Reply::bulk(&pending.consumer),
            Reply::Int(idle_ms(pending.delivered_ms).max(0)),
            Reply::Int(pending.deliveries),
        ])
    });
    Reply::Array(replies.collect())
}
