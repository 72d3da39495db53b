//! Replies of Hob's scripts: an array whose first item names the result.

use redis::{FromRedisValue, ParsingError, Value};

use crate::error::{Error, Result};

/// A script's reply, read item by item.
#[derive(Debug)]
pub struct Reply {
    word: String,
    rest: std::vec::IntoIter<Value>,
}

impl Reply {
    /// The first item, which names the result.
    #[must_use]
    pub fn word(&self) -> &str {
        &self.word
    }

    /// The next item.
    #[allow(clippy::should_implement_trait, reason = "each item may have another type")]
    pub fn next<T: FromRedisValue>(&mut self) -> Result<T> {
        let item = self.rest.next().ok_or_else(|| Error::reply(format!("{:?} is too short", self.word)))?;
        T::from_redis_value(item).map_err(Error::reply)
    }

    /// How many items are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// The error for an unknown result.
    #[must_use]
    pub fn unexpected(&self) -> Error {
        Error::reply(format!("unexpected script result {:?}", self.word))
    }
}

/// Text in a reply. Another client can write any bytes into a key; those that are not UTF-8 are replaced by `\u{FFFD}`,
/// so that they do not make the rest of a reply unreadable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(pub String);

impl FromRedisValue for Text {
    fn from_redis_value(value: Value) -> std::result::Result<Self, ParsingError> {
        match value {
            Value::BulkString(bytes) => Ok(Self(String::from_utf8_lossy(&bytes).into_owned())),
            value => String::from_redis_value(value).map(Self),
        }
    }
}

impl FromRedisValue for Reply {
    fn from_redis_value(value: Value) -> std::result::Result<Self, ParsingError> {
        let mut rest = Vec::<Value>::from_redis_value(value)?.into_iter();
        let word = String::from_redis_value(rest.next().unwrap_or_default())?;
        Ok(Self { word, rest })
    }
}
