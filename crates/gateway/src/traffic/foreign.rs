//! What somebody else wrote into keys of ours: it says nothing, it is overwritten, and it is worth a warning.

use hob_store::{Error, Reply, Result};

/// Lua that finds such keys before it changes anything.
pub(crate) const FOREIGN: &str = include_str!("foreign.lua");

/// An answer, or nothing where a key is not of the type that we write.
pub(crate) fn or_default<T: Default>(answer: Result<T>) -> Result<T> {
    match answer {
        Err(Error::Refused { code, .. }) if code == "WRONGTYPE" => Ok(T::default()),
        answer => answer,
    }
}

/// Counts that we write stay below this, as `own.lua` has it, so that their sums never overflow.
const MAX_COUNT: u64 = 999_999_999_999_999;

/// A count; 0 where there is something else.
pub(crate) fn parse_count(bytes: &[u8]) -> u64 {
    let read = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    read.filter(|found| *found <= MAX_COUNT).unwrap_or(0)
}

/// A sum of milliseconds; 0 where there is something else.
pub(crate) fn parse_millis(bytes: &[u8]) -> f64 {
    let read = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    read.filter(|found: &f64| found.is_finite()).unwrap_or(0.0)
}

/// Texts; others are left out.
pub(crate) fn utf8_names(members: Vec<Vec<u8>>) -> impl Iterator<Item = String> {
    members.into_iter().filter_map(|member| String::from_utf8(member).ok())
}

/// Warns of the keys that the rest of a script's answer names.
pub(crate) fn warn_overwritten(mut reply: Reply) -> Result<()> {
    while reply.left() > 0 {
        let key: Vec<u8> = reply.next()?;
        tracing::warn!(key = %String::from_utf8_lossy(&key), "overwrote a key that somebody else had changed");
    }
    Ok(())
}
