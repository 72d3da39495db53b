//! Faults of Redis: of its processes, its data and its slots.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hob_testkit::RedisServer;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::Fault;
use super::inject::NotInjected;
use crate::world::links::{Condition, Party};
use crate::world::{Cluster, Redis, World};

/// How long a promotion may take before the harness goes on: the checks wait for a whole deployment anyway.
const PROMOTED_WITHIN: Duration = Duration::from_secs(15);

/// How long a fault waits for the fault before it to heal.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// How many slots with keys move.
const SLOTS_TO_MOVE: usize = 8;

/// The size of the key that makes a snapshot larger than [`DISK_BYTES`], which is larger than the server's log.
const FILLER_BYTES: usize = 2 << 20;
const DISK_BYTES: u64 = 1 << 20;
const FILLER: &str = "chaos:filler";

pub(super) async fn execute(world: &World, fault: Fault, lasts: Duration) -> Result<(), NotInjected> {
    let redis = &world.redis;
    match fault {
        Fault::KillMaster(shard) => {
            let (master, _) = master(redis, shard).await?;
            block_in_place(|| redis.members()[master].server.kill());
            sleep(lasts).await;
            restart(world, master);
            Ok(())
        }
        Fault::FreezeMaster(shard) => {
            let (master, _) = master(redis, shard).await?;
            block_in_place(|| redis.members()[master].server.freeze());
            sleep(lasts).await;
            redis.members()[master].server.unfreeze();
            Ok(())
        }
        Fault::LossyFailover(shard) => lossy_failover(world, shard, lasts).await,
        Fault::OlderSnapshot(shard) => older_snapshot(world, shard, lasts).await,
        Fault::FlushAll(shard) => on_master(redis, shard, |server| server.try_command(&["FLUSHALL"])).await,
        Fault::FlushScripts(shard) => {
            on_master(redis, shard, |server| server.try_command(&["SCRIPT", "FLUSH"])).await
        }
        Fault::KillClients(shard) => {
            let kill = |server: &RedisServer| {
                server.try_command::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
                server.try_command::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            };
            on_master(redis, shard, kill).await
        }
        Fault::MoveSlots(shard) => move_slots(redis, shard).await,
        Fault::Evict(shard) => evict(redis, shard, lasts).await,
        Fault::FullDiskOfRedis(shard) => full_disk(redis, shard, lasts).await,
        _ => unreachable!("not a fault of Redis: {fault}"),
    }
}

/// The numbers of a shard's master and replica. An earlier fault may still be healing.
async fn master(redis: &Redis, shard: usize) -> Result<(usize, usize), NotInjected> {
    let begun = Instant::now();
    loop {
        if let Some(found) = block_in_place(|| redis.master_and_replica(shard)) {
            return Ok(found);
        }
        if begun.elapsed() > READY_WITHIN {
            return Err(NotInjected::NotNow(format!("shard {shard} has no master with a replica")));
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn on_master(
    redis: &Redis,
    shard: usize,
    run: impl FnOnce(&RedisServer) -> redis::RedisResult<()>,
) -> Result<(), NotInjected> {
    let (master, _) = master(redis, shard).await?;
    Ok(block_in_place(|| run(&redis.members()[master].server))?)
}

/// Starts a killed server again. It loads its last snapshot, if it has one.
fn restart(world: &World, number: usize) {
    let server = &world.redis.members()[number].server;
    block_in_place(|| server.restart());
    world.links.register(server.pid(), Party::Redis(number));
}

async fn lossy_failover(world: &World, shard: usize, lasts: Duration) -> Result<(), NotInjected> {
    let (master, replica) = master(&world.redis, shard).await?;
    let ends = (Party::Redis(replica), Party::Redis(master));
    world.links.set(ends.0, ends.1, Some(Condition::Cut));
    // These writes are lost.
    sleep(lasts).await;
    let promoted = block_in_place(|| match &world.redis {
        Redis::Cluster(cluster) => {
            cluster.members[replica].server.try_command::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"])
        }
        Redis::Sentinel(sentinel) => sentinel.fail_over(),
    });
    let begun = Instant::now();
    while promoted.is_ok() && begun.elapsed() < PROMOTED_WITHIN {
        let roles = block_in_place(|| world.redis.master_and_replica(shard));
        if roles.is_some_and(|(master, _)| master == replica) {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    world.links.set(ends.0, ends.1, None);
    Ok(promoted?)
}

/// Saves a snapshot, waits while writes continue, kills the server and lets it start from the snapshot.
async fn older_snapshot(world: &World, shard: usize, lasts: Duration) -> Result<(), NotInjected> {
    let (master, _) = master(&world.redis, shard).await?;
    let server = &world.redis.members()[master].server;
    let file = block_in_place(|| {
        server.try_command::<()>(&["SAVE"])?;
        snapshot_file(server)
    })?;
    sleep(lasts).await;
    block_in_place(|| server.kill());
    restart(world, master);
    let _ = fs::remove_file(file);
    Ok(())
}

fn snapshot_file(server: &RedisServer) -> redis::RedisResult<PathBuf> {
    let (_, folder): (String, String) = server.try_command(&["CONFIG", "GET", "dir"])?;
    Ok(PathBuf::from(folder).join("dump.rdb"))
}

/// Moves slots that have keys to the next shard, one key after the other, while clients use them.
async fn move_slots(redis: &Redis, shard: usize) -> Result<(), NotInjected> {
    let Redis::Cluster(cluster) = redis else {
        return Err(NotInjected::Impossible("only a Cluster has slots".to_owned()));
    };
    let (from, _) = master(redis, shard).await?;
    let (to, _) = master(redis, shard + 1).await?;
    match block_in_place(|| move_some(cluster, from, to))? {
        0 => Err(NotInjected::NotNow(format!("shard {shard} has no keys"))),
        _ => Ok(()),
    }
}

/// Returns how many slots were moved.
fn move_some(cluster: &Cluster, from: usize, to: usize) -> redis::RedisResult<usize> {
    let (from_id, to_id) = (cluster.id(from)?, cluster.id(to)?);
    let (source, target) = (&cluster.members[from].server, &cluster.members[to].server);
    let mut moved = 0;
    for slot in own_slots(source, &from_id)? {
        let slot = slot.to_string();
        if source.try_command::<usize>(&["CLUSTER", "COUNTKEYSINSLOT", &slot])? == 0 {
            continue;
        }
        target.try_command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id])?;
        source.try_command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id])?;
        move_keys(source, target, &slot)?;
        // The new owner first, so that the slot always has one.
        target.try_command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id])?;
        source.try_command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id])?;
        moved += 1;
        if moved == SLOTS_TO_MOVE {
            break;
        }
    }
    Ok(moved)
}

