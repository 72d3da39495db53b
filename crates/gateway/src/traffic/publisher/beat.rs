//! An instance's sign of life, and the gauges of all instances that follow from it (G1 G2 G5 G6).

use std::time::{Duration, Instant};

use hob_schema::Shard;
use hob_store::{CLOCK, Call, Reply, Script, Store};

use crate::keys::{InstanceId, Keys};
use crate::traffic::foreign::{self, OWN};

/// Lua that sums up what instances hold.
const INSTANCES: &str = include_str!("instances.lua");

static BEAT: Script = Script::with(&[CLOCK, OWN, INSTANCES], include_str!("beat.lua"));
static LEAVE: Script = Script::with(&[OWN, INSTANCES], include_str!("leave.lua"));

/// An instance that was not heard of for so long is dead.
pub(crate) const HOLD: Duration = Duration::from_secs(5);

/// Gauges are one picture, so they are in one shard.
pub(crate) fn gauges(keys: &Keys) -> Shard {
    keys.space().shard(0).expect("there is always a first shard")
}

/// What an instance says of itself.
#[derive(Debug)]
pub(crate) struct Beat<'a> {
    pub(crate) instance: &'a InstanceId,
    pub(crate) turn: Turn,
    pub(crate) connections: u32,
    /// The most of them since the last beat.
    pub(crate) peak: u32,
    /// Requests since the last beat, by when they were collected.
    pub(crate) seen: &'a [(Instant, u64)],
}

/// Whether an instance was heard of before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    First,
    Again,
}

impl Turn {
    fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Again => "again",
        }
    }
}

impl Beat<'_> {
    pub(crate) fn call(&self, store: &Store, keys: &Keys) -> Call {
        let shard = gauges(keys);
        let mut call = BEAT.on(&[
            keys.instances(shard),
            keys.instance_connections(shard),
            keys.instance_starts(shard),
            keys.seconds(shard),
            keys.connections_current(shard),
            keys.connections_max(shard),
            keys.requests_speed(shard),
            keys.requests_speed_max(shard),
        ]);
        call = call.arg(self.instance.as_str()).arg(self.turn.as_str()).arg(self.connections).arg(self.peak);
        call = call.arg(HOLD.as_millis() as u64).arg(store.clock().us());
        for (at, count) in self.seen {
            call = call.arg(at.elapsed().as_millis() as u64).arg(*count);
        }
        call
    }
}

/// The store's time in a beat's answer.
pub(crate) fn read(mut reply: Reply) -> hob_store::Result<u64> {
    match reply.word() {
        "beat" => {
            let now_ms = reply.next()?;
            foreign::warn(reply)?;
            Ok(now_ms)
        }
        _ => Err(reply.unexpected()),
    }
}

/// Takes an instance out at once.
pub(crate) async fn leave(store: &Store, keys: &Keys, instance: &InstanceId) -> hob_store::Result<()> {
    let shard = gauges(keys);
    let call = LEAVE.on(&[
        keys.instances(shard),
        keys.instance_connections(shard),
        keys.instance_starts(shard),
        keys.connections_current(shard),
    ]);
    foreign::warn(store.run(call.arg(instance.as_str())).await?)
}
