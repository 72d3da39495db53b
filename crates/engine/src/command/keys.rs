//! Keys of any type, and their expiration.

use hob_commands::KeyCommand;

use super::options::{Options, is_flush_mode};
use super::{Args, Handler, copies, objects};
use crate::engine::Core;
use crate::glob;
use crate::number::{int, read_int};
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::EventClass;

pub(super) fn handler(id: KeyCommand) -> Handler {
    match id {
        KeyCommand::Del | KeyCommand::Unlink => Handler::Data(del),
        KeyCommand::Exists => Handler::Data(exists),
        KeyCommand::Type => Handler::Data(type_of),
        KeyCommand::Expire => Handler::Data(|core, args| expire(core, args, 1000, Base::Now, "expire")),
        KeyCommand::PExpire => Handler::Data(|core, args| expire(core, args, 1, Base::Now, "pexpire")),
        KeyCommand::ExpireAt => Handler::Data(|core, args| expire(core, args, 1000, Base::Epoch, "expireat")),
        KeyCommand::PExpireAt => Handler::Data(|core, args| expire(core, args, 1, Base::Epoch, "pexpireat")),
        KeyCommand::Ttl => Handler::Data(|core, args| {
            time_left(core, args[1], |deadline, now| (deadline.saturating_sub(now) + 500) / 1000)
        }),
        KeyCommand::PTtl => Handler::Data(|core, args| time_left(core, args[1], u64::saturating_sub)),
        KeyCommand::ExpireTime => {
            Handler::Data(|core, args| time_left(core, args[1], |deadline, _| (deadline + 500) / 1000))
        }
        KeyCommand::PExpireTime => {
            Handler::Data(|core, args| time_left(core, args[1], |deadline, _| deadline))
        }
        KeyCommand::Persist => Handler::Data(persist),
        KeyCommand::Keys => Handler::Data(keys),
        KeyCommand::Scan => Handler::Data(scan),
        KeyCommand::Rename => Handler::Data(copies::rename),
        KeyCommand::RenameNx => Handler::Data(copies::renamenx),
        KeyCommand::Copy => Handler::Data(copies::copy),
        KeyCommand::Touch => Handler::Data(exists),
        KeyCommand::RandomKey => Handler::Data(randomkey),
        KeyCommand::DbSize => Handler::Data(|core, _| Ok(Reply::len(core.keys.len()))),
        KeyCommand::FlushDb | KeyCommand::FlushAll => Handler::Data(flush),
        KeyCommand::ObjectEncoding => Handler::Data(objects::encoding),
        KeyCommand::ObjectFreq => Handler::Data(objects::freq),
        KeyCommand::ObjectRefCount => Handler::Data(objects::refcount),
        KeyCommand::MemoryUsage => Handler::Data(memory_usage),
        KeyCommand::MemoryStats => Handler::Data(memory_stats),
    }
}

fn del(core: &mut Core, args: Args<'_>) -> CommandResult {
    let mut removed = 0;
    for key in &args[1..] {
        if core.keys.remove(key).is_some() {
            core.keys.changed(key, EventClass::Generic, "del");
            removed += 1;
        }
    }
    Ok(Reply::Int(removed))
}

fn exists(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(Reply::len(args[1..].iter().filter(|key| core.keys.contains(key)).count()))
}

