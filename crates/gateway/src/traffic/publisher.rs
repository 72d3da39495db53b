//! Publishes the counts of this instance: ten times a second to the store, every `checkpoint_interval` to the database.
//!
//! A count is unsent, pending (sent without a reply), flushed, or saved in the database. It moves in that order. When
//! the store was lost, all counts that are not saved become unsent again.

pub(crate) mod checkpoint;
mod decisions;
mod endpoint_names;
mod flush;
mod heartbeat;
mod replay;
mod resend;
mod restore;
mod rotation;
mod times;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_admission::Limiter;
use hob_units::unix_ms;

use hob_database::Database;
use hob_schema::Shard;
use hob_store::epoch::{self, Epoch, Outcome};
use hob_store::{Call, Evictions, FromRedisValue, Reply, Store, Value, cmd};

use checkpoint::{Checkpoint, SaveOutcome};
use endpoint_names::EndpointNames;
pub(crate) use flush::{Destination, HOUR_MS};
use flush::{Flush, FlushOutcome, MAX_ENDPOINTS, MAX_ENTRIES};
pub(crate) use heartbeat::gauge_shard;
use heartbeat::{Heartbeat, HeartbeatKind};
use resend::ResendBuffer;
use rotation::ROTATE_EVERY;

use crate::Error;
use crate::database::{TotalKind, Totals};
use crate::metrics;
use crate::traffic::counter::TrafficCounter;
use crate::traffic::counts::{Counts, RequestTotals};
use crate::traffic::foreign;

pub(crate) const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// How often the publisher checks that no shard was lost.
pub(crate) const SHARD_CHECK_EVERY: Duration = Duration::from_secs(2);
/// The shortest time between two restorations because of evicted keys.
const EVICTION_PAUSE: Duration = Duration::from_secs(5);
/// How often an idle instance sends a heartbeat.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);
/// How often the TTL of the instance's own counter is renewed. The counter outlives the instance by a day.
const RENEW_TTL_EVERY: Duration = Duration::from_secs(600);
/// The maximum number of slices of requests in a heartbeat.
const MAX_REQUEST_SLICES: usize = 1200;

/// Where counts come from and go to.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) store: Store,
    pub(crate) database: Database,
    pub(crate) traffic: TrafficCounter,
    pub(crate) limiter: Limiter,
}

/// Publishes the counts of this instance.
#[derive(Debug)]
pub(crate) struct Publisher {
    sources: Sources,
    destination: Destination,
    names: EndpointNames,
    /// The shard's epoch; `None` until it was loaded.
    epoch: Option<Epoch>,
    flush_number: u64,
    unsent: Counts,
    pending_flush: Option<Flush>,
    unsaved: Unsaved,
    resend: ResendBuffer,
    pending_checkpoint: Option<Checkpoint>,
    checkpoint_number: u64,
    request_slices: Vec<(Instant, u64)>,
    connections: u32,
    heartbeat_at: Option<Instant>,
    renewed_at: Option<Instant>,
    rotated_at: Instant,
    evictions: Evictions,
    /// The store's time in its last reply, and when the reply arrived.
    store_time: Option<(Instant, u64)>,
}

#[derive(Debug, Default)]
struct Unsaved {
    counts: Counts,
    /// By the start of the hour.
    hours: BTreeMap<u64, RequestTotals>,
}

impl Publisher {
    pub(crate) fn new(sources: Sources, destination: Destination) -> Self {
        let names = EndpointNames::new(Arc::clone(&sources.traffic.endpoints));
        Self {
            sources,
            destination,
            names,
            epoch: None,
            flush_number: 0,
            unsent: Counts::default(),
            pending_flush: None,
            unsaved: Unsaved::default(),
            resend: ResendBuffer::default(),
            pending_checkpoint: None,
            checkpoint_number: 0,
            request_slices: Vec::new(),
            connections: 0,
            heartbeat_at: None,
            renewed_at: None,
            rotated_at: Instant::now(),
            evictions: Evictions::default(),
            store_time: None,
        }
    }

