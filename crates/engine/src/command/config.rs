//! `CONFIG`: the parameters that apply to the engine.

use std::time::Duration;

use super::{Args, printable};
use crate::config::{Config, SubscriberLimits};
use crate::engine::Core;
use crate::glob;
use crate::number::read_int;
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::EventFlags;

/// The configuration parameters and their values.
fn parameters(core: &Core) -> Vec<(&'static str, String)> {
    let settings = &core.settings;
    vec![
        ("maxmemory", settings.max_memory_bytes.to_string()),
        ("maxmemory-policy", "noeviction".into()),
        ("maxclients", settings.max_clients.to_string()),
        ("client-output-buffer-limit", output_buffer_limits(settings.subscriber_limits)),
        ("proto-max-bulk-len", settings.max_value_bytes.to_string()),
        ("busy-reply-threshold", settings.busy_after.as_millis().to_string()),
        ("lua-time-limit", settings.busy_after.as_millis().to_string()),
        ("save", String::new()),
        ("appendonly", "no".into()),
        ("databases", "1".into()),
        ("notify-keyspace-events", core.keys.event_flags().to_string()),
    ]
}

/// The limits in Redis's format: a class of clients, its hard and soft limit, and the seconds of the soft limit.
fn output_buffer_limits(limits: SubscriberLimits) -> String {
    let SubscriberLimits { hard_bytes, soft_bytes, soft_duration, .. } = limits;
    format!("normal 0 0 0 slave 0 0 0 pubsub {hard_bytes} {soft_bytes} {}", soft_duration.as_secs())
}

pub(super) fn get(core: &mut Core, args: Args<'_>) -> CommandResult {
    let wanted = |name: &str| {
        args[2..].iter().any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
    };
    let found = parameters(core).into_iter().filter(|(name, _)| wanted(name));
    Ok(Reply::Map(found.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value))).collect()))
}

/// Sets several parameters, or none of them if one is refused.
pub(super) fn set(core: &mut Core, args: Args<'_>) -> CommandResult {
    if !args.len().is_multiple_of(2) {
        return Err(Failure::arity("config|set"));
    }
    let known = parameters(core);
    let mut pairs = Vec::new();
    for pair in args[2..].chunks_exact(2) {
        let name = String::from_utf8_lossy(pair[0]).to_ascii_lowercase();
        let parameter = known.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            let name = printable(pair[0], 128);
            format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'")
        })?;
        if pairs.iter().any(|(other, _, _)| *other == parameter.0) {
            return Err(refused(parameter.0, "duplicate parameter"));
        }
        pairs.push((parameter.0, parameter.1.as_bytes(), pair[1]));
    }
    let mut next = Next { settings: core.settings.clone(), events: core.keys.event_flags() };
    for (name, current, value) in pairs {
        next.set(name, current, value).map_err(|reason| refused(name, &reason))?;
    }
    core.settings = next.settings;
    core.keys.set_event_flags(next.events);
    core.busy_after.set(core.settings.busy_after);
    Ok(Reply::OK)
}

fn refused(name: &str, reason: &str) -> Failure {
    format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}").into()
}

/// The configuration after `CONFIG SET`.
struct Next {
    settings: Config,
    events: EventFlags,
}

impl Next {
    fn set(&mut self, name: &str, current: &[u8], value: &[u8]) -> Result<(), String> {
        match name {
            "maxmemory" => {
                self.settings.max_memory_bytes =
                    memory_size(value).ok_or("argument must be a memory value")?;
            }
            "maxclients" => {
                let count = integer(value, 1, u32::MAX.into())?;
                self.settings.max_clients = usize::try_from(count).unwrap_or(usize::MAX);
            }
            "busy-reply-threshold" | "lua-time-limit" => {
                let limit_ms = integer(value, 0, i64::MAX)?;
                self.settings.busy_after = Duration::from_millis(limit_ms.unsigned_abs());
            }
            "notify-keyspace-events" => {
                let unknown = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
                self.events = EventFlags::parse(value).ok_or(unknown)?;
            }
            // The others cannot be changed, but a client may ask for the value that they have.
            _ if value.eq_ignore_ascii_case(current) => {}
            _ => return Err("can't set immutable config".into()),
        }
        Ok(())
    }
}

fn integer(text: &[u8], min: i64, max: i64) -> Result<i64, String> {
    let value = read_int(text).ok_or("argument couldn't be parsed into an integer")?;
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(format!("argument must be between {min} and {max} inclusive"))
}

pub(super) fn resetstat(core: &mut Core, _: Args<'_>) -> CommandResult {
    core.reset_stats();
    Ok(Reply::OK)
}

/// A memory size as in the configuration: `100`, `64kb`, `2gb`.
fn memory_size(text: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}
