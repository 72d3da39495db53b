//! Keyspace notifications of one server.

use hob_store::{Address, BusEvent, ChannelFilter, Host, Store, cmd};

use crate::error::Error;
use crate::single_keys::KeyChecker;

/// Events after which a key does not exist.
const DELETIONS: [&[u8]; 5] = [b"del", b"unlink", b"expired", b"evicted", b"rename_from"];
/// The classes of commands that write keys; `A` stands for all of them.
const WRITES: &str = "g$lshzt";

/// Which notifications a server publishes, from its setting `notify-keyspace-events`. It is never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    Off,
    /// By the name of the event (`E`), for all commands that write, or for some of them.
    Events {
        complete: bool,
    },
    /// By the name of the key (`K`).
    Keys {
        complete: bool,
    },
    /// The setting cannot be read.
    Unknown,
}

impl Switch {
    fn parse(setting: &str) -> Switch {
        let has = |flag: char| setting.contains(flag);
        let complete = has('A') || WRITES.chars().all(has);
        let any = complete || WRITES.chars().any(has);
        match (any, has('E'), has('K')) {
            (true, true, _) => Switch::Events { complete },
            (true, false, true) => Switch::Keys { complete },
            _ => Switch::Off,
        }
    }

    /// Whether it is worth to subscribe.
    pub(super) fn may_notify(self) -> bool {
        self != Switch::Off
    }

    /// Whether the server is known to publish notifications.
    pub(super) fn notifies(self) -> bool {
        matches!(self, Switch::Events { .. } | Switch::Keys { .. })
    }

    pub(super) fn log(self, server: &str) {
        match self {
            Switch::Off => {
                let remedy = "CONFIG SET notify-keyspace-events AE";
                tracing::info!(
                    server,
                    remedy,
                    "keyspace notifications are off, keys are checked by audits only"
                );
            }
            Switch::Unknown => {
                tracing::info!(
                    server,
                    "notify-keyspace-events cannot be read, keyspace notifications may be off"
                );
            }
            Switch::Events { complete: true } | Switch::Keys { complete: true } => {
                tracing::info!(server, "checking keys after each write");
            }
            Switch::Events { .. } | Switch::Keys { .. } => {
                tracing::info!(server, "checking keys after the writes that notify-keyspace-events includes");
            }
        }
    }
}

pub(super) async fn read_switch(server: &Store) -> Switch {
    let setting = server.run::<Vec<String>>(cmd("CONFIG").arg("GET").arg("notify-keyspace-events")).await;
    match setting.as_deref() {
        Ok([_, setting]) => Switch::parse(setting),
        _ => Switch::Unknown,
    }
}

/// A server with its own subscription: the nodes of a Cluster do not forward notifications to each other.
#[derive(Debug)]
pub(super) struct Server {
    store: Store,
    database: u32,
}

impl Server {
    /// `master` is one of the servers at `address`.
    pub(super) fn open(address: &Address, master: &Store) -> Result<Server, Error> {
        match address {
            Address::Server { db, .. } | Address::Sentinel { db, .. } => {
                Ok(Server { store: master.clone(), database: *db })
            }
            Address::Cluster { access, .. } => {
                let (name, port) = master.name().rsplit_once(':').unwrap_or((master.name(), ""));
                let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
                let host = Host { name, port: port.parse().unwrap_or(6379) };
                let node = Address::Server { host, db: 0, access: access.clone() };
                let store = Store::open(&node).map_err(Error::Connect)?.with_deadline(master.deadline());
                Ok(Server { store, database: 0 })
            }
            Address::Embedded => Err(Error::Embedded),
        }
    }

    pub(super) async fn checker(&self) -> KeyChecker {
        KeyChecker::new(self.store.clone()).await
    }

    /// Passes on each key that was written, and `None` if notifications may have been lost, until the future is dropped.
    pub(super) async fn receive(&self, switch: Switch, mut each: impl FnMut(Option<Vec<u8>>)) {
        let event_channels = format!("__keyevent@{}__:", self.database);
        let key_channels = format!("__keyspace@{}__:", self.database);
        let all = |channels: &str| ChannelFilter::pattern(format!("{channels}*"));
        let channels = match switch {
            Switch::Off => return,
            Switch::Events { .. } => vec![all(&event_channels)],
            Switch::Keys { .. } => vec![all(&key_channels)],
            Switch::Unknown => vec![all(&event_channels), all(&key_channels)],
        };
        let mut listener = self.store.bus().listen(channels);
        let mut first = true;
        loop {
            match listener.next().await {
                // The first event only means that the subscription has begun.
                BusEvent::Missed if std::mem::take(&mut first) => {}
                BusEvent::Missed => each(None),
                BusEvent::Message { channel, payload, .. } => {
                    let by_event = channel.strip_prefix(event_channels.as_bytes());
                    let by_key = channel.strip_prefix(key_channels.as_bytes());
                    let (event, key) = match (by_event, by_key) {
                        (Some(event), _) => (event, &payload[..]),
                        (None, Some(key)) => (&payload[..], key),
                        (None, None) => continue,
                    };
                    if !DELETIONS.contains(&event) {
                        each(Some(key.to_vec()));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_of_the_server_is_read() {
        assert_eq!(Switch::parse(""), Switch::Off);
        assert_eq!(Switch::parse("A"), Switch::Off);
        assert_eq!(Switch::parse("xE"), Switch::Off);
        assert_eq!(Switch::parse("AKE"), Switch::Events { complete: true });
        assert_eq!(Switch::parse("g$lshztxE"), Switch::Events { complete: true });
        assert_eq!(Switch::parse("$K"), Switch::Keys { complete: false });
    }
}
