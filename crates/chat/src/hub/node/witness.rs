//! How a node finds out that Redis has lost data. Each process leaves its last look in every shard, and finds it missing or
//! older than it should be. A server that was restarted or promoted may have gone back to older data without such a sign,
//! because the process did not look in the lost time. So the process also remembers the servers on which the shards are.

use std::time::{Duration, Instant};

use hob_schema::Shard;
use hob_store::epoch::SERVER;
use hob_store::repair::{self, KeyType};
use hob_store::{CLOCK, FromRedisValue as _, Reply, Script, Text};

use super::Node;
use crate::Error;

static WITNESS: Script = Script::with(&[SERVER, CLOCK], include_str!("witness.lua"));

/// When the look of a process that ended is deleted.
const KEEP_LOOKS: Duration = Duration::from_secs(3_600);
/// After this many leases every node has noticed a data loss, or is dead and swept.
const LOSS_MEMORY_LEASES: u32 = 10;

/// A look at a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    score: u64,
    /// The history of the shard's server: see [`hob_store::epoch`].
    server: String,
}

/// What looking at all shards has found.
#[derive(Debug, Default)]
pub(crate) struct Detection {
    /// A part of Redis has lost data since the last look at it: all of it, or the changes of the last seconds.
    pub(crate) lost: bool,
    /// Why a shard was not looked at. It may have lost data, too.
    pub(crate) failed: Option<Error>,
}

impl Node {
    /// Looks whether Redis has lost data. Does not look again if another task has begun to look at all shards after `since`.
    pub(crate) async fn detect_data_loss(&self, since: Instant) -> Detection {
        let _one_at_a_time = self.looking.lock().await;
        if self.state.lock().looked.is_some_and(|looked| looked > since) {
            return Detection::default();
        }
        let began = Instant::now();
        let shards: Vec<Shard> = self.keys.space().shards().collect();
        let before = self.state.lock().looks.clone();
        let look = |(shard, look): (&Shard, &Option<Look>)| {
            let call = WITNESS.on(&[self.keys.witness(*shard)]).arg(&self.process);
            let call = call.arg(look.as_ref().map(|look| look.score.to_string()).unwrap_or_default());
            call.arg(KEEP_LOOKS.as_millis() as u64).arg(self.store.clock().us())
        };
        let calls: Vec<_> = shards.iter().zip(&before).map(look).collect();
        let answers = self.store.batch(&calls).await;
        let (mut now, mut found) = (before.clone(), Detection::default());
        for ((shard, answer), look) in shards.into_iter().zip(answers).zip(&mut now) {
            match self.read_look(shard, answer).await {
                Ok(Some((seen, lost))) => {
                    *look = Some(seen);
                    found.lost |= lost;
                }
                Ok(None) => {
                    *look = None;
                    found.lost = true;
                    let reason = "another client has replaced the key of the looks at a shard";
                    found.failed = Some(hob_store::Error::Reply(reason.to_owned()).into());
                }
                Err(error) => found.failed = Some(error),
            }
        }
        found.lost |= servers_changed(&before, &now);
        let mut state = self.state.lock();
        state.looks = now;
        if found.failed.is_none() {
            state.looked = Some(began);
        }
        if found.lost {
            state.lost = Some(Instant::now());
        }
        found
    }

    /// Reads the answer of a shard: the look, and whether the previous one is lost. `None` if another client had changed the
    /// key.
    async fn read_look(
        &self,
        shard: Shard,
        answer: hob_store::Result<hob_store::Value>,
    ) -> Result<Option<(Look, bool)>, Error> {
        let key = self.keys.witness(shard);
        let Some(value) = repair::or_none(&self.store, answer, (key, KeyType::Zset)).await? else {
            return Ok(None);
        };
        let reply = Reply::from_redis_value(value);
        let mut reply = reply.map_err(|error| hob_store::Error::Reply(error.to_string()))?;
        let lost = reply.word() == "lost";
        let (score, Text(server)) = (reply.next()?, reply.next()?);
        Ok(Some((Look { score, server }, lost)))
    }

    /// Records that Redis has lost data, which another sign than a look has shown.
    pub(crate) fn note_loss(&self) {
        self.state.lock().lost = Some(Instant::now());
    }

    /// Whether other nodes may not have restored their sockets yet after a data loss.
    pub(crate) fn is_recovering(&self) -> bool {
        self.state.lock().lost.is_some_and(|lost| lost.elapsed() < self.lease / 2)
    }

    /// Whether a node that dies now may not have restored its index of users after a data loss.
    pub(crate) fn lost_data_recently(&self) -> bool {
        self.state.lock().lost.is_some_and(|lost| lost.elapsed() < self.lease * LOSS_MEMORY_LEASES)
    }
}

/// Whether a shard that was seen before is now on a server that had no shard, or a server has no shard any more: it was
/// restarted, or another server was promoted, and writes may be lost. A shard that has moved between two servers that were
/// known before has lost nothing.
fn servers_changed(before: &[Option<Look>], now: &[Option<Look>]) -> bool {
    // An hour after its last replica has gone, a server forgets that it was promoted, but it is the same process.
    let is_same = |old: &Look, new: &Look| old.server.starts_with(&new.server);
    let is_new = |look: &Look| !before.iter().flatten().any(|old| is_same(old, look));
    let is_gone = |look: &Look| !now.iter().flatten().any(|new| is_same(look, new));
    let seen_before = before.iter().zip(now).filter(|(before, _)| before.is_some());
    seen_before.filter_map(|(_, now)| now.as_ref()).any(is_new) || before.iter().flatten().any(is_gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(servers: &[&str]) -> Vec<Option<Look>> {
        let look = |server: &&str| Look { score: 1, server: (*server).to_owned() };
        servers.iter().map(|server| (*server != "?").then(|| look(server))).collect()
    }

    #[test]
    fn restarted_and_promoted_servers_are_noticed() {
        let changed = |before: &[&str], now: &[&str]| servers_changed(&looks(before), &looks(now));
        assert!(!changed(&["?", "?"], &["a", "b"]), "the first look");
        assert!(!changed(&["a", "?"], &["a", "b"]), "the first look at one of them");
        assert!(!changed(&["a", "b"], &["a", "b"]));
        assert!(changed(&["a", "b"], &["a", "c"]), "restarted");
        assert!(changed(&["a", "b"], &["a", "b/x:7"]), "promoted");
        assert!(!changed(&["a", "b/x:7"], &["a", "b"]), "it forgets the promotion");
        assert!(!changed(&["a", "a", "b"], &["a", "b", "b"]), "a slot has moved");
        assert!(changed(&["a", "b"], &["b", "b"]), "a server is gone");
        assert!(!changed(&["", ""], &["", ""]), "nothing is known of the embedded engine");
    }
}
