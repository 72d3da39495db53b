//! Heartbeats of this instance, and the gauges over all instances that follow from them (G1 G2 G5 G6).

use std::time::{Duration, Instant};

use hob_schema::Shard;
use hob_store::{CLOCK, Call, Reply, Script, Store};

use crate::keys::{InstanceId, Keys};
use crate::traffic::foreign::{self, FOREIGN};

/// Lua that sums the connections of live instances.
const INSTANCES: &str = include_str!("instances.lua");

static HEARTBEAT: Script = Script::with(&[CLOCK, FOREIGN, INSTANCES], include_str!("heartbeat.lua"));
static LEAVE: Script = Script::with(&[CLOCK, FOREIGN, INSTANCES], include_str!("leave.lua"));

/// An instance without a heartbeat for this long is dead.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// The shard of the gauges. All are in one, because a maximum cannot be summed over shards.
pub(crate) fn gauge_shard(keys: &Keys) -> Shard {
    keys.space().shard(0).expect("there is always a first shard")
}

/// What an instance reports about itself.
#[derive(Debug)]
pub(crate) struct Heartbeat<'a> {
    pub(crate) instance: &'a InstanceId,
    pub(crate) kind: HeartbeatKind,
    pub(crate) connections: u32,
    /// The maximum since the last heartbeat.
    pub(crate) peak: u32,
    /// Requests since the last heartbeat, by the time they were collected.
    pub(crate) seen: &'a [(Instant, u64)],
}

/// Whether this is the first heartbeat since the instance started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatKind {
    First,
    Next,
}

hob_units::names!(HeartbeatKind { First = "first", Next = "next" });

impl Heartbeat<'_> {
    pub(crate) fn call(&self, store: &Store, keys: &Keys) -> Call {
        let shard = gauge_shard(keys);
        let mut call = HEARTBEAT.on(&[
            keys.instances(shard),
            keys.instance_connections(shard),
            keys.instance_starts(shard),
            keys.seconds(shard),
            keys.connections_current(shard),
            keys.connections_max(shard),
            keys.requests_speed(shard),
            keys.requests_speed_max(shard),
        ]);
        call = call.arg(self.instance.as_str()).arg(self.kind.as_str()).arg(self.connections).arg(self.peak);
        call = call.arg(LEASE.as_millis() as u64).arg(store.clock().us());
        for (at, count) in self.seen {
            call = call.arg(at.elapsed().as_millis() as u64).arg(*count);
        }
        call
    }
}

/// Reads the store's time from the reply to a heartbeat.
pub(crate) fn read(mut reply: Reply) -> hob_store::Result<u64> {
    match reply.word() {
        "beat" => {
            let now_ms = reply.next()?;
            foreign::report_overwritten(reply)?;
            Ok(now_ms)
        }
        _ => Err(reply.unexpected()),
    }
}

/// Removes an instance at once.
pub(crate) async fn leave(store: &Store, keys: &Keys, instance: &InstanceId) -> hob_store::Result<()> {
    let shard = gauge_shard(keys);
    let call = LEAVE.on(&[
        keys.instances(shard),
        keys.instance_connections(shard),
        keys.instance_starts(shard),
        keys.connections_current(shard),
        keys.requests_speed(shard),
    ]);
    foreign::report_overwritten(store.run(call.arg(instance.as_str()).arg(store.clock().us())).await?)
}
