//! Notices when a replica is promoted. On a busy machine, Sentinels and other masters may take a master for dead although no fault was
//! injected.

use std::sync::Weak;
use std::time::{Duration, Instant};

use tokio::task::block_in_place;

use super::World;

const INTERVAL: Duration = Duration::from_millis(500);

/// Records promotions in the log of faults, until the deployment ends.
pub(super) async fn watch(world: Weak<World>) {
    // When each server was seen as a replica for the last time.
    let mut replicas: Vec<Option<Instant>> = Vec::new();
    while let Some(world) = world.upgrade() {
        let members = world.redis.members();
        replicas.resize(members.len(), None);
        for (number, (member, replica)) in members.iter().zip(&mut replicas).enumerate() {
            let asked = Instant::now();
            match block_in_place(|| member.role()).as_deref() {
                Some("slave") => *replica = Some(asked),
                Some("master") => {
                    if let Some(since) = replica.take() {
                        world.faults.promoted(number % world.redis.shards(), since, Instant::now());
                    }
                }
                _ => {}
            }
        }
        drop(world);
        tokio::time::sleep(INTERVAL).await;
    }
}
