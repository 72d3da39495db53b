//! How a node finds out that Redis has lost data: each process leaves its last look in every shard, and finds it missing or
//! older than it should be.

use std::time::{Duration, Instant};

use hob_schema::Shard;
use hob_store::repair::{self, KeyType};
use hob_store::{CLOCK, FromRedisValue as _, Reply, Script};

use super::Node;
use crate::Error;

static WITNESS: Script = Script::with(&[CLOCK], include_str!("witness.lua"));

/// When the look of a process that ended is deleted.
const KEEP_LOOKS: Duration = Duration::from_secs(3_600);
/// After this many leases every node has noticed a data loss, or is dead and swept.
const LOSS_MEMORY_LEASES: u32 = 10;

/// What a look at a shard found.
struct Look {
    score: u64,
    /// The previous look is missing or older.
    lost: bool,
}

impl Node {
    /// Whether a part of Redis has lost data since the last look at it: all of it, or the changes of the last seconds.
    /// Does not look again if another task has begun to look after `since`.
    pub(crate) async fn detect_data_loss(&self, since: Instant) -> Result<bool, Error> {
        let _one_at_a_time = self.looking.lock().await;
        if self.state.lock().looked.is_some_and(|looked| looked > since) {
            return Ok(false);
        }
        let began = Instant::now();
        let shards: Vec<Shard> = self.keys.space().shards().collect();
        let looks = self.state.lock().looks.clone();
        let look = |(shard, look): (&Shard, &Option<u64>)| {
            let call = WITNESS.on(&[self.keys.witness(*shard)]).arg(&self.process);
            let call = call.arg(look.map(|look| look.to_string()).unwrap_or_default());
            call.arg(KEEP_LOOKS.as_millis() as u64).arg(self.store.clock().us())
        };
        let calls: Vec<_> = shards.iter().zip(&looks).map(look).collect();
        let answers = self.store.batch(&calls).await;
        let mut outcome = Ok(false);
        for (at, answer) in answers.into_iter().enumerate() {
            match self.read_look(shards[at], answer).await {
                Ok(None) => {}
                Ok(Some(look)) => {
                    self.state.lock().looks[at] = Some(look.score);
                    // A shard that is unavailable does not hide that another has lost data.
                    if look.lost {
                        outcome = Ok(true);
                    }
                }
                Err(error) if matches!(outcome, Ok(false)) => outcome = Err(error),
                Err(_) => {}
            }
        }
        let mut state = self.state.lock();
        state.looked = Some(began);
        if matches!(outcome, Ok(true)) {
            state.lost = Some(Instant::now());
        }
        outcome
    }

    /// Reads the answer of a shard. `None` if another client had changed its key: the next look finds that this one is missing.
    async fn read_look(
        &self,
        shard: Shard,
        answer: hob_store::Result<hob_store::Value>,
    ) -> Result<Option<Look>, Error> {
        let key = self.keys.witness(shard);
        let Some(value) = repair::or_none(&self.store, answer, (key, KeyType::Zset)).await? else {
            return Ok(None);
        };
        let reply = Reply::from_redis_value(value);
        let mut reply = reply.map_err(|error| hob_store::Error::Reply(error.to_string()))?;
        let lost = reply.word() == "lost";
        Ok(Some(Look { score: reply.next()?, lost }))
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
