//! `XINFO`.

use super::{entry_reply, id_reply, no_such_group, wrong_subcommand};
use crate::command::Args;
use crate::engine::Core;
use crate::number::int;
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{Group, Stream, StreamId};

fn map<const N: usize>(pairs: [(&str, Reply); N]) -> Reply {
    Reply::Map(pairs.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect())
}

fn int_or_null(number: Option<i64>) -> Reply {
    number.map_or(Reply::Null, Reply::Int)
}

fn read<'a>(core: &'a mut Core, args: Args<'_>) -> CommandResult<&'a Stream> {
    core.keys.read::<Stream>(args[2])?.ok_or(Failure::NO_SUCH_KEY)
}

pub(super) fn stream(core: &mut Core, args: Args<'_>) -> CommandResult {
    let stream = read(core, args)?;
    let mut pairs = summary(stream);
    match args.len() {
        3 => {
            let mut entries = stream.range(StreamId::MIN, StreamId::MAX);
            let first = entries.next();
            let last = entries.next_back().or(first);
            let entry = |entry: Option<_>| entry.map_or(Reply::Null, |(id, entry)| entry_reply(id, entry));
            pairs.push(("groups", Reply::len(stream.groups().len())));
            pairs.push(("first-entry", entry(first)));
            pairs.push(("last-entry", entry(last)));
        }
        4 | 6 if args[3].eq_ignore_ascii_case(b"full") => {
            let count = match &args[4..] {
                [] => 10,
                [word, count] if word.eq_ignore_ascii_case(b"count") => {
                    usize::try_from(int(count)?).unwrap_or(10)
                }
                _ => return Err(wrong_subcommand(args)),
            };
            let count = if count == 0 { usize::MAX } else { count };
            let entries = stream.range(StreamId::MIN, StreamId::MAX).take(count);
            pairs
                .push(("entries", Reply::Array(entries.map(|(id, entry)| entry_reply(id, entry)).collect())));
            let groups = stream.groups().map(|(name, group)| full_group(stream, name, group, count));
            pairs.push(("groups", Reply::Array(groups.collect())));
        }
        _ => return Err(wrong_subcommand(args)),
    }
    Ok(Reply::Map(pairs.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect()))
}

fn summary(stream: &Stream) -> Vec<(&'static str, Reply)> {
    /// The number of entries in a node of Redis's tree, unless they are large.
    const PER_NODE: usize = 100;
    let nodes = stream.len().div_ceil(PER_NODE);
    vec![
        ("length", Reply::len(stream.len())),
        ("radix-tree-keys", Reply::len(nodes)),
        ("radix-tree-nodes", Reply::len(nodes + 1)),
        ("last-generated-id", id_reply(stream.last_id)),
        ("max-deleted-entry-id", id_reply(stream.max_deleted_id)),
        ("entries-added", Reply::Int(stream.entries_added.cast_signed())),
        ("recorded-first-entry-id", id_reply(stream.first_id())),
    ]
}

fn full_group(stream: &Stream, name: &[u8], group: &Group, count: usize) -> Reply {
    let pending = group.pending().iter().take(count).map(|(id, pending)| {
        Reply::Array(vec![
            id_reply(*id),
            Reply::bulk(&pending.consumer),
            Reply::Int(pending.delivered_ms),
            Reply::Int(pending.deliveries),
        ])
    });
    let consumers = group.consumers().map(|(name, consumer)| {
        let pending = group.pending_of(Some(name), StreamId::MIN, StreamId::MAX).take(count);
        let pending = pending.map(|(id, pending)| {
            Reply::Array(vec![id_reply(id), Reply::Int(pending.delivered_ms), Reply::Int(pending.deliveries)])
        });
        map([
            ("name", Reply::bulk(name)),
            ("seen-time", Reply::Int(consumer.seen_ms)),
            ("pel-count", Reply::len(consumer.pending().len())),
            ("pending", Reply::Array(pending.collect())),
        ])
    });
    map([
        ("name", Reply::bulk(name)),
        ("last-delivered-id", id_reply(group.last_id)),
        ("entries-read", int_or_null(group.entries_read)),
        ("lag", int_or_null(stream.lag(group))),
        ("pel-count", Reply::len(group.pending().len())),
        ("pending", Reply::Array(pending.collect())),
        ("consumers", Reply::Array(consumers.collect())),
    ])
}

pub(super) fn groups(core: &mut Core, args: Args<'_>) -> CommandResult {
    let stream = read(core, args)?;
    let groups = stream.groups().map(|(name, group)| {
        map([
            ("name", Reply::bulk(name)),
            ("consumers", Reply::len(group.consumers().len())),
            ("pending", Reply::len(group.pending().len())),
            ("last-delivered-id", id_reply(group.last_id)),
            ("entries-read", int_or_null(group.entries_read)),
            ("lag", int_or_null(stream.lag(group))),
        ])
    });
    Ok(Reply::Array(groups.collect()))
}

pub(super) fn consumers(core: &mut Core, args: Args<'_>) -> CommandResult {
    let now_ms = core.keys.now_ms.cast_signed();
    let group = read(core, args)?.group(args[3]).ok_or_else(|| no_such_group(args[2], args[3]))?;
    let consumers = group.consumers().map(|(name, consumer)| {
        map([
            ("name", Reply::bulk(name)),
            ("pending", Reply::len(consumer.pending().len())),
            ("idle", Reply::Int(now_ms.wrapping_sub(consumer.seen_ms).max(0))),
        ])
    });
    Ok(Reply::Array(consumers.collect()))
}
