//! Converts values between Lua and Redis by Redis's rules.

use mlua::{IntoLua, Lua, Result, Table, Value};

use crate::number::write_float;
use crate::reply::Reply;

/// Deeper tables are refused, because a table can contain itself.
const MAX_DEPTH: usize = 64;

/// A reply as a Lua value.
pub(super) fn to_lua(lua: &Lua, reply: Reply) -> Result<Value> {
    Ok(match reply {
        Reply::Null | Reply::NullArray | Reply::Nothing => Value::Boolean(false),
        Reply::Int(value) => Value::Number(value as f64),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Text(text) => Value::String(lua.create_string(text)?),
        Reply::Double(value) => Value::String(lua.create_string(write_float(value))?),
        Reply::Simple(text) => field(lua, "ok", &text)?,
        Reply::Error(text) => field(lua, "err", &text)?,
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) | Reply::Several(items) => {
            sequence(lua, items)?
        }
        Reply::Map(pairs) => sequence(lua, pairs.into_iter().flat_map(|(key, value)| [key, value]))?,
        Reply::Scored(pairs) => sequence(
            lua,
            pairs.into_iter().flat_map(|(member, score)| [Reply::Bulk(member), Reply::Double(score)]),
        )?,
    })
}

fn field(lua: &Lua, name: &str, text: &str) -> Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, text)?;
    Ok(Value::Table(table))
}

fn sequence(lua: &Lua, items: impl IntoIterator<Item = Reply>) -> Result<Value> {
    Ok(Value::Table(lua.create_sequence_from(items.into_iter().map(LuaReply))?))
}

/// A reply as an element of a table.
struct LuaReply(Reply);

impl IntoLua for LuaReply {
    fn into_lua(self, lua: &Lua) -> Result<Value> {
        to_lua(lua, self.0)
    }
}

/// An element of KEYS or ARGV.
pub(super) struct LuaArgument<'a>(pub(super) &'a [u8]);

impl IntoLua for LuaArgument<'_> {
    fn into_lua(self, lua: &Lua) -> Result<Value> {
        Ok(Value::String(lua.create_string(self.0)?))
    }
}

/// A script's result as a reply of at most `max_bytes`. The script's memory limit does not bound it: a table may
/// contain itself, or the same string many times.
pub(super) fn to_reply(value: &Value, max_bytes: usize) -> Result<Reply> {
    Conversion { bytes_left: max_bytes }.reply(value, 0)
}

struct Conversion {
    bytes_left: usize,
}

impl Conversion {
    fn reply(&mut self, value: &Value, depth: usize) -> Result<Reply> {
        if depth > MAX_DEPTH {
            return Ok(Reply::Error("ERR reached lua stack limit".into()));
        }
        self.spend(size_of::<Reply>())?;
        Ok(match value {
            Value::String(text) => {
                self.spend(text.as_bytes().len())?;
                Reply::bulk(text.as_bytes())
            }
            Value::Integer(number) => Reply::Int(*number),
            Value::Number(number) => Reply::Int(truncate(*number)),
            Value::Boolean(true) => Reply::Int(1),
            Value::Table(table) => self.table(table, depth)?,
            _ => Reply::Null,
        })
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<Reply> {
        if let Value::String(text) = table.raw_get::<Value>("err")? {
            return Ok(Reply::Error(one_line(&text.as_bytes()).into()));
        }
        if let Value::String(text) = table.raw_get::<Value>("ok")? {
            return Ok(Reply::Simple(one_line(&text.as_bytes()).into()));
        }
        match table.raw_get::<Value>("double")? {
            Value::Number(value) => return Ok(Reply::Double(value)),
            Value::Integer(value) => return Ok(Reply::Double(value as f64)),
            _ => {}
        }
        let mut items = Vec::new();
        loop {
            // The first nil ends the array, as in Redis.
            match table.raw_get::<Value>(items.len() + 1)? {
                Value::Nil => return Ok(Reply::Array(items)),
                item => items.push(self.reply(&item, depth + 1)?),
            }
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<()> {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.ok_or_else(|| mlua::Error::runtime("the reply is too large"))?;
        Ok(())
    }
}

/// Truncates the fraction. A number out of range becomes the smallest integer, as on the processors that Redis runs on.
fn truncate(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

pub(super) fn one_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace(['\r', '\n'], " ")
}
