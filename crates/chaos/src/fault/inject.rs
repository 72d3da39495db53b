//! Injects a fault, waits for its time, and heals it.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use hob_testkit::wait_until;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::{Fault, LinkFault, Server};
use crate::world::links::{Condition, Party};
use crate::world::{NODE_WITH_CLOCK, World};

/// The delay of each packet on a slow link: longer than the gateway waits for Redis, and within every other timeout.
const SLOW: Duration = Duration::from_millis(150);

/// Why a fault was not injected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotInjected {
    /// The machine or the set-up cannot do it at all.
    Impossible(String),
    /// The target was not in the required state, such as a shard without a master after the fault before.
    NotNow(String),
}

/// The result of a command to a server that an earlier fault may still affect.
impl From<redis::RedisError> for NotInjected {
    fn from(error: redis::RedisError) -> Self {
        Self::NotNow(error.to_string())
    }
}

/// Injects a fault and heals it after its time.
pub(crate) async fn inject(world: &Arc<World>, fault: Fault, lasts: Duration) -> Result<(), NotInjected> {
    let position = world.faults.begin(fault);
    let done = execute(world, fault, lasts).await;
    world.faults.end(position);
    done
}

async fn execute(world: &World, fault: Fault, lasts: Duration) -> Result<(), NotInjected> {
    match fault {
        Fault::KillNode(node) => kill_node(world, node, lasts).await,
        Fault::FreezeNode(node) => freeze_node(world, node, lasts).await,
        Fault::ClockJump(seconds) => jump(world, seconds, lasts).await,
        Fault::KillPostgres => kill_postgres(world, lasts).await,
        Fault::FreezePostgres => {
            block_in_place(|| world.postgres.freeze());
            sleep(lasts).await;
            world.postgres.unfreeze();
            Ok(())
        }
        Fault::FullDiskOfPostgres => full_disk_of_postgres(world, lasts).await,
        Fault::KillBackends => {
            block_in_place(|| world.postgres.disconnect_clients());
            Ok(())
        }
        Fault::Link(what, node, server) => {
            disturb(world, what, node, server, lasts).await;
            Ok(())
        }
        Fault::KillMaster(_)
        | Fault::FreezeMaster(_)
        | Fault::LossyFailover(_)
        | Fault::OlderSnapshot(_)
        | Fault::FlushAll(_)
        | Fault::FlushScripts(_)
        | Fault::MoveSlots(_)
        | Fault::Evict(_)
        | Fault::FullDiskOfRedis(_)
        | Fault::KillClients(_) => super::redis::execute(world, fault, lasts).await,
    }
}

async fn kill_node(world: &World, node: usize, lasts: Duration) -> Result<(), NotInjected> {
    block_in_place(|| world.nodes[node].process.kill());
    sleep(lasts).await;
    block_in_place(|| world.restart_node(node));
    Ok(())
}

async fn freeze_node(world: &World, node: usize, lasts: Duration) -> Result<(), NotInjected> {
    block_in_place(|| world.nodes[node].process.freeze());
    sleep(lasts).await;
    world.nodes[node].process.thaw();
    Ok(())
}

async fn jump(world: &World, seconds: i8, lasts: Duration) -> Result<(), NotInjected> {
    let Some(clock) = &world.nodes[NODE_WITH_CLOCK].clock else {
        return Err(NotInjected::Impossible(
            "libfaketime is not installed (Debian package faketime)".to_owned(),
        ));
    };
    let set = |seconds: i8| {
        // Renamed, so that the node never reads half of it.
        let next = clock.with_extension("next");
        fs::write(&next, format!("{seconds:+}s")).and_then(|()| fs::rename(&next, clock))
    };
    set(seconds).map_err(|error| NotInjected::Impossible(format!("cannot write the clock: {error}")))?;
    sleep(lasts).await;
    set(0).map_err(|error| NotInjected::Impossible(format!("cannot write the clock: {error}")))
}

async fn kill_postgres(world: &World, lasts: Duration) -> Result<(), NotInjected> {
    block_in_place(|| world.postgres.kill());
    sleep(lasts).await;
    block_in_place(|| {
        // A fault before this one may still be healing, and has started it.
        if !world.postgres.is_running() {
            world.postgres.restart();
        }
    });
    Ok(())
}

/// PostgreSQL ends itself if it cannot write its log, and is then started again, as an operator would when there is space.
async fn full_disk_of_postgres(world: &World, lasts: Duration) -> Result<(), NotInjected> {
    let limit =
        |bytes| block_in_place(|| world.postgres.limit_file_size(bytes)).map_err(NotInjected::Impossible);
    limit(Some(0))?;
    sleep(lasts).await;
    limit(None)?;
    block_in_place(|| {
        // It may be about to end, or about to recover.
        let running = || -> bool {
            if !world.postgres.is_running() {
                world.postgres.restart();
            }
            world.postgres.try_psql("SELECT 1").is_ok()
        };
        wait_until("PostgreSQL to recover from a full disk", running);
    });
    Ok(())
}

async fn disturb(world: &World, what: LinkFault, node: usize, server: Server, lasts: Duration) {
    let condition = match what {
        LinkFault::Cut => Condition::Cut,
        LinkFault::Slow => Condition::Slow(SLOW),
        LinkFault::HalfOpen => Condition::Silent,
    };
    let ends = match server {
        Server::Shard(shard) => world.redis.servers_of(shard).map(Party::Redis).to_vec(),
        Server::Postgres => vec![Party::Postgres],
    };
    for end in &ends {
        world.links.set(Party::Node(node), *end, Some(condition));
    }
    sleep(lasts).await;
    for end in &ends {
        world.links.set(Party::Node(node), *end, None);
    }
}
