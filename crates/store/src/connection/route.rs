//! Finds the hash slot of a command for a Cluster.

use hob_commands::{SLOTS, command_keys, key_slot};
use redis::{Arg, Cmd};

use crate::error::{Error, Result};

/// Where a command can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// On the master of this slot.
    Slot(u16),
    /// On any master, preferably on that of this slot, so that messages of one channel keep their order.
    Near(u16),
}

/// The route of a command, from the table of commands. The server checks that all keys share the slot and answers CROSSSLOT
/// otherwise.
pub(crate) fn route(command: &Cmd) -> Result<Route> {
    let words = words(command);
    let name = words.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
    match name.as_slice() {
        b"PUBLISH" => return Ok(Route::Near(key_slot(words.get(1).copied().unwrap_or_default()))),
        b"FLUSHALL" | b"FLUSHDB" | b"DBSIZE" | b"KEYS" | b"SCAN" | b"SCRIPT" | b"INFO" | b"CONFIG"
        | b"CLIENT" => {
            return Err(unroutable(&name, "it must run on every master; run it on each of `Store::masters`"));
        }
        b"MULTI" | b"EXEC" | b"WATCH" | b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SELECT" | b"AUTH" | b"MONITOR" => {
            return Err(unroutable(&name, "it changes the state of the connection, which all callers share"));
        }
        _ => {}
    }
    match command_keys(&words) {
        None => Err(unroutable(&name, "its keys are unknown")),
        Some(mut keys) => Ok(match keys.next() {
            Some(key) => Route::Slot(key_slot(key)),
            None => Route::Near(rand::random_range(0..SLOTS)),
        }),
    }
}

/// The first key of a command, if it has one.
pub(crate) fn first_key(command: &Cmd) -> Option<Vec<u8>> {
    command_keys(&words(command))?.next().map(<[u8]>::to_vec)
}

fn words(command: &Cmd) -> Vec<&[u8]> {
    let simple = |argument| match argument {
        Arg::Simple(bytes) => Some(bytes),
        _ => None,
    };
    command.args_iter().filter_map(simple).collect()
}

fn unroutable(name: &[u8], reason: &'static str) -> Error {
    Error::Unroutable { command: String::from_utf8_lossy(name).into_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_routed_by_its_first_key() {
        let foo = Route::Slot(12182);
        assert_eq!(route(redis::cmd("get").arg("foo")).unwrap(), foo);
        assert_eq!(route(redis::cmd("EVALSHA").arg("sha").arg(1).arg("foo").arg("x")).unwrap(), foo);
        assert_eq!(route(redis::cmd("MEMORY").arg("USAGE").arg("foo")).unwrap(), foo);
    }

    #[test]
    fn commands_without_keys_run_anywhere_and_messages_of_a_channel_on_one_master() {
        assert!(matches!(route(redis::cmd("EVALSHA").arg("sha").arg(0)).unwrap(), Route::Near(_)));
        assert_eq!(route(redis::cmd("PUBLISH").arg("foo").arg("m")).unwrap(), Route::Near(12182));
    }

    #[test]
    fn commands_for_every_master_are_refused() {
        for command in ["FLUSHALL", "SCAN", "DBSIZE", "SCRIPT"] {
            let error = route(&redis::cmd(command)).unwrap_err().to_string();
            assert!(error.contains("Store::masters"), "{error}");
        }
        assert!(route(&redis::cmd("GET")).is_err(), "it has no key");
        assert!(route(redis::cmd("PFADD").arg("foo")).is_err(), "the table does not have it");
    }
}
