//! Lua 5.1: scripts cached by their hash, in one Lua state that is reused.

mod api;
mod bit;
mod cjson;
mod cmsgpack;
mod convert;
mod library;
mod shebang;
mod structs;
mod watchdog;

use std::borrow::Cow;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use indexmap::IndexMap;
use mlua::chunk::ChunkMode;
use mlua::state::{GcIncParams, GcMode};
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value, VmState};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::command::Args;
use crate::engine::Core;
use crate::number::write_float;
use crate::reply::{CommandResult, Failure, Reply};
use crate::session::{Protocol, SessionOrigin};
use api::ScriptProtocol;
use convert::{one_line, to_lua, to_reply, words_to_lua};
use library::{LibraryFailed, Limits, libraries};

pub(crate) use shebang::Declared;
use watchdog::FIRST_PERIOD;
pub(crate) use watchdog::Watchdog;

/// A script's SHA-1 as 40 hexadecimal digits.
pub(crate) type Sha = [u8; 40];

/// Whether the caller lets a script write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptAccess {
    ReadWrite,
    ReadOnly,
}

/// Takes the first digits of a hash, which is random enough itself.
#[derive(Default)]
struct ShaHasher(u64);

impl Hasher for ShaHasher {
    fn write(&mut self, bytes: &[u8]) {
        let digits = bytes.first_chunk().map_or(0, |digits| u64::from_le_bytes(*digits));
        self.0 = digits.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// The length, which is the same for all.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The name of scripts in errors, as in Redis.
const SOURCE: &str = "@user_script";

pub(crate) struct Scripts {
    lua: Lua,
    run: Function,
    environment: Table,
    protocol: ScriptProtocol,
    loaded: IndexMap<Sha, Script, BuildHasherDefault<ShaHasher>>,
    max_scripts: usize,
    memory: usize,
    core: Arc<Mutex<Core>>,
    watchdog: Arc<Watchdog>,
}

/// A compiled script.
#[derive(Clone)]
struct Script {
    function: Function,
    declared: Declared,
}

impl Scripts {
    pub(crate) fn new(
        core: Arc<Mutex<Core>>,
        watchdog: Arc<Watchdog>,
        memory: usize,
        max_scripts: usize,
    ) -> Scripts {
        let protocol = ScriptProtocol::default();
        let build = || -> Result<(Lua, Function, Table)> {
            let lua = Lua::new_with(StdLib::MATH | StdLib::STRING | StdLib::TABLE, LuaOptions::default())?;
            let (run, environment) = load_prelude(&lua, &core, &watchdog, &protocol, memory)?;
            // A script's heap is small and short-lived: a collection each time it doubles would cost more than the
            // scripts.
            let rarely = GcIncParams::default().pause(1000);
            lua.gc_set_mode(GcMode::Incremental(rarely));
            set_watchdog_hook(&lua, &watchdog, FIRST_PERIOD)?;
            Ok((lua, run, environment))
        };
        let (lua, run, environment) = build().expect("the prelude is part of this crate and loads");
        Scripts {
            lua,
            run,
            environment,
            protocol,
            loaded: IndexMap::default(),
            max_scripts,
            memory,
            core,
            watchdog,
        }
    }

    /// Compiles and caches a script; returns its hash.
    pub(crate) fn load(&mut self, body: &[u8]) -> CommandResult<Sha> {
        let sha = sha1(body);
        if self.loaded.contains_key(&sha) {
            return Ok(sha);
        }
        let (declared, body) = shebang::parse(body)?;
        // Cached scripts use at most three quarters of the memory; the rest is left for running.
        self.free_memory().map_err(|error| internal(&error))?;
        self.lua
            .set_memory_limit(self.lua.used_memory() + self.memory / 4)
            .map_err(|error| internal(&error))?;
        let chunk = self.lua.load(body).set_name(SOURCE).set_mode(ChunkMode::Text);
        let compiled = chunk.set_environment(self.environment.clone()).into_function();
        self.lua.set_memory_limit(0).map_err(|error| internal(&error))?;
        let function = compiled.map_err(|error| {
            let text = compile_error(&error);
            Failure::from(format!("ERR Error compiling script (new function): {text}"))
        })?;
        if self.loaded.len() >= self.max_scripts {
            self.loaded.shift_remove_index(0);
        }
        self.loaded.insert(sha, Script { function, declared });
        Ok(sha)
    }

    pub(crate) fn exists(&self, sha: &[u8]) -> bool {
        parse_sha(sha).is_some_and(|sha| self.loaded.contains_key(&sha))
    }

    pub(crate) fn flush(&mut self) {
        self.loaded.clear();
    }

    /// Runs a cached script. It is atomic: the caller holds the store's lock.
    pub(crate) fn run(
        &mut self,
        sha: &[u8],
        keys: Args<'_>,
        argv: Args<'_>,
        origin: SessionOrigin,
        access: ScriptAccess,
    ) -> CommandResult {
        const MISSING: Failure = Failure::new("NOSCRIPT No matching script. Please use EVAL.");
        let sha = parse_sha(sha).ok_or(MISSING)?;
        let script = self.loaded.get(&sha).ok_or(MISSING)?.clone();
        let declared = if access == ScriptAccess::ReadOnly { Declared::Reads } else { script.declared };
        self.core.lock().enter_script(keys, declared)?;
        self.protocol.set(Protocol::Resp2);
        if self.watchdog.begin(origin) != FIRST_PERIOD {
            set_watchdog_hook(&self.lua, &self.watchdog, FIRST_PERIOD).map_err(|error| internal(&error))?;
        }
        let outcome = self.call(script.function, keys, argv);
        let verdict = self.watchdog.end();
        self.core.lock().leave_script();
        self.free_memory().map_err(|error| internal(&error))?;
        if let Some(failure) = verdict {
            return Err(failure);
        }
        let sha = String::from_utf8_lossy(&sha);
        match outcome.map_err(|error| internal(&error))? {
            (true, value) => {
                to_reply(&value, self.protocol.get(), self.memory).map_err(|error| internal(&error))
            }
            (false, error) => Err(script_error(&error, &sha, self.memory)),
        }
    }

    /// Collects garbage when more than half of the memory is used, and drops the oldest scripts if that is not enough.
    /// Lua's own collector runs only after the memory has grown many times, and a script near the limit must leave
    /// memory for the next one.
    fn free_memory(&mut self) -> Result<()> {
        if self.lua.used_memory() <= self.memory / 2 {
            return Ok(());
        }
        self.lua.gc_collect()?;
        while self.lua.used_memory() > self.memory / 2 && !self.loaded.is_empty() {
            self.loaded.drain(..self.loaded.len().div_ceil(2));
            self.lua.gc_collect()?;
        }
        Ok(())
    }

    fn call(&self, script: Function, keys: Args<'_>, argv: Args<'_>) -> Result<(bool, Value)> {
        let keys = words_to_lua(&self.lua, keys)?;
        let argv = words_to_lua(&self.lua, argv)?;
        self.lua.set_memory_limit(self.memory)?;
        let outcome = self.run.call((script, keys, argv));
        self.lua.set_memory_limit(0)?;
        outcome
    }
}

/// A reply as a Lua value. It is created without the memory limit, because under the limit each allocation needs a
/// protected call. A reply is bounded by the size of the store, and the check afterwards stops a script that collects
/// replies.
fn reply_to_lua(lua: &Lua, memory: usize, reply: Reply, protocol: Protocol) -> Result<Value> {
    if let Reply::Int(_) | Reply::Null = reply {
        return to_lua(lua, reply, protocol);
    }
    lua.set_memory_limit(0)?;
    let made = to_lua(lua, reply, protocol);
    if lua.used_memory() > memory {
        lua.gc_collect()?;
    }
    let fits = lua.used_memory() <= memory;
    lua.set_memory_limit(memory)?;
    if fits { made } else { Err(mlua::Error::external(CallFailed(out_of_memory(memory).0))) }
}

/// Sets the hook that counts instructions and fails once the script must stop. A script's `pcall` may catch that, but
/// the prelude's `pcall` then fails itself.
fn set_watchdog_hook(lua: &Lua, watchdog: &Arc<Watchdog>, period: u32) -> Result<()> {
    let watchdog = Arc::clone(watchdog);
    lua.set_global_hook(HookTriggers::new().every_nth_instruction(period), move |lua, _| {
        let next = watchdog.count(period);
        if watchdog.must_stop() {
            return Err(stopped());
        }
        if next != period {
            set_watchdog_hook(lua, &watchdog, next)?;
        }
        Ok(VmState::Continue)
    })
}

fn stopped() -> mlua::Error {
    mlua::Error::external(CallFailed(Failure::MUST_STOP.0))
}

fn load_prelude(
    lua: &Lua,
    core: &Arc<Mutex<Core>>,
    watchdog: &Arc<Watchdog>,
    protocol: &ScriptProtocol,
    memory: usize,
) -> Result<(Function, Table)> {
    let api = api::table(lua, protocol)?;
    let (protocol, protocol_of_pcall) = (protocol.clone(), protocol.clone());
    let libraries = libraries(lua, &Limits { memory, watchdog: Arc::clone(watchdog) })?;
    let (core, watchdog, watchdog_of_pcall) = (Arc::clone(core), Arc::clone(watchdog), Arc::clone(watchdog));
    let store = Arc::new(move |words: &MultiValue| {
        // A script that must stop does so here, even if it calls `redis.pcall`.
        if watchdog.count_call() { Err(stopped()) } else { Ok(call(&core, &watchdog, words)) }
    });
    let store_pcall = Arc::clone(&store);
    let call = lua.create_function(move |lua, words: MultiValue| match store(&words)? {
        Ok(Reply::Error(text)) | Err(Failure(text)) => Err(mlua::Error::external(CallFailed(text))),
        Ok(reply) => reply_to_lua(lua, memory, reply, protocol.get()),
    })?;
    let pcall = lua.create_function(move |lua, words: MultiValue| {
        let reply = store_pcall(&words)?.unwrap_or_else(Reply::from);
        reply_to_lua(lua, memory, reply, protocol_of_pcall.get())
    })?;
    let check_stop = lua
        .create_function(move |_, ()| if watchdog_of_pcall.count_call() { Err(stopped()) } else { Ok(()) })?;
    let text = lua.create_function(|lua, error: Value| {
        let Value::Error(error) = error else { return Ok((None, false)) };
        if let Some(LibraryFailed(text)) = error.downcast_ref() {
            return Ok((Some(lua.create_string(text)?), false));
        }
        let failed = error.downcast_ref::<CallFailed>();
        let text = failed.map_or_else(|| one_line(error.to_string().as_bytes()), CallFailed::to_string);
        Ok((Some(lua.create_string(text)?), true))
    })?;
    let line = lua.create_function(|lua, ()| {
        let line = |frame: &mlua::debug::Debug<'_>| {
            let in_script = frame.source().source.is_some_and(|source| source == SOURCE);
            in_script.then(|| frame.current_line()).flatten()
        };
        Ok((0..).map_while(|level| lua.inspect_stack(level, line)).find_map(|line| line))
    })?;
    let loader = lua.load(include_str!("script/prelude.lua")).set_name("=prelude");
    loader.call((api, call, pcall, text, check_stop, line, libraries))
}

/// One `redis.call`: formats the arguments as Redis does, then runs the command.
fn call(core: &Mutex<Core>, watchdog: &Watchdog, words: &MultiValue) -> CommandResult {
    enum Argument {
        Text(mlua::BorrowedBytes),
        Number(String),
    }
    if words.is_empty() {
        return Err(Failure::new("ERR Please specify at least one argument for this redis lib call"));
    }
    let read = |value: &Value| match value {
        Value::String(text) => Ok(Argument::Text(text.as_bytes())),
        Value::Integer(number) => Ok(Argument::Number(write_float(*number as f64))),
        Value::Number(number) => Ok(Argument::Number(write_float(*number))),
        _ => Err(Failure::new("ERR Lua redis lib command arguments must be strings or integers")),
    };
    // Most commands have few arguments, which fit on the stack.
    let words = words.iter().map(read).collect::<CommandResult<SmallVec<[Argument; 8]>>>()?;
    let args: SmallVec<[&[u8]; 8]> = words
        .iter()
        .map(|word| match word {
            Argument::Text(text) => text.as_ref(),
            Argument::Number(text) => text.as_bytes(),
        })
        .collect();
    core.lock().call_from_script(&args, || watchdog.may_write())
}

/// The error of a command that a script called.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct CallFailed(Cow<'static, str>);

fn sha1(bytes: &[u8]) -> Sha {
    let hex = sha1_smol::Sha1::from(bytes).digest().to_string();
    hex.into_bytes().try_into().expect("a SHA-1 has forty digits")
}

/// A hash in lower case, if it is valid.
fn parse_sha(sha: &[u8]) -> Option<Sha> {
    Some(Sha::try_from(sha).ok()?.map(|digit| digit.to_ascii_lowercase()))
}

fn out_of_memory(limit: usize) -> Failure {
    format!("OOM not enough memory: the script needs more than its limit of {limit} bytes").into()
}

/// The text of an error that ended a script, with its position.
fn script_error(error: &Value, sha: &str, memory: usize) -> Failure {
    let table = match error {
        Value::Table(table) => table,
        // Lua cannot report the position.
        Value::String(text) if text == "not enough memory" => return out_of_memory(memory),
        Value::String(text) => return format!("ERR {}", one_line(&text.as_bytes())).into(),
        _ => return Failure::new("ERR execution failure"),
    };
    let text = match table.raw_get::<Value>("err") {
        Ok(Value::String(text)) => one_line(&text.as_bytes()),
        _ => "ERR unknown error".into(),
    };
    match table.raw_get::<Option<i64>>("line") {
        Ok(Some(line)) => format!("{text} script: {sha}, on {SOURCE}:{line}.").into(),
        _ => text.into(),
    }
}

fn compile_error(error: &mlua::Error) -> String {
    match error {
        mlua::Error::SyntaxError { message, .. } => one_line(message.as_bytes()),
        other => one_line(other.to_string().as_bytes()),
    }
}

fn internal(error: &mlua::Error) -> Failure {
    format!("ERR Error running script: {}", one_line(error.to_string().as_bytes())).into()
}
