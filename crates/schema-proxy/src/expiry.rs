//! The TTL that a command sets.

use hob_units::unix_ms;

use crate::judge::is_word;
use crate::writes::{TtlEffect, TtlUnit};

/// How far the clock of a client may be ahead when it computes a point in time.
const MAX_SKEW_MS: i64 = 60_000;

/// What a command does to the TTL of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewTtl {
    /// Unchanged, or not to be read from the command.
    Kept,
    Removed,
    Millis(u64),
}

pub(crate) fn new_ttl(effect: TtlEffect, words: &[&[u8]]) -> NewTtl {
    let from = |at: usize| words.get(at..).unwrap_or_default();
    match effect {
        TtlEffect::Kept => NewTtl::Kept,
        TtlEffect::Removed => NewTtl::Removed,
        TtlEffect::Argument(at, unit) => words.get(at).map_or(NewTtl::Kept, |text| read(text, unit)),
        TtlEffect::SetOptions(at) => option(from(at)).unwrap_or(NewTtl::Removed),
        TtlEffect::GetOptions(at) => option(from(at)).unwrap_or(NewTtl::Kept),
    }
}

fn option(words: &[&[u8]]) -> Option<NewTtl> {
    words.iter().enumerate().find_map(|(at, word)| {
        let unit = match word {
            _ if is_word(word, "ex") => TtlUnit::Seconds,
            _ if is_word(word, "px") => TtlUnit::Millis,
            _ if is_word(word, "exat") => TtlUnit::UnixSeconds,
            _ if is_word(word, "pxat") => TtlUnit::UnixMillis,
            _ if is_word(word, "keepttl") => return Some(NewTtl::Kept),
            _ if is_word(word, "persist") => return Some(NewTtl::Removed),
            _ => return None,
        };
        words.get(at + 1).map(|text| read(text, unit))
    })
}

/// A TTL that is not a number is left to the server, which refuses it. A TTL that is not positive deletes the key.
fn read(text: &[u8], unit: TtlUnit) -> NewTtl {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    let millis = number.map(|number| match unit {
        TtlUnit::Seconds => number.saturating_mul(1_000),
        TtlUnit::Millis => number,
        TtlUnit::UnixSeconds => since_now(number.saturating_mul(1_000)),
        TtlUnit::UnixMillis => since_now(number),
    });
    match millis.and_then(|millis| u64::try_from(millis).ok()).filter(|millis| *millis > 0) {
        Some(millis) => NewTtl::Millis(millis),
        None => NewTtl::Kept,
    }
}

fn since_now(unix: i64) -> i64 {
    let now = i64::try_from(unix_ms()).unwrap_or(i64::MAX);
    match unix.saturating_sub(now) {
        left if left > MAX_SKEW_MS => left - MAX_SKEW_MS,
        left => left,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ttl(effect: TtlEffect, line: &str) -> NewTtl {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        new_ttl(effect, &words)
    }

    #[test]
    fn ttl_is_read_from_options_and_arguments() {
        let set = TtlEffect::SetOptions(3);
        assert_eq!(ttl(set, "SET k v"), NewTtl::Removed);
        assert_eq!(ttl(set, "SET k v NX ex 10 GET"), NewTtl::Millis(10_000));
        assert_eq!(ttl(set, "SET k v PX 15"), NewTtl::Millis(15));
        assert_eq!(ttl(set, "SET k v KEEPTTL"), NewTtl::Kept);
        assert_eq!(ttl(set, "SET k v EX ten"), NewTtl::Kept);
        let get = TtlEffect::GetOptions(2);
        assert_eq!(ttl(get, "GETEX k"), NewTtl::Kept);
        assert_eq!(ttl(get, "GETEX k PERSIST"), NewTtl::Removed);
        let expire = TtlEffect::Argument(2, TtlUnit::Seconds);
        assert_eq!(ttl(expire, "EXPIRE k 60"), NewTtl::Millis(60_000));
        assert_eq!(ttl(expire, "EXPIRE k -1"), NewTtl::Kept);
        assert_eq!(ttl(expire, "EXPIRE k 9223372036854775807"), NewTtl::Millis(i64::MAX as u64));
    }

    #[test]
    fn point_in_time_allows_for_another_clock() {
        let at = TtlEffect::Argument(2, TtlUnit::UnixMillis);
        let now = unix_ms();
        let NewTtl::Millis(left) = ttl(at, &format!("PEXPIREAT k {}", now + 3_600_000)) else { panic!() };
        assert!((3_500_000..=3_540_000).contains(&left), "{left}");
        assert_eq!(ttl(at, "PEXPIREAT k 1000"), NewTtl::Kept, "in the past: the key is deleted");
    }
}
