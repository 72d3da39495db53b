//! Valid names of plans, steps, sinks, columns and items.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// The name of a plan: letters, digits, `.`, `_`, `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanName(String);

impl PlanName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PlanName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(allowed);
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err("a plan's name has 1 to 64 letters, digits, '.', '_' or '-'")
        }
    }
}

impl fmt::Display for PlanName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PlanName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

hob_database::column!(PlanName as text);

pub(crate) fn is_item_key(key: &str) -> bool {
    (1..=512).contains(&key.len()) && !key.chars().any(char::is_control)
}

pub(super) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

pub(super) fn is_identifier(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=63).contains(&name.len()) && name.bytes().all(allowed) && !name.as_bytes()[0].is_ascii_digit()
}
