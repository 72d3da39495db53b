//! The faults, and what each may cost according to the documentation.

pub(crate) mod inject;
mod log;
mod redis;

use std::fmt;
use std::time::Duration;

pub(crate) use log::{AFTERMATH, FaultEvent, FaultLog, Origin};

/// Which server a link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Server {
    /// The servers of a shard: its master and its replica.
    Shard(usize),
    Postgres,
}

/// What happens to a link between a node and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkFault {
    /// Connections are closed, and new ones too.
    Cut,
    /// Each packet takes longer.
    Slow,
    /// Connections stay open, but nothing arrives any more; connections from before stay dead.
    HalfOpen,
}

/// One fault with its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9`, and a restart after the fault's time.
    KillNode(usize),
    /// SIGSTOP, and SIGCONT after the fault's time.
    FreezeNode(usize),
    /// The clock of the node that runs with libfaketime jumps by this many seconds, and back after the fault's time.
    ClockJump(i8),
    /// `kill -9` of a master, and a restart after the fault's time. Its replica may be promoted in between.
    KillMaster(usize),
    FreezeMaster(usize),
    /// The replica's link is cut, writes continue for the fault's time, and then the replica is promoted.
    LossyFailover(usize),
    /// A master restarts from a snapshot that is as old as the fault's time.
    OlderSnapshot(usize),
    FlushAll(usize),
    FlushScripts(usize),
    /// Slots that have keys move to the next shard.
    MoveSlots(usize),
    /// A master evicts keys.
    Evict(usize),
    /// A master cannot write its snapshot and refuses writes.
    FullDiskOfRedis(usize),
    /// CLIENT KILL of all clients of a master.
    KillClients(usize),
    KillPostgres,
    FreezePostgres,
    /// PostgreSQL cannot write to its files.
    FullDiskOfPostgres,
    /// `pg_terminate_backend` of all connections.
    KillBackends,
    Link(LinkFault, usize, Server),
}

/// The kind of a fault, without its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    KillNode,
    FreezeNode,
    ClockJump,
    KillMaster,
    FreezeMaster,
    LossyFailover,
    OlderSnapshot,
    FlushAll,
    FlushScripts,
    MoveSlots,
    Evict,
    FullDiskOfRedis,
    KillClients,
    KillPostgres,
    FreezePostgres,
    FullDiskOfPostgres,
    KillBackends,
    CutLink,
    SlowLink,
    HalfOpenLink,
}

impl Kind {
    pub(crate) const ALL: [Self; 20] = [
        Self::KillNode,
        Self::FreezeNode,
        Self::ClockJump,
        Self::KillMaster,
        Self::FreezeMaster,
        Self::LossyFailover,
        Self::OlderSnapshot,
        Self::FlushAll,
        Self::FlushScripts,
        Self::MoveSlots,
        Self::Evict,
        Self::FullDiskOfRedis,
        Self::KillClients,
        Self::KillPostgres,
        Self::FreezePostgres,
        Self::FullDiskOfPostgres,
        Self::KillBackends,
        Self::CutLink,
        Self::SlowLink,
        Self::HalfOpenLink,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KillNode => "kill -9 of a node",
            Self::FreezeNode => "SIGSTOP of a node",
            Self::ClockJump => "clock jump of 30 s on a node",
            Self::KillMaster => "kill -9 of a Redis master",
            Self::FreezeMaster => "SIGSTOP of a Redis master",
            Self::LossyFailover => "failover with lost writes",
            Self::OlderSnapshot => "restart of Redis from an older snapshot",
            Self::FlushAll => "FLUSHALL of a master",
            Self::FlushScripts => "SCRIPT FLUSH",
            Self::MoveSlots => "slot migration",
            Self::Evict => "eviction",
            Self::FullDiskOfRedis => "full disk of Redis",
            Self::KillClients => "CLIENT KILL",
            Self::KillPostgres => "kill -9 of PostgreSQL",
            Self::FreezePostgres => "SIGSTOP of PostgreSQL",
            Self::FullDiskOfPostgres => "full disk of PostgreSQL",
            Self::KillBackends => "pg_terminate_backend",
            Self::CutLink => "cut link",
            Self::SlowLink => "slow link",
            Self::HalfOpenLink => "half-open link",
        }
    }

    /// How long the fault lasts, in milliseconds. Some faults must end before a lease expires, others after it.
    pub(crate) fn lasts_ms(self) -> std::ops::Range<u64> {
        match self {
            Self::KillNode | Self::FreezeNode => 1_000..12_000,
            Self::ClockJump => 3_000..10_000,
            // Longer than the node timeout of the Cluster, or shorter.
            Self::KillMaster | Self::FreezeMaster => 500..9_000,
            Self::LossyFailover | Self::OlderSnapshot => 1_000..5_000,
            Self::Evict | Self::FullDiskOfRedis => 2_000..6_000,
            Self::KillPostgres | Self::FreezePostgres | Self::FullDiskOfPostgres => 500..8_000,
            Self::CutLink | Self::SlowLink | Self::HalfOpenLink => 1_000..10_000,
            Self::FlushAll
            | Self::FlushScripts
            | Self::MoveSlots
            | Self::KillClients
            | Self::KillBackends => 100..200,
        }
    }
}

