//! The `redis` table of scripts, apart from `redis.call` and `redis.pcall`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlua::{Lua, MultiValue, Result, Table, Value};

use super::convert::one_line;
use super::{CallFailed, sha1};
use crate::command::{REDIS_VERSION, REDIS_VERSION_NUM};
use crate::number::write_float;
use crate::session::Protocol;

/// The protocol whose types a script gets from `redis.call`: RESP2, until it calls `redis.setresp(3)`.
#[derive(Clone, Debug, Default)]
pub(super) struct ScriptProtocol(Arc<AtomicBool>);

impl ScriptProtocol {
    pub(super) fn get(&self) -> Protocol {
        if self.0.load(Ordering::Relaxed) { Protocol::Resp3 } else { Protocol::Resp2 }
    }

    pub(super) fn set(&self, protocol: Protocol) {
        self.0.store(protocol == Protocol::Resp3, Ordering::Relaxed);
    }
}

const REPL_AOF: i64 = 1;
const REPL_REPLICA: i64 = 2;
const REPL_ALL: i64 = REPL_AOF | REPL_REPLICA;

pub(super) fn table(lua: &Lua, protocol: &ScriptProtocol) -> Result<Table> {
    let table = lua.create_table()?;
    for (name, value) in [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
        ("REPL_NONE", 0),
        ("REPL_AOF", REPL_AOF),
        ("REPL_SLAVE", REPL_REPLICA),
        ("REPL_REPLICA", REPL_REPLICA),
        ("REPL_ALL", REPL_ALL),
        ("REDIS_VERSION_NUM", REDIS_VERSION_NUM),
    ] {
        table.raw_set(name, value)?;
    }
    table.raw_set("REDIS_VERSION", REDIS_VERSION)?;
    table.raw_set("log", lua.create_function(|_, args: MultiValue| log(&args))?)?;
    table.raw_set("sha1hex", lua.create_function(|_, args: MultiValue| sha1hex(&args))?)?;
    table.raw_set("set_repl", lua.create_function(|_, args: MultiValue| set_repl(&args))?)?;
    // Scripts are replicated by their commands in every version since Redis 7; older scripts still ask for it.
    table.raw_set("replicate_commands", lua.create_function(|_, ()| Ok(true))?)?;
    // As in Redis outside of its debugger.
    table.raw_set("breakpoint", lua.create_function(|_, ()| Ok(false))?)?;
    table.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    table.raw_set("acl_check_cmd", lua.create_function(|_, args: MultiValue| acl_check_cmd(&args))?)?;
    let protocol = protocol.clone();
    table.raw_set("setresp", lua.create_function(move |_, args: MultiValue| setresp(&args, &protocol))?)?;
    Ok(table)
}

fn failed<T>(text: &'static str) -> Result<T> {
    Err(mlua::Error::external(CallFailed(text.into())))
}

/// A number, or a string that Lua would convert to one.
fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Integer(value) => Some(*value as f64),
        Value::Number(value) => Some(*value),
        Value::String(text) => std::str::from_utf8(&text.as_bytes()).ok()?.trim().parse().ok(),
        _ => None,
    }
}

fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        value => number(Some(value)).map(|number| write_float(number).into_bytes()),
    }
}

fn log(args: &MultiValue) -> Result<()> {
    if args.len() < 2 {
        return failed("ERR redis.log() requires two arguments or more.");
    }
    let Some(level) = number(args.front()) else {
        return failed("ERR First argument must be a number (log level).");
    };
    let words: Vec<String> = args.iter().skip(1).filter_map(text).map(|word| one_line(&word)).collect();
    let text = words.join(" ");
    match level as i64 {
        0 | 1 => tracing::debug!(target: "hob_engine::script", text, "script log"),
        2 => tracing::info!(target: "hob_engine::script", text, "script log"),
        3 => tracing::warn!(target: "hob_engine::script", text, "script log"),
        _ => return failed("ERR Invalid debug level."),
    }
    Ok(())
}

fn sha1hex(args: &MultiValue) -> Result<String> {
    if args.len() != 1 {
        return failed("ERR wrong number of arguments");
    }
    let text = args.front().and_then(text).unwrap_or_default();
    Ok(String::from_utf8_lossy(&sha1(&text)).into_owned())
}

/// There is nothing to replicate to, so only the arguments are checked.
fn set_repl(args: &MultiValue) -> Result<()> {
    if args.len() != 1 {
        return failed("ERR redis.set_repl() requires two arguments.");
    }
    match number(args.front()).unwrap_or(0.0) as i64 {
        0..=REPL_ALL => Ok(()),
        _ => failed("ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."),
    }
}

fn setresp(args: &MultiValue, protocol: &ScriptProtocol) -> Result<()> {
    if args.len() != 1 {
        return failed("ERR redis.setresp() requires one argument.");
    }
    match number(args.front()).unwrap_or(0.0) as i64 {
        2 => protocol.set(Protocol::Resp2),
        3 => protocol.set(Protocol::Resp3),
        _ => return failed("ERR RESP version must be 2 or 3."),
    }
    Ok(())
}

/// The only user may run every command, so only the command is checked.
fn acl_check_cmd(args: &MultiValue) -> Result<bool> {
    if args.is_empty() {
        return failed("ERR Please specify at least one argument for this redis.acl_check_cmd() call");
    }
    let words: Option<Vec<Vec<u8>>> = args.iter().map(text).collect();
    let Some(words) = words else {
        return failed("ERR redis.acl_check_cmd() command arguments must be strings or integers");
    };
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    match hob_commands::resolve(&words) {
        Ok(_) | Err(hob_commands::Unresolved::Arity { .. }) => Ok(true),
        Err(_) => failed("ERR Invalid command passed to redis.acl_check_cmd()"),
    }
}
