//! The name of a declared key.

use std::fmt;

use redis::{RedisWrite, ToRedisArgs, ToSingleRedisArg};

/// The name of one key, ready for a command. The typed constructors of `hob_schema_macros::keys!` make it from a schema.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(String);

impl Key {
    /// Only for the typed constructors; other callers would create keys that no schema declares.
    #[doc(hidden)]
    #[must_use]
    pub fn declared(name: String) -> Self {
        Self(name)
    }

    /// The bytes as Redis has them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The bytes as Redis has them.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

impl ToRedisArgs for Key {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(self.as_bytes());
    }
}

impl ToSingleRedisArg for Key {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_an_argument_of_any_command() {
        let key = Key::declared("k".to_owned());
        let packed = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        assert_eq!(redis::cmd("GET").arg(&key).get_packed_command(), packed);
        assert_eq!(redis::Cmd::get(&key).get_packed_command(), packed);
        assert_eq!(redis::Cmd::get(key).get_packed_command(), packed);
    }
}
