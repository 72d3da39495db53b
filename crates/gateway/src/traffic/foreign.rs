//! Values that another client wrote into the gateway's keys. They are ignored when read, overwritten when written, and
//! logged.

use hob_store::{Error, Reply, Result, repair};

/// Lua that finds foreign keys before a script changes anything.
pub(crate) const FOREIGN: &str = include_str!("foreign.lua");

/// The default value if the key has another type.
pub(crate) fn or_default<T: Default>(answer: Result<T>) -> Result<T> {
    match answer {
        Err(Error::Refused { code, .. }) if code == "WRONGTYPE" => Ok(T::default()),
        answer => answer,
    }
}

/// Counts stay below this (see `foreign.lua`), so that sums never overflow.
const MAX_COUNT: u64 = 999_999_999_999_999;

/// Reads a count; 0 if the value is not one.
pub(crate) fn parse_count(bytes: &[u8]) -> u64 {
    let read = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    read.filter(|found| *found <= MAX_COUNT).unwrap_or(0)
}

/// Reads a sum of milliseconds; 0 if the value is not one.
pub(crate) fn parse_millis(bytes: &[u8]) -> f64 {
    let read = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    read.filter(|found: &f64| found.is_finite()).unwrap_or(0.0)
}

/// Drops values that are not UTF-8.
pub(crate) fn utf8_names(members: Vec<Vec<u8>>) -> impl Iterator<Item = String> {
    members.into_iter().filter_map(|member| String::from_utf8(member).ok())
}

/// Logs and counts the overwritten keys at the end of a script's reply.
pub(crate) fn report_overwritten(mut reply: Reply) -> Result<()> {
    while reply.left() > 0 {
        let key: Vec<u8> = reply.next()?;
        repair::report("gateway", &key);
    }
    Ok(())
}
