//! The streams of channels in configured namespaces: the position of a channel, and its newest publications. They are in Redis
//! only. If Redis loses them or goes back to older data, a new stream begins, with a new epoch.

use std::time::Duration;

use hob_store::epoch::SERVER;
use hob_store::repair::{self, KeyType, STORED};
use hob_store::{Call, Key, Reply, Script, Store, Text, cmd};

use crate::Error;
use crate::keys::{IdempotencyKey, Keys, NamedChannel};
use crate::session::protocol::Publication;

const STREAM: &str = include_str!("history/stream.lua");

static PUBLISH: Script = Script::with(&[SERVER, STORED, STREAM], include_str!("history/publish.lua"));
static READ: Script = Script::with(&[SERVER, STORED, STREAM], include_str!("history/read.lua"));

/// How much longer than the history its position is kept.
const POSITION_GRACE: Duration = Duration::from_secs(24 * 3600);

/// The most publications that are kept, and for how long after the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retention {
    pub(crate) size: u32,
    pub(crate) ttl: Duration,
}

/// The position of a publication. Offsets of different epochs cannot be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) epoch: String,
    pub(crate) offset: u64,
}

/// Which publications to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryRange {
    After(u64),
    Before(u64),
    Oldest,
    Newest,
}

/// A part of a history.
#[derive(Debug)]
pub(crate) struct HistoryPage {
    /// The position of the newest publication.
    pub(crate) top: Position,
    /// The offset of the oldest publication that is kept; the next one, if none is.
    pub(crate) oldest: u64,
    /// Oldest first.
    pub(crate) publications: Vec<Publication>,
}

impl HistoryPage {
    /// Whether nothing after this offset is lost.
    pub(crate) fn covers(&self, offset: u64) -> bool {
        offset <= self.top.offset && offset + 1 >= self.oldest
    }
}

/// The streams in Redis.
#[derive(Clone, Debug)]
pub(crate) struct HistoryStore {
    store: Store,
    keys: Keys,
}

impl HistoryStore {
    pub(crate) fn new(store: &Store, keys: &Keys) -> Self {
        Self { store: store.clone(), keys: keys.clone() }
    }

    /// Publishes to all nodes. `fields` are the fields of the publication as the inner part of a JSON object, with its closing
    /// brace. Without a retention, the publication has no position. With an idempotency key, a repeated call publishes nothing
    /// and returns the position of the first.
    pub(crate) async fn publish(
        &self,
        channel: &NamedChannel,
        retention: Option<Retention>,
        fields: &str,
        once: Option<&IdempotencyKey>,
    ) -> Result<Option<Position>, Error> {
        let mut keys = self.stream_keys(channel).to_vec();
        keys.extend(once.map(|once| (self.keys.publish_once(once, channel), KeyType::String)));
        let names: Vec<&Key> = keys.iter().map(|(key, _)| key).collect();
        let Retention { size, ttl } = retention.unwrap_or(Retention { size: 0, ttl: Duration::ZERO });
        let call = PUBLISH.on(&names).arg(size).arg(ms(ttl)).arg(ms(position_ttl(ttl))).arg(new_epoch());
        let call = call.arg(self.keys.named_channel(channel)).arg(fields);
        let call = call.arg(ms(Keys::PUBLISH_ONCE_TTL_MAX));
        let mut reply: Reply = repair::run(&self.store, call, &keys).await?;
        match reply.word() {
            "published" | "repeated" => {
                let (offset, Text(epoch)) = (reply.next()?, reply.next()?);
                Ok((offset > 0).then_some(Position { epoch, offset }))
            }
            _ => Err(reply.unexpected().into()),
        }
    }

    /// Reads a part of the history. If the channel has no stream, one begins.
    pub(crate) async fn read(
        &self,
        channel: &NamedChannel,
        retention: Retention,
        range: HistoryRange,
        limit: u32,
    ) -> Result<HistoryPage, Error> {
        let (which, offset) = match range {
            HistoryRange::After(offset) => ("after", offset),
            HistoryRange::Before(offset) => ("before", offset),
            HistoryRange::Oldest => ("oldest", 0),
            HistoryRange::Newest => ("newest", 0),
        };
        let keys = self.stream_keys(channel);
        let call = READ.on(&[&keys[0].0, &keys[1].0]).arg(new_epoch()).arg(ms(position_ttl(retention.ttl)));
        // Lua's numbers are exact up to 2⁵³.
        let call = call.arg(which).arg(offset.min(1 << 53)).arg(limit);
        let mut reply: Reply = repair::run(&self.store, call, &keys).await?;
        if reply.word() != "history" {
            return Err(reply.unexpected().into());
        }
        let Text(epoch) = reply.next()?;
        let (offset, oldest) = (reply.next()?, reply.next()?);
        let mut publications = Vec::with_capacity(reply.left());
        while reply.left() > 0 {
            let Text(json) = reply.next()?;
            let Ok(publication) = serde_json::from_str(&json) else {
                // Another client has changed the history. Clients find that it is lost.
                repair::report("chat", keys[0].0.as_bytes());
                self.remove(channel).await?;
                return Ok(HistoryPage {
                    top: Position { epoch, offset },
                    oldest: offset + 1,
                    publications: vec![],
                });
            };
            publications.push(publication);
        }
        Ok(HistoryPage { top: Position { epoch, offset }, oldest, publications })
    }

    /// Deletes the history of a channel. Its position stays.
    pub(crate) async fn remove(&self, channel: &NamedChannel) -> Result<(), Error> {
        Ok(self.store.run(cmd("DEL").arg(self.keys.history(channel)).take()).await?)
    }

    /// The call that keeps the position of a channel with subscribers from expiring.
    pub(crate) fn keep_call(&self, channel: &NamedChannel, retention: Retention) -> Call {
        let ttl = ms(position_ttl(retention.ttl));
        cmd("PEXPIRE").arg(self.keys.position(channel)).arg(ttl).take().into()
    }

    /// The call that sends a join or a leave of a client to all nodes.
    pub(crate) fn announce_call(&self, channel: &NamedChannel, kind: &str, info: &str) -> Call {
        let message = format!(r#"{{"{kind}":{{"info":{info}}}}}"#);
        cmd("PUBLISH").arg(self.keys.named_channel(channel)).arg(message).take().into()
    }

    fn stream_keys(&self, channel: &NamedChannel) -> [(Key, KeyType); 2] {
        [(self.keys.history(channel), KeyType::List), (self.keys.position(channel), KeyType::Hash)]
    }
}

fn position_ttl(history_ttl: Duration) -> Duration {
    history_ttl + POSITION_GRACE
}

fn new_epoch() -> String {
    format!("{:08x}", rand::random::<u32>())
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