impl Fault {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::KillNode(_) => Kind::KillNode,
            Self::FreezeNode(_) => Kind::FreezeNode,
            Self::ClockJump(_) => Kind::ClockJump,
            Self::KillMaster(_) => Kind::KillMaster,
            Self::FreezeMaster(_) => Kind::FreezeMaster,
            Self::LossyFailover(_) => Kind::LossyFailover,
            Self::OlderSnapshot(_) => Kind::OlderSnapshot,
            Self::FlushAll(_) => Kind::FlushAll,
            Self::FlushScripts(_) => Kind::FlushScripts,
            Self::MoveSlots(_) => Kind::MoveSlots,
            Self::Evict(_) => Kind::Evict,
            Self::FullDiskOfRedis(_) => Kind::FullDiskOfRedis,
            Self::KillClients(_) => Kind::KillClients,
            Self::KillPostgres => Kind::KillPostgres,
            Self::FreezePostgres => Kind::FreezePostgres,
            Self::FullDiskOfPostgres => Kind::FullDiskOfPostgres,
            Self::KillBackends => Kind::KillBackends,
            Self::Link(LinkFault::Cut, ..) => Kind::CutLink,
            Self::Link(LinkFault::Slow, ..) => Kind::SlowLink,
            Self::Link(LinkFault::HalfOpen, ..) => Kind::HalfOpenLink,
        }
    }

    /// What the fault works on: two faults on the same part do not overlap.
    pub(crate) fn part(self) -> Part {
        match self {
            Self::KillNode(node) | Self::FreezeNode(node) | Self::Link(_, node, _) => Part::Node(node),
            Self::ClockJump(_) => Part::Node(crate::world::NODE_WITH_CLOCK),
            Self::KillMaster(_)
            | Self::FreezeMaster(_)
            | Self::LossyFailover(_)
            | Self::OlderSnapshot(_)
            | Self::FlushAll(_)
            | Self::FlushScripts(_)
            | Self::MoveSlots(_)
            | Self::Evict(_)
            | Self::FullDiskOfRedis(_)
            | Self::KillClients(_) => Part::Redis,
            Self::KillPostgres | Self::FreezePostgres | Self::FullDiskOfPostgres | Self::KillBackends => {
                Part::Postgres
            }
        }
    }

    /// Whether Redis may lose writes, or return to older data. A frozen master may be replaced by its replica, which lacks
    /// the last writes.
    pub(crate) fn may_lose_writes(self) -> bool {
        matches!(
            self,
            Self::KillMaster(_)
                | Self::FreezeMaster(_)
                | Self::LossyFailover(_)
                | Self::OlderSnapshot(_)
                | Self::FlushAll(_)
                | Self::Evict(_)
                // Sentinels promote the replica of a master that refuses writes, because it refuses PING too.
                | Self::FullDiskOfRedis(_)
        )
    }

    /// Whether the replica of a master may be promoted.
    pub(crate) fn may_fail_over(self) -> bool {
        self.may_lose_writes() && !matches!(self, Self::FlushAll(_) | Self::Evict(_))
    }
}

/// A part of the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Node(usize),
    Redis,
    Postgres,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind().name();
        match self {
            Self::KillNode(node) | Self::FreezeNode(node) => write!(f, "{name} {node}"),
            Self::ClockJump(seconds) => write!(f, "{name} ({seconds:+} s)"),
            Self::KillMaster(shard)
            | Self::FreezeMaster(shard)
            | Self::LossyFailover(shard)
            | Self::OlderSnapshot(shard)
            | Self::FlushAll(shard)
            | Self::FlushScripts(shard)
            | Self::MoveSlots(shard)
            | Self::Evict(shard)
            | Self::FullDiskOfRedis(shard)
            | Self::KillClients(shard) => write!(f, "{name} (shard {shard})"),
            Self::KillPostgres | Self::FreezePostgres | Self::FullDiskOfPostgres | Self::KillBackends => {
                f.write_str(name)
            }
            Self::Link(_, node, Server::Shard(shard)) => {
                write!(f, "{name} from node {node} to shard {shard}")
            }
            Self::Link(_, node, Server::Postgres) => write!(f, "{name} from node {node} to PostgreSQL"),
        }
    }
}

/// Seconds with one decimal, for the report.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
