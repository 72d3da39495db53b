//! `XCLAIM` and `XAUTOCLAIM`.

use super::id::{parse_id, parse_start};
use super::{entry_reply, id_reply, no_such_key_or_group, shown, with_consumer};
use crate::command::Args;
use crate::command::options::Options;
use crate::engine::Core;
use crate::number::{int, read_int};
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{Stream, StreamId};

/// How entries are claimed.
struct Claim<'a> {
    group: &'a [u8],
    consumer: &'a [u8],
    min_idle_ms: i64,
    now_ms: i64,
    /// The new time of delivery.
    delivered_ms: i64,
    /// The new number of deliveries; otherwise one more than before.
    deliveries: Option<i64>,
    /// Also claim an entry that is not pending.
    force: bool,
    only_ids: bool,
}

enum Outcome {
    Claimed(Reply),
    /// It is not pending, or not for long enough.
    Refused,
    /// It was removed from the stream, and is not pending any more.
    Deleted,
}

impl Claim<'_> {
    fn claim(&self, stream: &mut Stream, id: StreamId) -> Outcome {
        let Some(entry) = stream.entry(id) else {
            stream.update_group(self.group, |group| group.acknowledge(id));
            return Outcome::Deleted;
        };
        let reply = if self.only_ids { id_reply(id) } else { entry_reply(id, entry) };
        let pending = stream.group(self.group).and_then(|group| group.pending().get(&id));
        let before = match pending {
            Some(pending) => {
                let idle_ms = self.now_ms.wrapping_sub(pending.delivered_ms);
                if self.min_idle_ms > 0 && idle_ms < self.min_idle_ms {
                    return Outcome::Refused;
                }
                pending.deliveries
            }
            // As in Redis, the entry counts as delivered before it was claimed.
            None if self.force => 1,
            None => return Outcome::Refused,
        };
        let once_more = if self.only_ids { before } else { before.wrapping_add(1) };
        stream.update_group(self.group, |group| {
            group.see_consumer(self.consumer, self.now_ms);
            group.assign(id, self.consumer, self.delivered_ms, self.deliveries.unwrap_or(once_more));
        });
        Outcome::Claimed(reply)
    }
}

/// The options of `XCLAIM`.
struct ClaimOptions {
    delivered_ms: Option<i64>,
    deliveries: Option<i64>,
    last_id: StreamId,
    force: bool,
    only_ids: bool,
}

impl ClaimOptions {
    fn parse(args: Args<'_>, at: usize, now_ms: i64) -> CommandResult<ClaimOptions> {
        let mut parsed = ClaimOptions {
            delivered_ms: None,
            deliveries: None,
            last_id: StreamId::MIN,
            force: false,
            only_ids: false,
        };
        let number = |options: &mut Options<'_>, name: &str| -> CommandResult<i64> {
            let number = read_int(options.value()?);
            number.ok_or_else(|| format!("ERR Invalid {name} option argument for XCLAIM").into())
        };
        let mut options = Options::after(args, at);
        while let Some(word) = options.next_word() {
            match word.as_str() {
                "force" => parsed.force = true,
                "justid" => parsed.only_ids = true,
                "idle" if options.has_more() => {
                    parsed.delivered_ms = Some(now_ms.wrapping_sub(number(&mut options, "IDLE")?));
                }
                "time" if options.has_more() => parsed.delivered_ms = Some(number(&mut options, "TIME")?),
                "retrycount" if options.has_more() => {
                    let given = number(&mut options, "RETRYCOUNT")?;
                    parsed.deliveries = Some(given).filter(|count| *count >= 0);
                }
                "lastid" if options.has_more() => parsed.last_id = parse_id(options.value()?, 0)?,
                _ => {
                    let option = shown(options.last());
                    return Err(format!("ERR Unrecognized XCLAIM option '{option}'").into());
                }
            }
        }
        Ok(parsed)
    }
}

