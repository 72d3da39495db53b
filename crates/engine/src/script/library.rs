//! The libraries that Redis adds to Lua, and what their functions share: arguments that are checked as in C, and errors
//! with the position of the call.

use std::sync::Arc;

use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Result, Table, Value};

use super::convert::truncate;
use super::watchdog::Watchdog;
use super::{bit, cjson, cmsgpack, stopped, structs};

/// Deeper tables are refused: every open table needs places in a table of mlua, which has 8000 for all scripts.
pub(super) const MAX_DEPTH: usize = 1000;

/// The number of values that a function may return, for the same reason.
const MAX_RESULTS: usize = 2000;

/// The libraries by name.
pub(super) fn libraries(lua: &Lua, limits: &Limits) -> Result<Table> {
    let libraries = lua.create_table()?;
    libraries.raw_set("bit", bit::library(lua)?)?;
    libraries.raw_set("cjson", cjson::library(lua, limits)?)?;
    libraries.raw_set("cmsgpack", cmsgpack::library(lua, limits)?)?;
    libraries.raw_set("struct", structs::library(lua, limits)?)?;
    Ok(libraries)
}

/// Adds a function to a library.
pub(super) fn add<R: IntoLuaMulti>(
    lua: &Lua,
    library: &Table,
    name: &str,
    run: impl Fn(&Call<'_>) -> Result<R> + Send + 'static,
) -> Result<()> {
    let function = lua.create_function(move |lua, arguments| run(&Call { lua, arguments }))?;
    library.raw_set(name, function)
}

/// One call of a library function. Arguments are counted from 1.
pub(super) struct Call<'a> {
    pub(super) lua: &'a Lua,
    arguments: MultiValue,
}

impl Call<'_> {
    pub(super) fn count(&self) -> usize {
        self.arguments.len()
    }

    pub(super) fn value(&self, at: usize) -> Option<&Value> {
        self.arguments.get(at - 1)
    }

    /// An argument that is neither missing nor nil.
    pub(super) fn given(&self, at: usize) -> Option<&Value> {
        self.value(at).filter(|value| !value.is_nil())
    }

    /// A string, or a number as a string.
    pub(super) fn string(&self, at: usize) -> Result<LuaString> {
        if let Some(Value::String(text)) = self.value(at) {
            return Ok(text.clone());
        }
        let text = match self.value(at) {
            Some(value) => self.lua.coerce_string(value.clone())?,
            None => None,
        };
        text.ok_or_else(|| self.wrong_type(at, "string"))
    }

    /// A number, or a string that represents one.
    pub(super) fn number(&self, at: usize) -> Result<f64> {
        let number = match self.value(at) {
            Some(Value::Number(number)) => Some(*number),
            Some(Value::Integer(number)) => Some(*number as f64),
            Some(value) => self.lua.coerce_number(value.clone())?,
            None => None,
        };
        number.ok_or_else(|| self.wrong_type(at, "number"))
    }

    pub(super) fn integer(&self, at: usize) -> Result<i64> {
        self.number(at).map(truncate)
    }

    pub(super) fn integer_or(&self, at: usize, default: i64) -> Result<i64> {
        if self.given(at).is_some() { self.integer(at) } else { Ok(default) }
    }

    /// An error with the position of the call.
    pub(super) fn error(&self, text: impl AsRef<[u8]>) -> mlua::Error {
        let position = self.lua.inspect_stack(1, |caller| {
            let line = caller.current_line()?;
            Some(format!("{}:{line}: ", caller.source().short_src?))
        });
        let position = position.flatten().unwrap_or_default();
        LibraryFailed::error([position.as_bytes(), text.as_ref()].concat())
    }

    pub(super) fn bad_argument(&self, at: usize, reason: impl AsRef<[u8]>) -> mlua::Error {
        let name = self.lua.inspect_stack(0, |function| {
            let names = function.names();
            let is_method = names.name_what == Some("method");
            names.name.map(|name| (name.into_owned(), is_method))
        });
        let (name, is_method) = name.flatten().unwrap_or(("?".into(), false));
        let beginning = match at - usize::from(is_method && at > 0) {
            0 if is_method => format!("calling '{name}' on bad self ("),
            at => format!("bad argument #{at} to '{name}' ("),
        };
        self.error([beginning.as_bytes(), reason.as_ref(), b")"].concat())
    }

    pub(super) fn wrong_type(&self, at: usize, expected: &str) -> mlua::Error {
        let found = self.value(at).map_or("no value", type_name);
        self.bad_argument(at, format!("{expected} expected, got {found}"))
    }

    /// Checks whether another value may be returned, with the error of Redis, which allows more.
    pub(super) fn check_results(&self, results: usize, hint: &str) -> Result<()> {
        if results >= MAX_RESULTS {
            return Err(self.error(format!("stack overflow ({hint})")));
        }
        Ok(())
    }
}

/// The name of a type in Lua.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}

/// What a function of a library may use: as much memory and time as its script.
#[derive(Clone)]
pub(super) struct Limits {
    pub(super) memory: usize,
    pub(super) watchdog: Arc<Watchdog>,
}

impl Limits {
    /// Creates values without the memory limit, because under the limit each one needs a protected call. `make` has to
    /// call [`check`](Limits::check) now and then.
    pub(super) fn lifted<T>(&self, lua: &Lua, make: impl FnOnce() -> Result<T>) -> Result<T> {
        lua.set_memory_limit(0)?;
        let made = make();
        let checked = self.check(lua, 0);
        lua.set_memory_limit(self.memory)?;
        checked.and(made)
    }

    /// Fails if Lua's memory and these `bytes` exceed the limit, or if the script has to stop.
    pub(super) fn check(&self, lua: &Lua, bytes: usize) -> Result<()> {
        if lua.used_memory().saturating_add(bytes) > self.memory {
            return Err(LibraryFailed::error("not enough memory"));
        }
        if self.watchdog.count_call() { Err(stopped()) } else { Ok(()) }
    }
}

/// An error that a script sees as a string.
#[derive(Debug, thiserror::Error)]
#[error("{}", String::from_utf8_lossy(.0))]
pub(super) struct LibraryFailed(pub(super) Vec<u8>);

impl LibraryFailed {
    pub(super) fn error(text: impl Into<Vec<u8>>) -> mlua::Error {
        mlua::Error::external(LibraryFailed(text.into()))
    }
}
