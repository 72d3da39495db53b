//! Which hash slot of a Cluster a command belongs to.

use hob_engine::{SLOTS, key_slot};
use redis::{Arg, Cmd};

use crate::error::{Error, Result};

/// Where a command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// On the master of this slot.
    Slot(u16),
    /// On any master; on this slot's if it is there, so that messages of one channel keep their order.
    Near(u16),
}

/// Reads the route of a command from its name and its first key. That all keys share the slot is the
/// server's check: it refuses with CROSSSLOT.
pub(crate) fn route(command: &Cmd) -> Result<Route> {
    let name = argument(command, 0).unwrap_or_default().to_ascii_uppercase();
    let key_at = match name.as_slice() {
        b"EVAL" | b"EVALSHA" if argument(command, 2) == Some(b"0") => None,
        b"EVAL" | b"EVALSHA" => Some(3),
        b"MEMORY" | b"OBJECT" => Some(2),
        b"PUBLISH" => return Ok(Route::Near(key_slot(argument(command, 1).unwrap_or_default()))),
        b"PING" | b"ECHO" | b"TIME" | b"CLUSTER" | b"COMMAND" | b"ROLE" => None,
        b"FLUSHALL" | b"FLUSHDB" | b"DBSIZE" | b"KEYS" | b"SCAN" | b"SCRIPT" | b"INFO" | b"CONFIG"
        | b"CLIENT" => {
            return Err(unroutable(&name, "it concerns every master: call it on each of `Store::masters`"));
        }
        b"MULTI" | b"EXEC" | b"WATCH" | b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SELECT" | b"AUTH" | b"MONITOR" => {
            return Err(unroutable(&name, "it changes the connection, which all callers share"));
        }
        _ => Some(1),
    };
    match key_at {
        None => Ok(Route::Near(rand::random_range(0..SLOTS))),
        Some(at) => match argument(command, at) {
            Some(key) => Ok(Route::Slot(key_slot(key))),
            None => Err(unroutable(&name, "it names no key")),
        },
    }
}

fn argument(command: &Cmd, index: usize) -> Option<&[u8]> {
    match command.args_iter().nth(index)? {
        Arg::Simple(bytes) => Some(bytes),
        _ => None,
    }
}

fn unroutable(name: &[u8], reason: &'static str) -> Error {
    Error::Unroutable { command: String::from_utf8_lossy(name).into_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_goes_to_its_first_key() {
        let foo = Route::Slot(12182);
        assert_eq!(route(redis::cmd("get").arg("foo")).unwrap(), foo);
        assert_eq!(route(redis::cmd("EVALSHA").arg("sha").arg(1).arg("foo").arg("x")).unwrap(), foo);
        assert_eq!(route(redis::cmd("MEMORY").arg("USAGE").arg("foo")).unwrap(), foo);
    }

    #[test]
    fn what_has_no_key_goes_anywhere_and_a_message_where_its_channel_went_before() {
        assert!(matches!(route(redis::cmd("EVALSHA").arg("sha").arg(0)).unwrap(), Route::Near(_)));
        assert_eq!(route(redis::cmd("PUBLISH").arg("foo").arg("m")).unwrap(), Route::Near(12182));
    }

    #[test]
    fn what_concerns_every_master_is_refused() {
        for command in ["FLUSHALL", "SCAN", "DBSIZE", "SCRIPT"] {
            let error = route(&redis::cmd(command)).unwrap_err().to_string();
            assert!(error.contains("Store::masters"), "{error}");
        }
        assert!(route(&redis::cmd("GET")).is_err());
    }
}