fn type_of(core: &mut Core, args: Args<'_>) -> CommandResult {
    let name = core.keys.get(args[1]).map_or("none", |entry| entry.value.type_name());
    Ok(Reply::Simple(name.into()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    Now,
    Epoch,
}

#[derive(Default)]
struct ExpireFlags {
    only_without: bool,
    only_with: bool,
    only_later: bool,
    only_sooner: bool,
}

impl ExpireFlags {
    fn parse(args: Args<'_>) -> CommandResult<ExpireFlags> {
        let mut flags = ExpireFlags::default();
        let mut options = Options::after(args, 3);
        while let Some(word) = options.next_word() {
            match word.as_str() {
                "nx" => flags.only_without = true,
                "xx" => flags.only_with = true,
                "gt" => flags.only_later = true,
                "lt" => flags.only_sooner = true,
                _ => {
                    let option = super::printable(options.last(), 128);
                    return Err(format!("ERR Unsupported option {option}").into());
                }
            }
        }
        if flags.only_without && (flags.only_with || flags.only_later || flags.only_sooner) {
            return Err(Failure::new("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if flags.only_later && flags.only_sooner {
            return Err(Failure::new("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(flags)
    }

    /// Whether a key with this deadline may get the new one. No deadline counts as infinite.
    fn allow(&self, current: Option<u64>, next: i64) -> bool {
        let later = current.is_some_and(|current| next > current.cast_signed());
        let sooner = current.is_none_or(|current| next < current.cast_signed());
        !((self.only_without && current.is_some())
            || (self.only_with && current.is_none())
            || (self.only_later && !later)
            || (self.only_sooner && !sooner))
    }
}

fn expire(core: &mut Core, args: Args<'_>, unit_ms: i64, base: Base, command: &str) -> CommandResult {
    let key = args[1];
    let flags = ExpireFlags::parse(args)?;
    let too_far = || Failure::expire_time(command);
    let now_ms = core.keys.now_ms.cast_signed();
    let base_ms = if base == Base::Now { now_ms } else { 0 };
    let given_ms = int(args[2])?.checked_mul(unit_ms).ok_or_else(too_far)?;
    let deadline = given_ms.checked_add(base_ms).ok_or_else(too_far)?;
    if !core.keys.get(key).is_some_and(|entry| flags.allow(entry.deadline(), deadline)) {
        return Ok(Reply::Int(0));
    }
    match u64::try_from(deadline) {
        Ok(later) if deadline > now_ms => {
            core.keys.set_deadline(key, Some(later));
            core.keys.changed(key, EventClass::Generic, "expire");
        }
        _ => {
            core.keys.remove(key);
            core.keys.changed(key, EventClass::Generic, "del");
        }
    }
    Ok(Reply::Int(1))
}

fn time_left(core: &mut Core, key: &[u8], left: fn(u64, u64) -> u64) -> CommandResult {
    let now_ms = core.keys.now_ms;
    Ok(Reply::Int(match core.keys.get(key) {
        None => -2,
        Some(entry) => entry.deadline().map_or(-1, |deadline| left(deadline, now_ms).cast_signed()),
    }))
}

fn persist(core: &mut Core, args: Args<'_>) -> CommandResult {
    let had_deadline = core.keys.deadline(args[1]).is_some();
    if had_deadline {
        core.keys.set_deadline(args[1], None);
        core.keys.changed(args[1], EventClass::Generic, "persist");
    }
    Ok(Reply::flag(had_deadline))
}

fn keys(core: &mut Core, args: Args<'_>) -> CommandResult {
    let len = core.keys.len();
    let page = core.keys.scan(0, len, |key, _| glob::selects(args[1], key).then(|| Reply::bulk(key)));
    Ok(Reply::Array(page.found))
}

/// The options of `SCAN`, `HSCAN`, `SSCAN` and `ZSCAN`.
pub(super) struct ScanOptions<'a> {
    pub(super) cursor: usize,
    pub(super) count: usize,
    pattern: Option<&'a [u8]>,
    type_name: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// Reads the cursor at `at` and the options after it.
    pub(super) fn parse(args: Args<'a>, at: usize) -> CommandResult<ScanOptions<'a>> {
        let cursor = std::str::from_utf8(args[at]).ok().and_then(|text| text.parse::<u64>().ok());
        let cursor = cursor.ok_or(Failure::new("ERR invalid cursor"))?;
        let cursor = usize::try_from(cursor).unwrap_or(usize::MAX);
        let mut parsed = ScanOptions { cursor, count: 10, pattern: None, type_name: None };
        let mut options = Options::after(args, at + 1);
        while let Some(word) = options.next_word() {
            match word.as_str() {
                "count" => {
                    let count = int(options.value()?)?;
                    parsed.count =
                        usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Failure::SYNTAX)?;
                }
                "match" => parsed.pattern = Some(options.value()?),
                "type" if at == 1 => parsed.type_name = Some(options.value()?),
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(parsed)
    }

    pub(super) fn wants(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::selects(pattern, name))
    }

    /// The reply for a missing key.
    pub(super) fn nothing(&self) -> Reply {
        ScanOptions::reply(0, vec![])
    }

    pub(super) fn reply(cursor: usize, found: Vec<Reply>) -> Reply {
        Reply::Array(vec![Reply::bulk(cursor.to_string()), Reply::Array(found)])
    }
}

fn scan(core: &mut Core, args: Args<'_>) -> CommandResult {
    let options = ScanOptions::parse(args, 1)?;
    let page = core.keys.scan(options.cursor, options.count, |key, entry| {
        let typed = options
            .type_name
            .is_none_or(|name| name.eq_ignore_ascii_case(entry.value.type_name().as_bytes()));
        (typed && options.wants(key)).then(|| Reply::bulk(key))
    });
    Ok(ScanOptions::reply(page.cursor, page.found))
}

fn randomkey(core: &mut Core, _: Args<'_>) -> CommandResult {
    Ok(core.keys.random().map_or(Reply::Null, Reply::Bulk))
}

fn flush(core: &mut Core, args: Args<'_>) -> CommandResult {
    if args.len() > 2 || args.get(1).is_some_and(|word| !is_flush_mode(word)) {
        return Err(Failure::SYNTAX);
    }
    core.keys.clear();
    Ok(Reply::OK)
}

fn memory_usage(core: &mut Core, args: Args<'_>) -> CommandResult {
    let samples_are_named = match &args[3..] {
        [] => true,
        [word, count] if word.eq_ignore_ascii_case(b"samples") => {
            read_int(count).ok_or(Failure::NOT_AN_INTEGER)? >= 0
        }
        _ => false,
    };
    if !samples_are_named {
        return Err(Failure::SYNTAX);
    }
    Ok(core.keys.memory_of(args[2]).map_or(Reply::Null, Reply::len))
}

fn memory_stats(core: &mut Core, _: Args<'_>) -> CommandResult {
    let count = core.keys.len();
    let total = core.keys.memory();
    let per_key = total.checked_div(count).unwrap_or(0);
    let facts = [
        ("peak.allocated", core.peak_memory()),
        ("total.allocated", total),
        ("keys.count", count),
        ("keys.bytes-per-key", per_key),
        ("dataset.bytes", total),
    ];
    Ok(Reply::Map(facts.map(|(name, value)| (Reply::bulk(name), Reply::len(value))).into()))
}
