//! Converts values between Lua and Redis by Redis's rules.

use mlua::{IntoLua, Lua, LuaString, Result, Table, Value};
use smallvec::SmallVec;

use crate::number::write_float;
use crate::reply::Reply;
use crate::session::Protocol;

/// Deeper tables are refused, because a table can contain itself.
const MAX_DEPTH: usize = 64;

/// A reply as a Lua value, with the types of RESP2, or of RESP3 after `redis.setresp(3)`.
pub(super) fn to_lua(lua: &Lua, reply: Reply, protocol: Protocol) -> Result<Value> {
    let resp3 = protocol == Protocol::Resp3;
    let array = |items| sequence(lua, items, protocol);
    Ok(match reply {
        Reply::Null | Reply::NullArray | Reply::Nothing if resp3 => Value::Nil,
        Reply::Null | Reply::NullArray | Reply::Nothing => Value::Boolean(false),
        Reply::Int(value) => Value::Number(value as f64),
        Reply::Bool(value) if resp3 => Value::Boolean(value),
        Reply::Bool(value) => Value::Number(f64::from(u8::from(value))),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Simple(text) => field(lua, "ok", lua.create_string(text.as_bytes())?)?,
        Reply::Error(text) => field(lua, "err", lua.create_string(text.as_bytes())?)?,
        Reply::Double(value) if resp3 => field(lua, "double", value)?,
        Reply::Double(value) => Value::String(lua.create_string(write_float(value))?),
        Reply::BigNumber(digits) if resp3 => field(lua, "big_number", digits)?,
        Reply::BigNumber(digits) => Value::String(lua.create_string(digits)?),
        Reply::Text(text) if resp3 => verbatim(lua, "txt", text.as_bytes())?,
        Reply::Text(text) => Value::String(lua.create_string(text)?),
        Reply::Verbatim { format, text } if resp3 => verbatim(lua, &format, &text)?,
        Reply::Verbatim { text, .. } => Value::String(lua.create_string(text)?),
        Reply::Set(items) if resp3 => {
            let members = lua.create_table()?;
            for item in items {
                members.raw_set(to_lua(lua, item, protocol)?, true)?;
            }
            field(lua, "set", members)?
        }
        Reply::Map(pairs) | Reply::Keyed(pairs) if resp3 => {
            let entries = lua.create_table()?;
            for (key, value) in pairs {
                entries.raw_set(to_lua(lua, key, protocol)?, to_lua(lua, value, protocol)?)?;
            }
            field(lua, "map", entries)?
        }
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) | Reply::Several(items) => array(items)?,
        Reply::Pairs(pairs) if resp3 => {
            array(pairs.into_iter().map(|(first, second)| Reply::Array(vec![first, second])).collect())?
        }
        Reply::Map(pairs) | Reply::Pairs(pairs) => {
            array(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect())?
        }
        Reply::Keyed(pairs) => {
            array(pairs.into_iter().map(|(key, value)| Reply::Array(vec![key, value])).collect())?
        }
        Reply::Scored(pairs) => {
            let pairs = pairs.into_iter().map(|(member, score)| [Reply::Bulk(member), Reply::Double(score)]);
            match protocol {
                Protocol::Resp2 => array(pairs.flatten().collect())?,
                Protocol::Resp3 => array(pairs.map(|pair| Reply::Array(pair.into())).collect())?,
            }
        }
    })
}

fn field(lua: &Lua, name: &str, value: impl IntoLua) -> Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

fn verbatim(lua: &Lua, format: &str, text: &[u8]) -> Result<Value> {
    let parts = lua.create_table_with_capacity(0, 2)?;
    parts.raw_set("format", format)?;
    parts.raw_set("string", lua.create_string(text)?)?;
    field(lua, "verbatim_string", parts)
}

fn sequence(lua: &Lua, items: Vec<Reply>, protocol: Protocol) -> Result<Value> {
    let items = items.into_iter().map(|reply| LuaReply { reply, protocol });
    Ok(Value::Table(lua.create_sequence_from(items)?))
}

/// A reply as an element of a table.
struct LuaReply {
    reply: Reply,
    protocol: Protocol,
}

impl IntoLua for LuaReply {
    fn into_lua(self, lua: &Lua) -> Result<Value> {
        to_lua(lua, self.reply, self.protocol)
    }
}

/// KEYS or ARGV. mlua copies a `str` to Lua's stack directly, but other bytes by way of a handle.
pub(super) fn words_to_lua(lua: &Lua, words: &[&[u8]]) -> Result<Table> {
    let text = words.iter().map(|word| std::str::from_utf8(word));
    match text.collect::<std::result::Result<SmallVec<[&str; 16]>, _>>() {
        Ok(text) => lua.create_sequence_from(text),
        Err(_) => lua.create_sequence_from(words.iter().map(LuaString::wrap)),
    }
}

/// A script's result as a reply of at most `max_bytes`. The script's memory limit does not bound it: a table may
/// contain itself, or the same string many times.
pub(super) fn to_reply(value: &Value, protocol: Protocol, max_bytes: usize) -> Result<Reply> {
    Conversion { protocol, bytes_left: max_bytes }.reply(value, 0)
}

struct Conversion {
    protocol: Protocol,
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
            Value::Boolean(value) if self.protocol == Protocol::Resp3 => Reply::Bool(*value),
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
        if let Some(reply) = self.resp3_table(table, depth)? {
            return Ok(reply);
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

    /// A table that stands for a type of RESP3.
    fn resp3_table(&mut self, table: &Table, depth: usize) -> Result<Option<Reply>> {
        if let Value::Table(entries) = table.raw_get::<Value>("map")? {
            let mut pairs = Vec::new();
            for entry in entries.pairs::<Value, Value>() {
                let (key, value) = entry?;
                pairs.push((self.reply(&key, depth + 1)?, self.reply(&value, depth + 1)?));
            }
            return Ok(Some(Reply::Map(pairs)));
        }
        if let Value::Table(members) = table.raw_get::<Value>("set")? {
            let members = members.pairs::<Value, Value>().map(|entry| self.reply(&entry?.0, depth + 1));
            return Ok(Some(Reply::Set(members.collect::<Result<_>>()?)));
        }
        if let Value::String(digits) = table.raw_get::<Value>("big_number")? {
            return Ok(Some(Reply::BigNumber(one_line(&digits.as_bytes()))));
        }
        if let Value::Table(parts) = table.raw_get::<Value>("verbatim_string")?
            && let Value::String(format) = parts.raw_get::<Value>("format")?
            && let Value::String(text) = parts.raw_get::<Value>("string")?
        {
            self.spend(text.as_bytes().len())?;
            let format = one_line(&format.as_bytes());
            return Ok(Some(Reply::Verbatim { format, text: text.as_bytes().to_vec() }));
        }
        Ok(None)
    }

    fn spend(&mut self, bytes: usize) -> Result<()> {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.ok_or_else(|| mlua::Error::runtime("the reply is too large"))?;
        Ok(())
    }
}

/// Truncates the fraction. A number out of range becomes the smallest integer, as on the processors that Redis runs on.
pub(super) fn truncate(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// Truncates to an unsigned integer, as those processors do: a negative number wraps around, a number that is too large
/// becomes 0.
pub(super) fn truncate_unsigned(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if number >= 2.0 * HALF {
        0
    } else if number >= HALF {
        number as u64
    } else {
        truncate(number).cast_unsigned()
    }
}

pub(super) fn one_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace(['\r', '\n'], " ")
}
