//! Keyspace notifications: which events are on, and those that the running command has caused.

use std::fmt::{self, Write};

use super::value::Bytes;

/// What an event is about. Each class is switched on by a letter of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventClass {
    Generic,
    String,
    List,
    Set,
    Hash,
    SortedSet,
    Stream,
    Expired,
    New,
    Miss,
}

impl EventClass {
    const fn flag(self) -> u16 {
        match self {
            EventClass::Generic => 1 << 2,
            EventClass::String => 1 << 3,
            EventClass::List => 1 << 4,
            EventClass::Set => 1 << 5,
            EventClass::Hash => 1 << 6,
            EventClass::SortedSet => 1 << 7,
            EventClass::Expired => 1 << 8,
            EventClass::Stream => 1 << 10,
            EventClass::New => 1 << 12,
            EventClass::Miss => 1 << 13,
        }
    }
}

/// The value of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFlags(u16);

const BY_KEY: u16 = 1;
const BY_EVENT: u16 = 1 << 1;
/// The engine accepts these classes, but sends no events of them: it neither evicts keys nor has modules.
const EVICTED: u16 = 1 << 9;
const MODULE: u16 = 1 << 11;

/// The letters of the classes that `A` stands for, in the order of `CONFIG GET`.
const CLASSES: [(u8, u16); 10] = [
    (b'g', EventClass::Generic.flag()),
    (b'$', EventClass::String.flag()),
    (b'l', EventClass::List.flag()),
    (b's', EventClass::Set.flag()),
    (b'h', EventClass::Hash.flag()),
    (b'z', EventClass::SortedSet.flag()),
    (b'x', EventClass::Expired.flag()),
    (b'e', EVICTED),
    (b't', EventClass::Stream.flag()),
    (b'd', MODULE),
];
const NEW: (u8, u16) = (b'n', EventClass::New.flag());
const OTHERS: [(u8, u16); 3] = [(b'K', BY_KEY), (b'E', BY_EVENT), (b'm', EventClass::Miss.flag())];
const ALL: u16 = {
    let (mut all, mut at) = (0, 0);
    while at < CLASSES.len() {
        all |= CLASSES[at].1;
        at += 1;
    }
    all
};

impl EventFlags {
    /// `None` if a letter is unknown.
    pub(crate) fn parse(letters: &[u8]) -> Option<EventFlags> {
        let flag = |letter: &u8| match letter {
            b'A' => Some(ALL),
            letter => {
                let mut flags = CLASSES.iter().chain([&NEW]).chain(&OTHERS);
                flags.find(|(name, _)| name == letter).map(|(_, flag)| *flag)
            }
        };
        letters.iter().try_fold(0, |flags, letter| Some(flags | flag(letter)?)).map(EventFlags)
    }

    fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }
}

impl fmt::Display for EventFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut write = |flags: &[(u8, u16)]| {
            flags
                .iter()
                .filter(|(_, flag)| self.has(*flag))
                .try_for_each(|(letter, _)| f.write_char(char::from(*letter)))
        };
        if self.0 & ALL == ALL {
            write(&[(b'A', ALL)])?;
        } else {
            write(&CLASSES)?;
            // As in Redis, which does not show `n` next to `A`.
            write(&[NEW])?;
        }
        write(&OTHERS)
    }
}

/// An event that was not published yet.
#[derive(Debug)]
pub(crate) struct KeyEvent {
    name: &'static str,
    key: Bytes,
}

#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(super) flags: EventFlags,
    queue: Vec<KeyEvent>,
}

impl Events {
    pub(super) fn add(&mut self, class: EventClass, name: &'static str, key: &[u8]) {
        if self.flags.has(class.flag()) && self.flags.has(BY_KEY | BY_EVENT) {
            self.queue.push(KeyEvent { name, key: key.into() });
        }
    }

    /// Calls `publish` with the channel and the text of each message.
    pub(super) fn publish(&mut self, publish: impl Fn(&[u8], &[u8])) {
        for KeyEvent { name, key } in self.queue.drain(..) {
            if self.flags.has(BY_KEY) {
                publish(&[b"__keyspace@0__:", &*key].concat(), name.as_bytes());
            }
            if self.flags.has(BY_EVENT) {
                publish(format!("__keyevent@0__:{name}").as_bytes(), &key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_in_the_order_of_redis() {
        for (given, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("An", "A"),
            ("nKg", "gnK"),
            ("mEx", "xEm"),
            ("g$lshzxetd", "A"),
            ("dtexzhsl$", "$lshzxetd"),
        ] {
            assert_eq!(EventFlags::parse(given.as_bytes()).unwrap().to_string(), shown, "{given}");
        }
        assert_eq!(EventFlags::parse(b"Kq"), None);
    }
}
