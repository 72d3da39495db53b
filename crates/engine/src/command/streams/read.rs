//! `XREAD` and `XREADGROUP`.

use super::id::parse_id;
use super::{entry_reply, id_reply, shown, with_consumer};
use crate::blocked::{Attempt, Wait, timeout_ms};
use crate::command::Args;
use crate::command::options::Options;
use crate::engine::Core;
use crate::number::int;
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{Stream, StreamId};

/// The number of entries for a client that waited, unless it sets one.
const MAX_WAITED_ENTRIES: usize = 1000;

/// Who reads for a group.
#[derive(Clone)]
struct Reader {
    group: Vec<u8>,
    consumer: Vec<u8>,
    /// Entries count as acknowledged.
    no_ack: bool,
}

/// Where to begin in a stream.
#[derive(Clone, Copy)]
enum Start {
    After(StreamId),
    /// After the last entry that the group got.
    New,
}

struct Request<'a> {
    keys: Args<'a>,
    ids: Args<'a>,
    count: Option<usize>,
    /// Whether to wait, and until when.
    block: Option<Option<u64>>,
    reader: Option<Reader>,
}

impl<'a> Request<'a> {
    fn parse(core: &Core, args: Args<'a>) -> CommandResult<Request<'a>> {
        let reads_group = args[0].len() == "xreadgroup".len();
        let (mut count, mut block, mut names, mut no_ack) = (None, None, None, false);
        let mut options = Options::after(args, 1);
        let streams = loop {
            let word = options.next_word().ok_or(Failure::SYNTAX)?;
            match word.as_str() {
                "block" if options.has_more() => block = Some(block_until(core, args[0], options.value()?)?),
                "count" if options.has_more() => {
                    count = usize::try_from(int(options.value()?)?).ok().filter(|count| *count > 0);
                }
                "streams" if options.has_more() => break options.rest(),
                "group" if options.rest().len() >= 2 => {
                    if !reads_group {
                        return Err(only_of_groups("GROUP"));
                    }
                    names = Some((options.value()?, options.value()?));
                }
                "noack" if !reads_group => return Err(only_of_groups("NOACK")),
                "noack" => no_ack = true,
                _ => return Err(Failure::SYNTAX),
            }
        };
        if !streams.len().is_multiple_of(2) {
            return Err(Failure::new(
                "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
            ));
        }
        if reads_group && names.is_none() {
            return Err(Failure::new("ERR Missing GROUP option for XREADGROUP"));
        }
        let (keys, ids) = streams.split_at(streams.len() / 2);
        let reader = names.map(|(group, consumer)| Reader {
            group: group.to_vec(),
            consumer: consumer.to_vec(),
            no_ack,
        });
        Ok(Request { keys, ids, count, block, reader })
    }

    /// Where to begin in each stream. The streams must have the group.
    fn starts(&self, core: &mut Core) -> CommandResult<Vec<Start>> {
        let keys_and_ids = self.keys.iter().zip(self.ids);
        keys_and_ids.map(|(key, id)| self.start(core.keys.read::<Stream>(key)?, key, id)).collect()
    }

    fn start(&self, stream: Option<&Stream>, key: &[u8], id: &[u8]) -> CommandResult<Start> {
        if let Some(reader) = &self.reader
            && stream.is_none_or(|stream| stream.group(&reader.group).is_none())
        {
            return Err(format!(
                "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
                shown(key),
                shown(&reader.group)
            )
            .into());
        }
        Ok(match (id, &self.reader) {
            (b"$", Some(_)) => return Err(LAST_ID_OF_GROUP),
            (b"$", None) => Start::After(stream.map_or(StreamId::MIN, |stream| stream.last_id)),
            (b">", None) => return Err(NEW_WITHOUT_GROUP),
            (b">", Some(_)) => Start::New,
            (id, reader) => match parse_id(id, 0)? {
                StreamId::MAX if reader.is_some() => Start::New,
                id => Start::After(id),
            },
        })
    }
}

const LAST_ID_OF_GROUP: Failure = Failure::new(
    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
     specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
);
const NEW_WITHOUT_GROUP: Failure = Failure::new(
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
);

fn only_of_groups(option: &str) -> Failure {
    format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead.").into()
}

fn block_until(core: &Core, command: &[u8], timeout: &[u8]) -> CommandResult<Option<u64>> {
    if core.is_in_script() {
        let command = shown(command);
        return Err(format!("ERR {command} command is not allowed with BLOCK option from scripts").into());
    }
    timeout_ms(core, timeout)
}

pub(super) fn xread(core: &mut Core, args: Args<'_>) -> CommandResult<Attempt> {
    let request = Request::parse(core, args)?;
    let starts = request.starts(core)?;
    let mut found = vec![];
    for (key, start) in request.keys.iter().zip(&starts) {
        let entries = match &request.reader {
            None => read(core, key, *start, request.count),
            Some(reader) => read_group(core, key, reader, *start, request.count),
        };
        found.extend(entries?.map(|entries| (Reply::bulk(key), Reply::Array(entries))));
    }
    if !found.is_empty() {
        return Ok(Attempt::Done(Reply::Keyed(found)));
    }
    let Some(deadline_us) = request.block else {
        return Ok(Attempt::Done(Reply::NullArray));
    };
    let keys: Vec<Vec<u8>> = request.keys.iter().map(|key| key.to_vec()).collect();
    let waiting = Waiting {
        starts: keys.iter().cloned().zip(starts).collect(),
        count: request.count.unwrap_or(MAX_WAITED_ENTRIES),
        reader: request.reader,
    };
    Ok(Attempt::Wait(Wait {
        keys,
        deadline_us,
        reply_without_wait: Reply::NullArray,
        serve: Box::new(move |core, key| waiting.serve(core, key)),
    }))
}

/// The entries after an id, if there is one.
fn read(
    core: &mut Core,
    key: &[u8],
    start: Start,
    count: Option<usize>,
) -> CommandResult<Option<Vec<Reply>>> {
    let (Some(stream), Start::After(id)) = (core.keys.read::<Stream>(key)?, start) else { return Ok(None) };
    let has_more = stream.last_entry_id().is_some_and(|last| last > id);
    Ok(has_more.then(|| entries_after(stream, id, count)))
}

fn entries_after(stream: &Stream, id: StreamId, count: Option<usize>) -> Vec<Reply> {
    let Some(start) = id.next() else { return vec![] };
    let entries = stream.range(start, StreamId::MAX).take(count.unwrap_or(usize::MAX));
    entries.map(|(id, entry)| entry_reply(id, entry)).collect()
}

/// New entries for a consumer, if there are any, or those that it got before and has not acknowledged.
fn read_group(
    core: &mut Core,
    key: &[u8],
    reader: &Reader,
    start: Start,
    count: Option<usize>,
) -> CommandResult<Option<Vec<Reply>>> {
    let now_ms = core.keys.now_ms.cast_signed();
    let entries = with_consumer(core, [key, &reader.group, &reader.consumer], |stream| match start {
        Start::After(id) => Some(history(stream, reader, id, count, now_ms)),
        Start::New => {
            let last_id = stream.group(&reader.group)?.last_id;
            let has_more = stream.last_entry_id().is_some_and(|last| last > last_id);
            has_more.then(|| deliver(stream, reader, last_id, count, now_ms))
        }
    })?;
    Ok(entries.flatten())
}

/// Gives a consumer the entries after an id.
fn deliver(
    stream: &mut Stream,
    reader: &Reader,
    after: StreamId,
    count: Option<usize>,
    now_ms: i64,
) -> Vec<Reply> {
    stream.update_group(&reader.group, |group| group.see_consumer(&reader.consumer, now_ms));
    let Some(start) = after.next() else { return vec![] };
    let entries = stream.range(start, StreamId::MAX).take(count.unwrap_or(usize::MAX));
    let entries: Vec<(StreamId, Reply)> = entries.map(|(id, entry)| (id, entry_reply(id, entry))).collect();
    for (id, _) in &entries {
        let Some(group) = stream.group(&reader.group) else { break };
        let entries_read = stream.entries_read_after(group, *id);
        stream.update_group(&reader.group, |group| {
            if *id > group.last_id {
                (group.last_id, group.entries_read) = (*id, entries_read);
            }
            if !reader.no_ack {
                group.assign(*id, &reader.consumer, now_ms, 1);
            }
        });
    }
    entries.into_iter().map(|(_, reply)| reply).collect()
}

/// The pending entries of a consumer after an id.
fn history(
    stream: &mut Stream,
    reader: &Reader,
    after: StreamId,
    count: Option<usize>,
    now_ms: i64,
) -> Vec<Reply> {
    stream.update_group(&reader.group, |group| group.see_consumer(&reader.consumer, now_ms));
    let (Some(start), Some(group)) = (after.next(), stream.group(&reader.group)) else { return vec![] };
    let ids = group.pending_of(Some(&reader.consumer), start, StreamId::MAX).map(|(id, _)| id);
    let ids: Vec<StreamId> = ids.take(count.unwrap_or(usize::MAX)).collect();
    let replies = ids.into_iter().map(|id| {
        // The entry may have been removed from the stream.
        let Some(entry) = stream.entry(id) else {
            return Reply::Array(vec![id_reply(id), Reply::NullArray]);
        };
        let reply = entry_reply(id, entry);
        stream.update_group(&reader.group, |group| group.deliver_again(id, now_ms));
        reply
    });
    replies.collect()
}

/// A client that waits for new entries.
struct Waiting {
    starts: Vec<(Vec<u8>, Start)>,
    count: usize,
    reader: Option<Reader>,
}

impl Waiting {
    fn serve(&self, core: &mut Core, key: &[u8]) -> Option<CommandResult> {
        let (_, start) = self.starts.iter().find(|(name, _)| name == key)?;
        let now_ms = core.keys.now_ms.cast_signed();
        let (group, consumer) =
            self.reader.as_ref().map_or((&[][..], &[][..]), |reader| (&reader.group, &reader.consumer));
        let served =
            with_consumer(core, [key, group, consumer], |stream| self.serve_stream(stream, *start, now_ms));
        match served {
            Ok(Some(entries)) => {
                let pair = |entries| Reply::Keyed(vec![(Reply::bulk(key), Reply::Array(entries))]);
                entries.map(|entries| entries.map(pair))
            }
            // The key was removed or replaced. A reader without a group waits for a new stream.
            Ok(None) | Err(_) => {
                self.reader.as_ref()?;
                Some(Err(Failure::new("UNBLOCKED the stream key no longer exists")))
            }
        }
    }

    fn serve_stream(
        &self,
        stream: &mut Stream,
        start: Start,
        now_ms: i64,
    ) -> Option<CommandResult<Vec<Reply>>> {
        let count = Some(self.count);
        let Some(reader) = &self.reader else {
            let Start::After(id) = start else { return None };
            return (stream.last_id > id).then(|| Ok(entries_after(stream, id, count)));
        };
        let Some(group) = stream.group(&reader.group) else {
            return Some(Err(Failure::new(
                "NOGROUP the consumer group this client was blocked on no longer exists",
            )));
        };
        let last_id = group.last_id;
        (stream.last_id > last_id).then(|| Ok(deliver(stream, reader, last_id, count, now_ms)))
    }
}
