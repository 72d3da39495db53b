//! The library `cmsgpack`: MessagePack.

mod pack;
mod unpack;

use mlua::{Lua, Result, Table};

use super::library::{Limits, add};

pub(super) fn library(lua: &Lua, limits: &Limits) -> Result<Table> {
    let cmsgpack = lua.create_table()?;
    let [of_pack, of_unpack, of_one, of_limit] = std::array::from_fn(|_| limits.clone());
    add(lua, &cmsgpack, "pack", move |call| pack::pack(call, &of_pack))?;
    add(lua, &cmsgpack, "unpack", move |call| unpack::unpack(call, &of_unpack, 0, 0))?;
    add(lua, &cmsgpack, "unpack_one", move |call| {
        let offset = call.integer_or(2, 0)?;
        unpack::unpack(call, &of_one, 1, offset)
    })?;
    add(lua, &cmsgpack, "unpack_limit", move |call| {
        let limit = call.integer(2)?;
        unpack::unpack(call, &of_limit, limit, call.integer_or(3, 0)?)
    })?;
    for (name, text) in [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo"),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ] {
        cmsgpack.raw_set(name, text)?;
    }
    Ok(cmsgpack)
}