    /// Sends all counts. Takes more than one batch only if there are very many endpoints.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        if self.epoch.is_none() {
            self.load_epoch().await?;
            self.load_times().await?;
        }
        self.collect();
        loop {
            self.send_batch().await?;
            if self.unsent.is_empty() || self.pending_flush.is_some() {
                break;
            }
        }
        if self.rotated_at.elapsed() >= ROTATE_EVERY {
            self.rotated_at = Instant::now();
            self.rotate_endpoints().await?;
        }
        Ok(())
    }

    /// Saves the flushed counts in the database.
    pub(crate) async fn save(&mut self) -> Result<(), Error> {
        let Some(epoch) = self.epoch else { return Ok(()) };
        if self.pending_checkpoint.is_none() {
            self.pending_checkpoint = self.next_checkpoint();
        }
        let Some(checkpoint) = &self.pending_checkpoint else { return Ok(()) };
        match checkpoint::save(&self.sources.database, &self.destination, epoch, checkpoint).await? {
            SaveOutcome::Saved => self.pending_checkpoint = None,
            SaveOutcome::Superseded => self.resend_unsaved().await?,
        }
        Ok(())
    }

    /// Restores shards that the store has lost, including those that no live instance writes to. A store that has evicted keys
    /// may have lost some counters of each shard.
    pub(crate) async fn restore_lost_shards(&mut self) -> Result<(), Error> {
        let has_evicted = self.evictions.found(&self.sources.store, EVICTION_PAUSE).await?;
        if has_evicted {
            tracing::warn!("Redis evicted keys, restoring traffic totals");
        }
        let shards: Vec<Shard> = self.destination.keys.space().shards().collect();
        let epoch_of = |shard: &Shard| {
            Call::from(cmd("HGET").arg(self.destination.keys.marker(*shard).as_bytes()).arg("epoch"))
        };
        let calls: Vec<Call> = shards.iter().map(epoch_of).collect();
        for (shard, answer) in shards.into_iter().zip(self.sources.store.batch(&calls).await) {
            // An unreadable marker counts as missing.
            let found = foreign::or_default(answer.map(Some))?;
            let mut found = found.and_then(|epoch| Option::<u32>::from_redis_value(epoch).ok().flatten());
            if has_evicted && let Some(epoch) = found.take_if(|epoch| self.is_own_epoch(shard, *epoch)) {
                let discard = epoch::discard(&self.destination.keys.marker(shard), Epoch::new(epoch)?);
                self.sources.store.run::<Reply>(discard).await?;
            }
            if shard != self.destination.shard {
                let database = &self.sources.database;
                let seen =
                    if found.is_some() { 0 } else { checkpoint::epoch(database, shard.number()).await? };
                if seen > 0 {
                    self.restore(shard).await?;
                }
            } else if self.epoch.is_some_and(|epoch| epoch.get() > 0 && Some(epoch.get()) != found) {
                self.recover_shard().await?;
            }
        }
        if has_evicted {
            self.evictions.handled();
        }
        Ok(())
    }

    /// Whether a shard has not been restored since this instance last wrote to it. Other shards belong to no instance.
    fn is_own_epoch(&self, shard: Shard, found: u32) -> bool {
        shard != self.destination.shard || self.epoch.is_some_and(|epoch| epoch.get() == found)
    }

    /// Sends and saves everything, and removes the instance.
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        self.flush().await?;
        self.save().await?;
        // The first save may have completed an earlier checkpoint.
        self.save().await?;
        self.save_times().await?;
        heartbeat::leave(&self.sources.store, &self.destination.keys, &self.destination.instance).await?;
        Ok(())
    }

    fn collect(&mut self) {
        let mut counts = self.sources.traffic.meter.take();
        if counts.is_empty() {
            return;
        }
        metrics::record_counts(&counts);
        self.sources.traffic.endpoints.heat(&counts);
        self.request_slices.push((Instant::now(), counts.requests()));
        if self.request_slices.len() > MAX_REQUEST_SLICES {
            self.request_slices.remove(0);
        }
        self.names.fold_unnamed(&mut counts);
        self.unsent.merge(counts);
    }

    async fn send_batch(&mut self) -> Result<(), Error> {
        let mut calls = Vec::new();
        let has_heartbeat = self.heartbeat(&mut calls);
        let has_flush = self.next_flush(&mut calls);
        let decisions = self.decisions(&mut calls);
        self.renew_instance_ttl(&mut calls);
        if calls.is_empty() {
            return Ok(());
        }
        let mut answers = self.sources.store.batch(&calls).await.into_iter();
        if has_heartbeat && let Some(answer) = answers.next() {
            self.store_time = Some((Instant::now(), heartbeat::read(read_reply(answer)?)?));
            self.heartbeat_at = Some(Instant::now());
        }
        if has_flush && let Some(answer) = answers.next() {
            self.handle_flush_reply(read_reply(answer)?).await?;
        }
        for answer in answers.by_ref().take(decisions) {
            foreign::report_overwritten(read_reply(answer)?)?;
        }
        answers.try_for_each(|answer| answer.map(drop).map_err(Error::from))
    }

    /// Adds a heartbeat if there is something to report, or it is due.
    fn heartbeat(&mut self, calls: &mut Vec<Call>) -> bool {
        let (connections, peak) = self.sources.traffic.meter.connections();
        metrics::set_connections(connections);
        let due = self.heartbeat_at.is_none_or(|at| at.elapsed() >= HEARTBEAT_EVERY);
        if !due
            && self.request_slices.is_empty()
            && connections == self.connections
            && peak <= self.connections
        {
            return false;
        }
        let request_slices = std::mem::take(&mut self.request_slices);
        let kind = if self.heartbeat_at.is_none() { HeartbeatKind::First } else { HeartbeatKind::Next };
        let heartbeat = Heartbeat {
            instance: &self.destination.instance,
            kind,
            connections,
            peak,
            seen: &request_slices,
        };
        calls.push(heartbeat.call(&self.sources.store, &self.destination.keys));
        self.connections = connections;
        true
    }

    fn next_flush(&mut self, calls: &mut Vec<Call>) -> bool {
        let Some(epoch) = self.epoch else { return false };
        if self.pending_flush.is_none() && !self.unsent.is_empty() {
            self.flush_number += 1;
            self.pending_flush =
                Some(Flush::new(self.flush_number, self.unsent.take_some(MAX_ENDPOINTS, MAX_ENTRIES)));
        }
        let Some(flush) = &self.pending_flush else { return false };
        let context = (&self.names, &*self.sources.traffic.meter);
        let time = (self.now_ms(), self.sources.store.clock().us());
        calls.push(flush.call(&self.destination, epoch, (time.0, &time.1), context));
        true
    }

    /// Adds the decisions of each rule; returns the number of calls.
    fn decisions(&self, calls: &mut Vec<Call>) -> usize {
        let before = calls.len();
        let rules = self.sources.limiter.rules();
        calls.extend(
            rules
                .iter()
                .filter_map(|active| decisions::call(active, &self.destination.keys, self.destination.shard)),
        );
        calls.len() - before
    }

    fn renew_instance_ttl(&mut self, calls: &mut Vec<Call>) {
        if self.renewed_at.is_some_and(|at| at.elapsed() < RENEW_TTL_EVERY) {
            return;
        }
        self.renewed_at = Some(Instant::now());
        let key =
            self.destination.keys.requests_by_instance(&self.destination.instance, self.destination.shard);
        calls.push(cmd("EXPIRE").arg(key.as_bytes()).arg(86_400).into());
    }

    async fn handle_flush_reply(&mut self, reply: Reply) -> Result<(), Error> {
        let Some(flush) = self.pending_flush.take() else { return Ok(()) };
        let answer = match flush.read(reply) {
            Ok(answer) => answer,
            Err(error) => {
                self.pending_flush = Some(flush);
                return Err(error.into());
            }
        };
        match answer {
            Outcome::Done(FlushOutcome::Accepted { now_ms, hour_ms, as_other }) => {
                self.store_time = Some((Instant::now(), now_ms));
                self.names.count_as_other(&as_other);
                let mut counts = flush.counts;
                self.names.fold_unnamed(&mut counts);
                self.names.fold_unnamed(&mut self.unsent);
                self.resend.record(&counts, now_ms);
                self.unsaved.hours.entry(hour_ms).or_default().merge(&counts.sum());
                self.unsaved.counts.merge(counts.totals_only());
                Ok(())
            }
            Outcome::Done(FlushOutcome::WrongHour { now_ms }) => {
                self.store_time = Some((Instant::now(), now_ms));
                self.pending_flush = Some(flush);
                Ok(())
            }
            Outcome::Done(FlushOutcome::Foreign) | Outcome::Lost { .. } => {
                self.pending_flush = Some(flush);
                self.recover_shard().await
            }
        }
    }

    /// Handles counters that are gone or of another epoch.
    async fn recover_shard(&mut self) -> Result<(), Error> {
        // A pending checkpoint must be saved under the epoch in which it was flushed.
        if self.pending_checkpoint.is_some() {
            self.save().await?;
        }
        self.restore(self.destination.shard).await?;
        self.resend_unsaved().await
    }

    async fn restore(&self, shard: Shard) -> Result<(), Error> {
        let Sources { store, database, .. } = &self.sources;
        restore::restore(store, database, &self.destination.keys, shard).await
    }

    /// Joins the shard's current epoch: all counts that are not in the database are sent again.
    async fn resend_unsaved(&mut self) -> Result<(), Error> {
        self.load_epoch().await?;
        let unsaved = std::mem::take(&mut self.unsaved);
        self.unsent.merge(unsaved.counts);
        self.unsent.merge(self.resend.take());
        if let Some(flush) = self.pending_flush.take() {
            self.unsent.merge(flush.counts);
        }
        if let Some(checkpoint) = self.pending_checkpoint.take() {
            // The checkpoint was refused, so its counts are nowhere else.
            self.unsent.merge(checkpoint.counts);
        }
        Ok(())
    }

    async fn load_epoch(&mut self) -> Result<(), Error> {
        let epoch = checkpoint::epoch(&self.sources.database, self.destination.shard.number()).await?;
        self.epoch = Some(Epoch::new(epoch)?);
        Ok(())
    }

    /// Sends the response times of the last run again, if the store is the embedded engine, which starts empty.
    async fn load_times(&mut self) -> Result<(), Error> {
        let Sources { store, database, traffic: TrafficCounter { meter, endpoints }, .. } = &self.sources;
        if store.is_embedded() {
            let shard = self.destination.shard.number();
            self.unsent.merge(times::load(database, shard, endpoints, meter).await?);
        }
        Ok(())
    }

    /// Saves the response times for the next run, if the store is the embedded engine, which ends with this process.
    async fn save_times(&mut self) -> Result<(), Error> {
        let Sources { store, database, traffic: TrafficCounter { meter, endpoints }, .. } = &self.sources;
        if store.is_embedded() {
            let (shard, counts) = (self.destination.shard.number(), self.resend.take());
            times::save(database, shard, endpoints, meter, &counts).await?;
        }
        Ok(())
    }

    fn next_checkpoint(&mut self) -> Option<Checkpoint> {
        let Unsaved { counts, hours } = std::mem::take(&mut self.unsaved);
        if counts.is_empty() {
            return None;
        }
        let mut totals = Totals::new();
        for (endpoint, counted) in &counts.endpoints {
            checkpoint::add_totals(&mut totals, &self.names.name(*endpoint), &counted.totals);
        }
        totals.insert((TotalKind::Instance, self.destination.instance.to_string()), counts.requests());
        for (hour, of_hour) in &hours {
            totals.insert((TotalKind::Hour, hour.to_string()), of_hour.requests);
        }
        self.checkpoint_number += 1;
        Some(Checkpoint { number: self.checkpoint_number, totals, hours, counts })
    }

    /// The store's time, estimated from its last reply.
    fn now_ms(&self) -> u64 {
        match self.store_time {
            Some((at, now_ms)) => now_ms + at.elapsed().as_millis() as u64,
            None => unix_ms(),
        }
    }
}

fn read_reply(answer: hob_store::Result<Value>) -> Result<Reply, Error> {
    Reply::from_redis_value(answer?).map_err(bad_reply)
}

#[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
fn bad_reply(error: impl ToString) -> Error {
    Error::Store(hob_store::Error::Reply(error.to_string()))
}
