//! The library `cjson`: JSON.

mod decode;
mod encode;
mod settings;

use std::sync::Arc;

use mlua::{Function, Lua, Result, Table, Value};
use parking_lot::Mutex;

use super::library::{Limits, add};
use settings::Settings;

/// A table of functions with their own settings. As in Redis, a setting that a script changes stays for later scripts.
pub(super) fn library(lua: &Lua, limits: &Limits) -> Result<Table> {
    let cjson = lua.create_table()?;
    let settings = Arc::new(Mutex::new(Settings::default()));
    let (of_encode, limits_of_encode) = (Arc::clone(&settings), limits.clone());
    let next: Function = lua.globals().raw_get("next")?;
    add(lua, &cjson, "encode", move |call| {
        encode::encode(call, &next, &limits_of_encode, *of_encode.lock())
    })?;
    let (of_decode, limits_of_decode) = (Arc::clone(&settings), limits.clone());
    add(lua, &cjson, "decode", move |call| decode::decode(call, &limits_of_decode, *of_decode.lock()))?;
    settings::add_functions(lua, &cjson, &settings)?;
    let limits = limits.clone();
    add(lua, &cjson, "new", move |call| library(call.lua, &limits))?;
    cjson.raw_set("null", Value::NULL)?;
    cjson.raw_set("_NAME", "cjson")?;
    cjson.raw_set("_VERSION", "2.1.0")?;
    Ok(cjson)
}
