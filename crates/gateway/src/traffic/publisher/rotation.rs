//! Makes room for hot endpoints. In this instance, the coldest endpoints count as `other` from now on. In the store, the
//! endpoints with the fewest requests are dropped, and their counts are added to those of `other`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hob_admission::EndpointId;
use hob_store::epoch::{Epoch, MARKER, Outcome};
use hob_store::{Call, FromRedisValue as _, Key, Script, Value, cmd};

use super::flush::{HOUR_MS, endpoint_keys};
use super::{Publisher, checkpoint, read_reply};
use crate::Error;
use crate::keys::{Endpoint, Hour, Keys};
use crate::traffic::foreign::{self, FOREIGN};

static DROP: Script = Script::with(&[MARKER, FOREIGN], include_str!("drop_endpoint.lua"));

pub(super) const ROTATE_EVERY: Duration = Duration::from_secs(5);

/// Endpoints that are dropped from the store at once: a long script blocks all other clients.
const MAX_DROPPED: usize = 50;

/// Hours whose histograms may exist.
const HOURS: u64 = 27;

impl Publisher {
    pub(super) async fn rotate_endpoints(&mut self) -> Result<(), Error> {
        let endpoints = Arc::clone(&self.sources.traffic.endpoints);
        let retired = endpoints.rotate();
        self.names.count_by_name(&retired);
        self.resend.fold_into_other(|endpoint| endpoints.is_current(endpoint));
        let used = self.endpoints_in_use();
        endpoints.retain_retired(|endpoint| used.contains(&endpoint));
        self.make_room().await
    }

    /// The endpoints with counts that are not saved yet.
    fn endpoints_in_use(&self) -> HashSet<EndpointId> {
        let flush = self.pending_flush.as_ref().map(|flush| &flush.counts);
        let checkpoint = self.pending_checkpoint.as_ref().map(|checkpoint| &checkpoint.counts);
        let counts = [&self.unsent, &self.unsaved.counts].into_iter().chain(flush).chain(checkpoint);
        counts.flat_map(|counts| counts.endpoints.keys().copied()).collect()
    }

    /// Drops endpoints from the store that have fewer requests than those which found no room.
    async fn make_room(&mut self) -> Result<(), Error> {
        let unnamed = self.names.hottest_unnamed();
        let Some(epoch) = self.epoch.filter(|_| !unnamed.is_empty()) else { return Ok(()) };
        let coldest = self.coldest_endpoints().await?;
        let room = usize::try_from(Keys::ENDPOINTS_MAX_LEN).unwrap_or(0).saturating_sub(coldest.len());
        let mut named: Vec<EndpointId> = unnamed.iter().take(room).map(|(_, endpoint)| *endpoint).collect();
        let pairs = unnamed.iter().skip(room).zip(&coldest).take(MAX_DROPPED);
        let replaced: Vec<_> = pairs.take_while(|((hot, _), (cold, _))| hot > cold).collect();
        let calls: Vec<Call> =
            replaced.iter().map(|(_, (requests, cold))| self.drop_call(epoch, cold, *requests)).collect();
        let with_room = named.len();
        for (((_, endpoint), _), answer) in replaced.iter().zip(self.sources.store.batch(&calls).await) {
            match Outcome::read(read_reply(answer)?, |reply| Ok(reply.word() == "dropped"))? {
                Outcome::Done(true) => named.push(*endpoint),
                // The next flush restores a lost shard.
                Outcome::Done(false) | Outcome::Lost { .. } => {}
            }
        }
        self.names.count_by_name(&named);
        if named.len() > with_room { self.fold_saved(epoch).await } else { Ok(()) }
    }

    /// The endpoints in the store, those with the fewest requests first.
    async fn coldest_endpoints(&self) -> Result<Vec<(u64, Endpoint)>, Error> {
        let names = self.names_in_store().await?;
        let names: Vec<Endpoint> = names.into_iter().filter_map(|name| Endpoint::new(name).ok()).collect();
        let (keys, shard) = (&self.destination.keys, self.destination.shard);
        let count = |name| Call::from(cmd("GET").arg(keys.requests_by_endpoint(name, shard).as_bytes()));
        let calls: Vec<Call> = names.iter().map(count).collect();
        let mut found = Vec::with_capacity(names.len());
        for (name, answer) in names.into_iter().zip(self.sources.store.batch(&calls).await) {
            let value: Value = foreign::or_default(answer.map(Some))?.unwrap_or(Value::Nil);
            let value = Option::<Vec<u8>>::from_redis_value(value).ok().flatten();
            found.push((value.as_deref().map_or(0, foreign::parse_count), name));
        }
        found.sort_unstable_by(|(one, one_name), (other, other_name)| {
            one.cmp(other).then_with(|| one_name.as_str().cmp(other_name.as_str()))
        });
        Ok(found)
    }

    async fn names_in_store(&self) -> Result<HashSet<String>, Error> {
        let key = self.destination.keys.endpoints(self.destination.shard);
        let names = self.sources.store.run(cmd("SMEMBERS").arg(key.as_bytes())).await;
        Ok(foreign::utf8_names(foreign::or_default(names)?).collect())
    }

    fn drop_call(&self, epoch: Epoch, name: &Endpoint, requests: u64) -> Call {
        let (keys, shard) = (&self.destination.keys, self.destination.shard);
        let now = self.now_ms();
        let this_hour = now - now % HOUR_MS;
        let hours: Vec<Hour> =
            (0..HOURS).filter_map(|hour| Hour::new(this_hour.saturating_sub(hour * HOUR_MS)).ok()).collect();
        let other = self.names.name(EndpointId::OTHER);
        let mut all: Vec<Key> = vec![keys.marker(shard), keys.endpoints(shard)];
        for endpoint in [name, &other] {
            all.extend(endpoint_keys(keys, endpoint, shard));
            all.extend(hours.iter().map(|hour| keys.latency(hour, endpoint, shard)));
        }
        DROP.on(&all).arg(epoch.get()).arg(name.as_str()).arg(requests)
    }

    /// Adds the totals in the database of all endpoints that the store does not have to those of `other`. An endpoint
    /// that another instance adds at this moment is restored as `other` if the store is lost; no sum changes.
    async fn fold_saved(&mut self, epoch: Epoch) -> Result<(), Error> {
        self.save().await?;
        let names = self.names_in_store().await?;
        let shard = self.destination.shard.number();
        checkpoint::fold_endpoints(&self.sources.database, shard, epoch, &names).await?;
        Ok(())
    }
}
