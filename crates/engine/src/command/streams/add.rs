//! `XADD` and `XTRIM`.

use super::id::{NewId, parse_id, parse_new_id};
use crate::command::Args;
use crate::command::options::Options;
use crate::engine::Core;
use crate::number::int;
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{EventClass, Stream, StreamId, Trim};

/// The trimming options of both commands.
#[derive(Default)]
struct TrimOptions {
    trim: Option<Trim>,
    approximate: bool,
    /// 0: none.
    limit: Option<usize>,
}

impl TrimOptions {
    /// Parses an option; `false` if the word is not one, or is the last argument.
    fn parse(&mut self, word: &str, options: &mut Options<'_>) -> CommandResult<bool> {
        match word {
            "maxlen" | "minid" if options.has_more() => self.parse_strategy(word, options)?,
            "limit" if options.has_more() => {
                let limit = usize::try_from(int(options.value()?)?);
                self.limit = Some(limit.map_err(|_| Failure::new("ERR The LIMIT argument must be >= 0."))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn parse_strategy(&mut self, word: &str, options: &mut Options<'_>) -> CommandResult<()> {
        if self.trim.is_some() {
            return Err(Failure::new(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        let mut value = options.value()?;
        if matches!(value, b"~" | b"=") && options.has_more() {
            self.approximate = value == b"~";
            value = options.value()?;
        }
        self.trim = Some(if word == "maxlen" {
            let length = usize::try_from(int(value)?);
            Trim::MaxLength(length.map_err(|_| Failure::new("ERR The MAXLEN argument must be >= 0."))?)
        } else {
            Trim::MinId(parse_id(value, 0)?)
        });
        Ok(())
    }

    /// Checks which options go together.
    fn check(&self) -> CommandResult<()> {
        if self.trim.is_none() && self.limit.is_some_and(|limit| limit > 0) {
            return Err(Failure::new(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        Ok(())
    }

    fn check_limit(&self) -> CommandResult<()> {
        if self.limit.is_some() && !self.approximate {
            return Err(Failure::new("ERR syntax error, LIMIT cannot be used without the special ~ option"));
        }
        Ok(())
    }

    /// Trims exactly, even if the client allows more entries to stay.
    fn apply(&self, stream: &mut Stream) -> usize {
        let limit = self.limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        self.trim.map_or(0, |trim| stream.trim(trim, limit))
    }
}

pub(super) fn xadd(core: &mut Core, args: Args<'_>) -> CommandResult {
    let mut trim = TrimOptions::default();
    let mut create = true;
    let mut id = None;
    let mut options = Options::after(args, 2);
    while let Some(word) = options.next_word() {
        match word.as_str() {
            "*" => break,
            word if trim.parse(word, &mut options)? => {}
            "nomkstream" => create = false,
            _ => {
                id = Some(parse_new_id(options.last())?);
                break;
            }
        }
    }
    trim.check()?;
    trim.check_limit()?;
    let words = options.rest();
    if words.is_empty() || !words.len().is_multiple_of(2) {
        return Err(Failure::arity("xadd"));
    }
    if matches!(id, Some(NewId::Full(StreamId::MIN))) {
        return Err(Failure::new("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let last_id = match core.keys.read::<Stream>(args[1])? {
        Some(stream) => stream.last_id,
        None if !create => return Ok(Reply::Null),
        None => StreamId::MIN,
    };
    let id = next_id(last_id, id, core.keys.now_ms)?;
    let trimmed = core.keys.upsert(args[1], |stream: &mut Stream| {
        stream.add(id, words);
        trim.apply(stream)
    })?;
    core.keys.changed(args[1], EventClass::Stream, "xadd");
    if trimmed > 0 {
        core.keys.notify(args[1], EventClass::Stream, "xtrim");
    }
    Ok(super::id_reply(id))
}

/// The id of a new entry, which must be greater than the last one.
fn next_id(last: StreamId, wanted: Option<NewId>, now_ms: u64) -> CommandResult<StreamId> {
    const EXHAUSTED: Failure =
        Failure::new("ERR The stream has exhausted the last possible ID, unable to add more items");
    const TOO_SMALL: Failure =
        Failure::new("ERR The ID specified in XADD is equal or smaller than the target stream top item");
    let after_last = last.next().ok_or(EXHAUSTED)?;
    let id = match wanted {
        None if now_ms > last.ms => StreamId { ms: now_ms, seq: 0 },
        None => after_last,
        Some(NewId::Full(id)) => id,
        Some(NewId::Milliseconds(ms)) if ms == last.ms => {
            // Redis's text for this case, too.
            let seq =
                last.seq.checked_add(1).ok_or(Failure::new("ERR Elements are too large to be stored"))?;
            StreamId { ms, seq }
        }
        Some(NewId::Milliseconds(ms)) => StreamId { ms, seq: 0 },
    };
    if id > last { Ok(id) } else { Err(TOO_SMALL) }
}

pub(super) fn xtrim(core: &mut Core, args: Args<'_>) -> CommandResult {
    let mut trim = TrimOptions::default();
    let mut options = Options::after(args, 2);
    while let Some(word) = options.next_word() {
        if !trim.parse(&word, &mut options)? {
            return Err(Failure::SYNTAX);
        }
    }
    trim.check()?;
    if trim.trim.is_none() {
        return Err(Failure::new("ERR syntax error, XTRIM must be called with a trimming strategy"));
    }
    trim.check_limit()?;
    let removed = core.keys.update(args[1], |stream: &mut Stream| trim.apply(stream))?.unwrap_or(0);
    if removed > 0 {
        core.keys.shortened(args[1], EventClass::Stream, "xtrim");
    }
    Ok(Reply::len(removed))
}
