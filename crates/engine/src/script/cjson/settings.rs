//! The settings of `cjson`, and the functions that return and change them.

use std::sync::Arc;

use mlua::{IntoLuaMulti, Lua, Result, Table, Value};
use parking_lot::Mutex;

use crate::script::library::{Call, add};

#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) sparse_arrays: SparseArrays,
    pub(super) encode_max_depth: i32,
    pub(super) decode_max_depth: i32,
    pub(super) number_digits: i32,
    pub(super) encode_invalid_numbers: InvalidNumbers,
    pub(super) decode_invalid_numbers: bool,
    /// Without effect here.
    keep_buffer: bool,
}

/// What to do with an array in which most items are missing.
#[derive(Clone, Copy)]
pub(super) struct SparseArrays {
    /// Encode it as an object; otherwise it is an error.
    pub(super) as_objects: bool,
    /// An array may have this number of times as many items as are present; 0: any number.
    pub(super) ratio: i32,
    /// An array of at most this length is never sparse.
    pub(super) safe_length: i32,
}

/// How to encode NaN and infinities.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InvalidNumbers {
    Refuse,
    Encode,
    Null,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            sparse_arrays: SparseArrays { as_objects: false, ratio: 2, safe_length: 10 },
            encode_max_depth: 1000,
            decode_max_depth: 1000,
            number_digits: 14,
            encode_invalid_numbers: InvalidNumbers::Refuse,
            decode_invalid_numbers: true,
            keep_buffer: true,
        }
    }
}

/// Adds a function for each setting. It takes new values and returns the current ones.
pub(super) fn add_functions(lua: &Lua, cjson: &Table, settings: &Arc<Mutex<Settings>>) -> Result<()> {
    let setter = Setter { lua, cjson, settings };
    setter.add("encode_sparse_array", 3, |call, settings| {
        let sparse = &mut settings.sparse_arrays;
        let as_objects = switch(call, 1, &mut sparse.as_objects)?;
        let ratio = integer(call, 2, &mut sparse.ratio, 0, i32::MAX)?;
        Ok((as_objects, ratio, integer(call, 3, &mut sparse.safe_length, 0, i32::MAX)?))
    })?;
    setter.add("encode_max_depth", 1, |call, settings| {
        integer(call, 1, &mut settings.encode_max_depth, 1, i32::MAX)
    })?;
    setter.add("decode_max_depth", 1, |call, settings| {
        integer(call, 1, &mut settings.decode_max_depth, 1, i32::MAX)
    })?;
    setter.add("encode_number_precision", 1, |call, settings| {
        integer(call, 1, &mut settings.number_digits, 1, 14)
    })?;
    setter.add("encode_keep_buffer", 1, |call, settings| switch(call, 1, &mut settings.keep_buffer))?;
    setter.add("encode_invalid_numbers", 1, invalid_numbers)?;
    setter.add("decode_invalid_numbers", 1, |call, settings| {
        switch(call, 1, &mut settings.decode_invalid_numbers)
    })
}

struct Setter<'a> {
    lua: &'a Lua,
    cjson: &'a Table,
    settings: &'a Arc<Mutex<Settings>>,
}

impl Setter<'_> {
    fn add<R: IntoLuaMulti + 'static>(
        &self,
        name: &str,
        max_arguments: usize,
        set: fn(&Call<'_>, &mut Settings) -> Result<R>,
    ) -> Result<()> {
        let settings = Arc::clone(self.settings);
        add(self.lua, self.cjson, name, move |call| {
            if call.count() > max_arguments {
                return Err(call.bad_argument(max_arguments + 1, "found too many arguments"));
            }
            set(call, &mut settings.lock())
        })
    }
}

fn integer(call: &Call<'_>, at: usize, setting: &mut i32, min: i32, max: i32) -> Result<i32> {
    if call.given(at).is_some() {
        let value = call.integer(at)? as i32;
        if !(min..=max).contains(&value) {
            return Err(call.bad_argument(1, format!("expected integer between {min} and {max}")));
        }
        *setting = value;
    }
    Ok(*setting)
}

fn switch(call: &Call<'_>, at: usize, setting: &mut bool) -> Result<bool> {
    match call.given(at) {
        None => {}
        Some(Value::Boolean(value)) => *setting = *value,
        Some(_) => *setting = option(call, at, &["off", "on"])? == 1,
    }
    Ok(*setting)
}

fn invalid_numbers(call: &Call<'_>, settings: &mut Settings) -> Result<Value> {
    let setting = &mut settings.encode_invalid_numbers;
    const OPTIONS: [InvalidNumbers; 3] =
        [InvalidNumbers::Refuse, InvalidNumbers::Encode, InvalidNumbers::Null];
    match call.given(1) {
        None => {}
        Some(Value::Boolean(value)) => *setting = OPTIONS[usize::from(*value)],
        Some(_) => *setting = OPTIONS[option(call, 1, &["off", "on", "null"])?],
    }
    match *setting {
        InvalidNumbers::Refuse => Ok(Value::Boolean(false)),
        InvalidNumbers::Encode => Ok(Value::Boolean(true)),
        InvalidNumbers::Null => call.lua.create_string("null").map(Value::String),
    }
}

/// The index of an option.
fn option(call: &Call<'_>, at: usize, options: &[&str]) -> Result<usize> {
    let word = call.string(at)?;
    let word = word.as_bytes();
    let word = word.split(|byte| *byte == 0).next().unwrap_or_default();
    let found = options.iter().position(|option| option.as_bytes() == word);
    found.ok_or_else(|| call.bad_argument(at, [b"invalid option '", word, b"'"].concat()))
}