fn move_keys(source: &RedisServer, target: &RedisServer, slot: &str) -> redis::RedisResult<()> {
    let port = target.port().to_string();
    loop {
        let keys: Vec<String> = source.try_command(&["CLUSTER", "GETKEYSINSLOT", slot, "10"])?;
        if keys.is_empty() {
            return Ok(());
        }
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "REPLACE", "KEYS"];
        command.extend(keys.iter().map(String::as_str));
        source.try_command::<()>(&command)?;
    }
}

/// The slots of a server, from the line about itself in `CLUSTER NODES`.
fn own_slots(server: &RedisServer, id: &str) -> redis::RedisResult<Vec<u16>> {
    let nodes: String = server.try_command(&["CLUSTER", "NODES"])?;
    let line = nodes.lines().find(|line| line.starts_with(id)).unwrap_or_default();
    Ok(slots(line))
}

/// The slots in a line of `CLUSTER NODES`: numbers and ranges after the eighth field.
fn slots(line: &str) -> Vec<u16> {
    let ranges = line.split_whitespace().skip(8).filter(|range| !range.starts_with('['));
    let bounds = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u16>().ok()?..=last.parse().ok()?)
    };
    ranges.filter_map(bounds).flatten().collect()
}

/// Sets the memory limit below what is used, so that about a fifth of the data is evicted.
async fn evict(redis: &Redis, shard: usize, lasts: Duration) -> Result<(), NotInjected> {
    let (master, _) = master(redis, shard).await?;
    let server = &redis.members()[master].server;
    let set = |name: &str, value: &str| server.try_command::<()>(&["CONFIG", "SET", name, value]);
    block_in_place(|| {
        let info: redis::InfoDict = server.try_command(&["INFO", "memory"])?;
        let bytes = |field| info.get::<u64>(field).unwrap_or(0);
        let dataset = bytes("used_memory_dataset");
        set("maxmemory-policy", "allkeys-random")?;
        set("maxmemory", &(bytes("used_memory") - dataset / 5).to_string())
    })?;
    sleep(lasts).await;
    block_in_place(|| {
        set("maxmemory", "0")?;
        set("maxmemory-policy", "noeviction")
    })?;
    Ok(())
}

/// Lets snapshots fail as on a full disk. Redis then refuses writes until a snapshot succeeds.
async fn full_disk(redis: &Redis, shard: usize, lasts: Duration) -> Result<(), NotInjected> {
    let (master, _) = master(redis, shard).await?;
    let server = &redis.members()[master].server;
    block_in_place(|| {
        server.try_command::<()>(&["SET", &filler_key(redis, server)?, &"x".repeat(FILLER_BYTES)])?;
        server.limit_file_size(Some(DISK_BYTES)).map_err(NotInjected::Impossible)?;
        server.try_command::<()>(&["CONFIG", "SET", "rdbcompression", "no", "save", "1 1"])?;
        Ok::<(), NotInjected>(())
    })?;
    sleep(lasts).await;
    block_in_place(|| {
        server.limit_file_size(None).map_err(NotInjected::Impossible)?;
        server.try_command::<()>(&["CONFIG", "SET", "save", ""])?;
        server.try_command::<()>(&["DEL", &filler_key(redis, server)?])?;
        Ok(())
    })
}

/// A key in a slot of this server.
fn filler_key(redis: &Redis, server: &RedisServer) -> redis::RedisResult<String> {
    if matches!(redis, Redis::Sentinel(_)) {
        return Ok(FILLER.to_owned());
    }
    let id: String = server.try_command(&["CLUSTER", "MYID"])?;
    let own = own_slots(server, &id)?;
    for number in 0.. {
        let key = format!("{FILLER}:{number}");
        if own.contains(&server.try_command(&["CLUSTER", "KEYSLOT", &key])?) {
            return Ok(key);
        }
    }
    unreachable!("a master has slots")
}

#[cfg(test)]
mod tests {
    use super::slots;

    #[test]
    fn slots_are_read_from_ranges_and_single_numbers() {
        let line =
            "07c3 127.0.0.1:30004@31004 myself,master - 0 1426238317239 4 connected 0-2 7 [42->-67ed] 9-10";
        assert_eq!(slots(line), [0, 1, 2, 7, 9, 10]);
        assert!(slots("07c3 127.0.0.1:30004@31004 slave 67ed 0 0 4 connected").is_empty());
    }
}
