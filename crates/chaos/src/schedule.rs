//! Which faults happen when: a function of the seed only, so that a seed reproduces a run.
//!
//! A round is a burst of faults under traffic, followed by a calm phase in which the checkers compare. The kinds come from a
//! shuffled deck, so that each has occurred before any repeats too often.

use std::collections::HashMap;
use std::time::Duration;

use crate::fault::{Fault, Kind, LinkFault, Part, Server};
use crate::seed::Random;
use crate::world::{NODES, SHARDS};

/// How many faults a round has.
const FAULTS_PER_ROUND: usize = 5;

/// The pause between the begins of two faults, in milliseconds: shorter than most faults, so that some overlap.
const PAUSE_MS: std::ops::Range<u64> = 2_000..8_000;

/// Time to recover before the next fault on the same part.
const REST: Duration = Duration::from_secs(2);

/// A fault at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Since the begin of the round.
    pub(crate) at: Duration,
    pub(crate) fault: Fault,
    pub(crate) lasts: Duration,
}

/// The faults of one round, in the order of their begin.
pub(crate) type Round = Vec<Event>;

/// The rounds of a run, without an end.
pub(crate) fn rounds(seed: u64, kinds: &[Kind]) -> impl Iterator<Item = Round> {
    let mut random = Random::new(seed, "schedule");
    let mut deck = Vec::new();
    std::iter::repeat_with(move || round(&mut random, &mut deck, kinds))
}

fn round(random: &mut Random, deck: &mut Vec<Kind>, kinds: &[Kind]) -> Round {
    let mut free_at: HashMap<Part, Duration> = HashMap::new();
    let mut at = Duration::from_secs(1);
    let mut events = Vec::new();
    for _ in 0..FAULTS_PER_ROUND {
        if deck.is_empty() {
            deck.extend(kinds);
            random.shuffle(deck);
        }
        let Some(kind) = deck.pop() else { break };
        let fault = target(kind, random);
        let lasts = random.ms(kind.lasts_ms());
        let begins = free_at.get(&fault.part()).map_or(at, |free| at.max(*free));
        free_at.insert(fault.part(), begins + lasts + REST);
        events.push(Event { at: begins, fault, lasts });
        at += random.ms(PAUSE_MS);
    }
    events.sort_by_key(|event| event.at);
    events
}

/// A fault of this kind on a random target.
fn target(kind: Kind, random: &mut Random) -> Fault {
    let (node, shard) = (random.below(NODES), random.below(SHARDS));
    let server = if random.below(3) == 0 { Server::Postgres } else { Server::Shard(shard) };
    match kind {
        Kind::KillNode => Fault::KillNode(node),
        Kind::FreezeNode => Fault::FreezeNode(node),
        Kind::ClockJump => Fault::ClockJump(if random.below(2) == 0 { 30 } else { -30 }),
        Kind::KillMaster => Fault::KillMaster(shard),
        Kind::FreezeMaster => Fault::FreezeMaster(shard),
        Kind::LossyFailover => Fault::LossyFailover(shard),
        Kind::OlderSnapshot => Fault::OlderSnapshot(shard),
        Kind::FlushAll => Fault::FlushAll(shard),
        Kind::FlushScripts => Fault::FlushScripts(shard),
        Kind::MoveSlots => Fault::MoveSlots(shard),
        Kind::Evict => Fault::Evict(shard),
        Kind::FullDiskOfRedis => Fault::FullDiskOfRedis(shard),
        Kind::KillClients => Fault::KillClients(shard),
        Kind::KillPostgres => Fault::KillPostgres,
        Kind::FreezePostgres => Fault::FreezePostgres,
        Kind::FullDiskOfPostgres => Fault::FullDiskOfPostgres,
        Kind::KillBackends => Fault::KillBackends,
        Kind::CutLink => Fault::Link(LinkFault::Cut, node, server),
        Kind::SlowLink => Fault::Link(LinkFault::Slow, node, server),
        Kind::HalfOpenLink => Fault::Link(LinkFault::HalfOpen, node, server),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::Round;
    use crate::fault::Kind;

    fn rounds(seed: u64, count: usize) -> Vec<Round> {
        super::rounds(seed, &Kind::ALL).take(count).collect()
    }

    fn kinds(rounds: &[Round]) -> Vec<Kind> {
        rounds.iter().flatten().map(|event| event.fault.kind()).collect()
    }

    #[test]
    fn same_seed_gives_the_same_schedule() {
        assert_eq!(rounds(42, 20), rounds(42, 20));
        assert_ne!(rounds(42, 20), rounds(43, 20));
    }

    #[test]
    fn every_kind_occurs() {
        for seed in 0..50 {
            let kinds = kinds(&rounds(seed, 4));
            for kind in Kind::ALL {
                assert!(kinds.contains(&kind), "{kind:?} is missing with the seed {seed}");
            }
        }
    }

    #[test]
    fn faults_on_the_same_part_do_not_overlap() {
        for round in rounds(7, 200) {
            let mut free_at = HashMap::new();
            for event in round {
                let part = event.fault.part();
                assert!(free_at.get(&part).is_none_or(|free| *free <= event.at), "{part:?}");
                free_at.insert(part, event.at + event.lasts);
            }
        }
    }
}