pub(super) fn xclaim(core: &mut Core, args: Args<'_>) -> CommandResult {
    check_group(core, args)?;
    let min_idle_ms = min_idle_ms(args[4], "XCLAIM")?;
    let ids: Vec<StreamId> = args[5..].iter().map_while(|word| parse_id(word, 0).ok()).collect();
    let now_ms = core.keys.now_ms.cast_signed();
    let options = ClaimOptions::parse(args, 5 + ids.len(), now_ms)?;
    let claim = Claim {
        group: args[2],
        consumer: args[3],
        min_idle_ms,
        now_ms,
        delivered_ms: options.delivered_ms.filter(|time| (0..=now_ms).contains(time)).unwrap_or(now_ms),
        deliveries: options.deliveries,
        force: options.force,
        only_ids: options.only_ids,
    };
    let claimed = with_consumer(core, [args[1], args[2], args[3]], |stream| {
        stream.update_group(args[2], |group| group.last_id = group.last_id.max(options.last_id));
        let outcomes = ids.iter().map(|id| claim.claim(stream, *id));
        let claimed = outcomes.filter_map(|outcome| match outcome {
            Outcome::Claimed(reply) => Some(reply),
            Outcome::Refused | Outcome::Deleted => None,
        });
        claimed.collect()
    })?;
    Ok(Reply::Array(claimed.unwrap_or_default()))
}

pub(super) fn xautoclaim(core: &mut Core, args: Args<'_>) -> CommandResult {
    const MAX_COUNT: i64 = i64::MAX / 16;
    /// For each entry to claim, this number is looked at.
    const ATTEMPTS: usize = 10;
    let min_idle_ms = min_idle_ms(args[4], "XAUTOCLAIM")?;
    let start = parse_start(args[5])?;
    let (mut count, mut only_ids) = (100, false);
    let mut options = Options::after(args, 6);
    while let Some(word) = options.next_word() {
        match word.as_str() {
            "count" if options.has_more() => {
                let given = read_int(options.value()?).filter(|count| (1..=MAX_COUNT).contains(count));
                let given = given.and_then(|count| usize::try_from(count).ok());
                count = given.ok_or(Failure::new("ERR COUNT must be > 0"))?;
            }
            "justid" => only_ids = true,
            _ => return Err(Failure::SYNTAX),
        }
    }
    check_group(core, args)?;
    let now_ms = core.keys.now_ms.cast_signed();
    let claim = Claim {
        group: args[2],
        consumer: args[3],
        min_idle_ms,
        now_ms,
        delivered_ms: now_ms,
        deliveries: None,
        force: false,
        only_ids,
    };
    let reply = with_consumer(core, [args[1], args[2], args[3]], |stream| {
        let (mut claimed, mut deleted) = (vec![], vec![]);
        let mut next = Some(start);
        for _ in 0..count.saturating_mul(ATTEMPTS) {
            let pending = next.and_then(|next| first_pending(stream, args[2], next));
            let Some(id) = pending.filter(|_| claimed.len() + deleted.len() < count) else { break };
            match claim.claim(stream, id) {
                Outcome::Claimed(reply) => claimed.push(reply),
                Outcome::Deleted => deleted.push(id_reply(id)),
                Outcome::Refused => {}
            }
            next = id.next();
        }
        let cursor = next.and_then(|next| first_pending(stream, args[2], next)).unwrap_or(StreamId::MIN);
        Reply::Array(vec![id_reply(cursor), Reply::Array(claimed), Reply::Array(deleted)])
    })?;
    reply.ok_or_else(|| no_such_key_or_group(args[1], args[2]))
}

/// The first pending entry from an id on.
fn first_pending(stream: &Stream, group: &[u8], from: StreamId) -> Option<StreamId> {
    stream.group(group)?.pending().range(from..).next().map(|(id, _)| *id)
}

fn check_group(core: &mut Core, args: Args<'_>) -> CommandResult<()> {
    let stream = core.keys.read::<Stream>(args[1])?;
    let group = stream.and_then(|stream| stream.group(args[2]));
    group.map(|_| ()).ok_or_else(|| no_such_key_or_group(args[1], args[2]))
}

fn min_idle_ms(text: &[u8], command: &str) -> CommandResult<i64> {
    let given = int(text).map_err(|_| format!("ERR Invalid min-idle-time argument for {command}"))?;
    Ok(given.max(0))
}
