//! Streams and their consumer groups.

mod add;
mod claim;
mod group;
mod id;
mod info;
mod pending;
mod read;

use hob_commands::StreamCommand;

use super::options::Options;
use super::{Args, Handler, printable};
use crate::engine::Core;
use crate::number::int;
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{Entry, EventClass, Stream, StreamId};
use id::{Interval, parse_id, parse_ids};

pub(super) fn handler(id: StreamCommand) -> Handler {
    match id {
        StreamCommand::XAdd => Handler::Data(add::xadd),
        StreamCommand::XTrim => Handler::Data(add::xtrim),
        StreamCommand::XLen => Handler::Data(xlen),
        StreamCommand::XRange => Handler::Data(|core, args| xrange(core, args, Order::Forward)),
        StreamCommand::XRevRange => Handler::Data(|core, args| xrange(core, args, Order::Backward)),
        StreamCommand::XDel => Handler::Data(xdel),
        StreamCommand::XSetId => Handler::Data(xsetid),
        StreamCommand::XRead | StreamCommand::XReadGroup => Handler::Blocking(read::xread),
        StreamCommand::XAck => Handler::Data(pending::xack),
        StreamCommand::XPending => Handler::Data(pending::xpending),
        StreamCommand::XClaim => Handler::Data(claim::xclaim),
        StreamCommand::XAutoClaim => Handler::Data(claim::xautoclaim),
        StreamCommand::GroupCreate => Handler::Data(group::create),
        StreamCommand::GroupSetId => Handler::Data(group::set_id),
        StreamCommand::GroupDestroy => Handler::Data(group::destroy),
        StreamCommand::GroupCreateConsumer => Handler::Data(group::create_consumer),
        StreamCommand::GroupDelConsumer => Handler::Data(group::delete_consumer),
        StreamCommand::InfoStream => Handler::Data(info::stream),
        StreamCommand::InfoGroups => Handler::Data(info::groups),
        StreamCommand::InfoConsumers => Handler::Data(info::consumers),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Forward,
    Backward,
}

fn xlen(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(Reply::len(core.keys.read::<Stream>(args[1])?.map_or(0, Stream::len)))
}

fn xrange(core: &mut Core, args: Args<'_>, order: Order) -> CommandResult {
    let interval = match order {
        Order::Forward => Interval::parse(args[2], args[3])?,
        Order::Backward => Interval::parse(args[3], args[2])?,
    };
    let mut count = None;
    let mut options = Options::after(args, 4);
    while let Some(word) = options.next_word() {
        match word.as_str() {
            "count" => count = Some(usize::try_from(int(options.value()?)?).unwrap_or(0)),
            _ => return Err(Failure::SYNTAX),
        }
    }
    let Some(stream) = core.keys.read::<Stream>(args[1])? else {
        return Ok(Reply::Array(vec![]));
    };
    if count == Some(0) {
        return Ok(Reply::NullArray);
    }
    let entries = stream.range(interval.start, interval.end).map(|(id, entry)| entry_reply(id, entry));
    let count = count.unwrap_or(usize::MAX);
    Ok(Reply::Array(match order {
        Order::Forward => entries.take(count).collect(),
        Order::Backward => entries.rev().take(count).collect(),
    }))
}

fn xdel(core: &mut Core, args: Args<'_>) -> CommandResult {
    if core.keys.read::<Stream>(args[1])?.is_none() {
        return Ok(Reply::Int(0));
    }
    let ids = parse_ids(&args[2..])?;
    let deleted = core
        .keys
        .update(args[1], |stream: &mut Stream| ids.iter().filter(|id| stream.delete(**id)).count())?;
    let deleted = deleted.unwrap_or(0);
    if deleted > 0 {
        core.keys.shortened(args[1], EventClass::Stream, "xdel");
    }
    Ok(Reply::len(deleted))
}

fn xsetid(core: &mut Core, args: Args<'_>) -> CommandResult {
    const TOO_SMALL: Failure =
        Failure::new("ERR The ID specified in XSETID is smaller than the target stream top item");
    const BELOW_DELETED: Failure =
        Failure::new("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id");
    const TOO_FEW: Failure =
        Failure::new("ERR The entries_added specified in XSETID is smaller than the target stream length");
    let last_id = parse_id(args[2], 0)?;
    let (mut entries_added, mut max_deleted_id) = (None, StreamId::MIN);
    let mut options = Options::after(args, 3);
    while let Some(word) = options.next_word() {
        match word.as_str() {
            "entriesadded" => {
                let given = u64::try_from(int(options.value()?)?);
                entries_added = Some(given.map_err(|_| Failure::new("ERR entries_added must be positive"))?);
            }
            "maxdeletedid" => {
                max_deleted_id = parse_id(options.value()?, 0)?;
                if last_id < max_deleted_id {
                    return Err(BELOW_DELETED);
                }
            }
            _ => return Err(Failure::SYNTAX),
        }
    }
    let stream = core.keys.read::<Stream>(args[1])?.ok_or(Failure::NO_SUCH_KEY)?;
    if stream.last_entry_id().is_some_and(|last| last_id < last) {
        return Err(TOO_SMALL);
    }
    if entries_added.is_some_and(|added| stream.len() > 0 && added < stream.len() as u64) {
        return Err(TOO_FEW);
    }
    core.keys.update(args[1], |stream: &mut Stream| {
        stream.last_id = last_id;
        stream.entries_added = entries_added.unwrap_or(stream.entries_added);
        if max_deleted_id != StreamId::MIN {
            stream.max_deleted_id = max_deleted_id;
        }
    })?;
    core.keys.notify(args[1], EventClass::Stream, "xsetid");
    Ok(Reply::OK)
}

/// Changes a stream for a consumer, and notifies if that created the consumer.
fn with_consumer<R>(
    core: &mut Core,
    [key, group, consumer]: [&[u8]; 3],
    change: impl FnOnce(&mut Stream) -> R,
) -> CommandResult<Option<R>> {
    let changed = core.keys.update(key, |stream: &mut Stream| {
        let exists =
            |stream: &Stream| stream.group(group).is_some_and(|group| group.consumer(consumer).is_some());
        let existed = exists(stream);
        let result = change(stream);
        (result, !existed && exists(stream))
    })?;
    let Some((result, is_created)) = changed else { return Ok(None) };
    if is_created {
        core.keys.notify(key, EventClass::Stream, "xgroup-createconsumer");
    }
    Ok(Some(result))
}

fn entry_reply(id: StreamId, entry: &Entry) -> Reply {
    Reply::Array(vec![id_reply(id), Reply::bulks(entry)])
}

fn id_reply(id: StreamId) -> Reply {
    Reply::bulk(id.to_string())
}

/// A key or group in an error.
fn shown(name: &[u8]) -> String {
    printable(name, name.len())
}

fn no_such_key_or_group(key: &[u8], group: &[u8]) -> Failure {
    format!("NOGROUP No such key '{}' or consumer group '{}'", shown(key), shown(group)).into()
}

fn no_such_group(key: &[u8], group: &[u8]) -> Failure {
    format!("NOGROUP No such consumer group '{}' for key name '{}'", shown(group), shown(key)).into()
}

/// The error for wrong arguments of a subcommand.
fn wrong_subcommand(args: Args<'_>) -> Failure {
    let (subcommand, command) = (printable(args[1], 128), shown(args[0]).to_ascii_uppercase());
    format!("ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try {command} HELP.")
        .into()
}
