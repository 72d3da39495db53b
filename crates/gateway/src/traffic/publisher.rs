//! Publishes what this instance counts: ten times a second to the store, every few seconds to the database.
//!
//! A count is in one of four places: not sent yet, sent but not answered, flushed but not saved in the database, saved.
//! It moves forwards only, and after a loss of the store what is not saved moves back to the first.

mod beat;
pub(crate) mod checkpoint;
mod flush;
mod kept;
mod limits;
mod names;
mod restore;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hob_database::Database;
use hob_schema::Shard;
use hob_store::epoch::{Epoch, Outcome};
use hob_store::{Call, FromRedisValue, Reply, Store, Value, cmd};

pub(crate) use beat::gauges;
use beat::{Beat, Turn};
use checkpoint::{Checkpoint, SaveOutcome};
use flush::{Flush, Flushed, MOST_BUCKETS, MOST_ENDPOINTS};
pub(crate) use flush::{HOUR_MS, Place};
use kept::Kept;
use names::EndpointNames;

use crate::Error;
use crate::admission::endpoint::Endpoints;
use crate::database::{TotalKind, Totals};
use crate::limiter::Limiter;
use crate::metrics;
use crate::traffic::counts::Tally;
use crate::traffic::foreign;
use crate::traffic::meter::Meter;

/// Between two flushes.
pub(crate) const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// Between two looks at whether the totals are there.
pub(crate) const HEAL_EVERY: Duration = Duration::from_secs(2);
/// An idle instance says that it lives.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// An instance's own counter lives a day longer than the instance.
const RENEW_EVERY: Duration = Duration::from_secs(600);
/// Slices of the recent past that a beat carries at most.
const MOST_SEEN: usize = 1200;

/// Where counts come from and go to.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) store: Store,
    pub(crate) database: Database,
    pub(crate) meter: Arc<Meter>,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) limiter: Limiter,
}

/// The counts of this instance on their way.
#[derive(Debug)]
pub(crate) struct Publisher {
    sources: Sources,
    place: Place,
    names: EndpointNames,
    /// Of the shard; `None` until it is known.
    epoch: Option<Epoch>,
    number: u64,
    unsent: Tally,
    sent: Option<Flush>,
    unsaved: Unsaved,
    kept: Kept,
    saving: Option<Checkpoint>,
    saves: u64,
    seen: Vec<(Instant, u64)>,
    connections: u32,
    beaten_at: Option<Instant>,
    renewed_at: Option<Instant>,
    /// What the store's clock said, and when.
    store_time: Option<(Instant, u64)>,
}

#[derive(Debug, Default)]
struct Unsaved {
    tally: Tally,
    hours: BTreeMap<u64, u64>,
}

impl Publisher {
    pub(crate) fn new(sources: Sources, place: Place) -> Self {
        let names = EndpointNames::new(Arc::clone(&sources.endpoints));
        Self {
            sources,
            place,
            names,
            epoch: None,
            number: 0,
            unsent: Tally::default(),
            sent: None,
            unsaved: Unsaved::default(),
            kept: Kept::default(),
            saving: None,
            saves: 0,
            seen: Vec::new(),
            connections: 0,
            beaten_at: None,
            renewed_at: None,
            store_time: None,
        }
    }

    /// Sends what there is to send, in one batch; more than one only if there are very many endpoints.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        if self.epoch.is_none() {
            self.find_epoch().await?;
        }
        self.collect();
        loop {
            self.round().await?;
            if self.unsent.is_empty() || self.sent.is_some() {
                return Ok(());
            }
        }
    }

    /// Writes to the database what was flushed.
    pub(crate) async fn save(&mut self) -> Result<(), Error> {
        let Some(epoch) = self.epoch else { return Ok(()) };
        if self.saving.is_none() {
            self.saving = self.next_checkpoint();
        }
        let Some(checkpoint) = &self.saving else { return Ok(()) };
        match checkpoint::save(&self.sources.database, &self.place, epoch, checkpoint).await? {
            SaveOutcome::Saved => self.saving = None,
            SaveOutcome::Superseded => self.send_again().await?,
        }
        Ok(())
    }

    /// Looks whether every shard is there, also those that no live instance writes to, and puts back what is not.
    pub(crate) async fn heal(&mut self) -> Result<(), Error> {
        let shards: Vec<Shard> = self.place.keys.space().shards().collect();
        let epoch_of = |shard: &Shard| {
            Call::from(cmd("HGET").arg(self.place.keys.marker(*shard).as_bytes()).arg("epoch"))
        };
        let calls: Vec<Call> = shards.iter().map(epoch_of).collect();
        for (shard, answer) in shards.into_iter().zip(self.sources.store.batch(&calls).await) {
            // A marker that cannot be read counts as missing.
            let found = foreign::or_nothing(answer.map(Some))?;
            let found = found.and_then(|epoch| Option::<u32>::from_redis_value(epoch).ok().flatten());
            if shard != self.place.shard {
                let database = &self.sources.database;
                let seen =
                    if found.is_some() { 0 } else { checkpoint::epoch(database, shard.number()).await? };
                if seen > 0 {
                    self.restore(shard, seen, 0).await?;
                }
            } else if self.epoch.is_some_and(|epoch| epoch.get() > 0 && Some(epoch.get()) != found) {
                self.recover(found.unwrap_or(0)).await?;
            }
        }
        Ok(())
    }

    /// Sends and saves everything, and takes the instance out.
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        self.flush().await?;
        self.save().await?;
        // What a save that was still open had left.
        self.save().await?;
        beat::leave(&self.sources.store, &self.place.keys, &self.place.instance).await?;
        Ok(())
    }

    fn collect(&mut self) {
        let mut tally = self.sources.meter.take();
        if tally.is_empty() {
            return;
        }
        metrics::counted(&tally);
        self.seen.push((Instant::now(), tally.requests()));
        if self.seen.len() > MOST_SEEN {
            self.seen.remove(0);
        }
        self.names.settle(&mut tally);
        self.unsent.merge(tally);
    }

    async fn round(&mut self) -> Result<(), Error> {
        let mut calls = Vec::new();
        let beats = self.beat(&mut calls);
        let flushes = self.next_flush(&mut calls);
        let limits = self.limits(&mut calls);
        self.renew(&mut calls);
        if calls.is_empty() {
            return Ok(());
        }
        let mut answers = self.sources.store.batch(&calls).await.into_iter();
        if beats && let Some(answer) = answers.next() {
            self.store_time = Some((Instant::now(), beat::read(read(answer)?)?));
            self.beaten_at = Some(Instant::now());
        }
        if flushes && let Some(answer) = answers.next() {
            self.flushed(read(answer)?).await?;
        }
        for answer in answers.by_ref().take(limits) {
            foreign::warn(read(answer)?)?;
        }
        answers.try_for_each(|answer| answer.map(drop).map_err(Error::from))
    }

    /// Adds a beat when there is something to say, or it is time.
    fn beat(&mut self, calls: &mut Vec<Call>) -> bool {
        let (connections, peak) = self.sources.meter.connections();
        metrics::connections(connections);
        let due = self.beaten_at.is_none_or(|at| at.elapsed() >= BEAT_EVERY);
        if !due && self.seen.is_empty() && connections == self.connections && peak <= self.connections {
            return false;
        }
        let seen = std::mem::take(&mut self.seen);
        let turn = if self.beaten_at.is_none() { Turn::First } else { Turn::Again };
        let beat = Beat { instance: &self.place.instance, turn, connections, peak, seen: &seen };
        calls.push(beat.call(&self.sources.store, &self.place.keys));
        self.connections = connections;
        true
    }

    fn next_flush(&mut self, calls: &mut Vec<Call>) -> bool {
        let Some(epoch) = self.epoch else { return false };
        if self.sent.is_none() && !self.unsent.is_empty() {
            self.number += 1;
            self.sent = Some(Flush::new(self.number, self.unsent.take_some(MOST_ENDPOINTS, MOST_BUCKETS)));
        }
        let Some(flush) = &self.sent else { return false };
        let how = (&self.names, &*self.sources.meter);
        calls.push(flush.call(&self.sources.store, &self.place, epoch, self.now_ms(), how));
        true
    }

    /// Adds what each rule decided; answers with how many calls that takes.
    fn limits(&self, calls: &mut Vec<Call>) -> usize {
        let before = calls.len();
        let rules = self.sources.limiter.rules();
        calls.extend(rules.iter().filter_map(|live| limits::call(live, &self.place.keys, self.place.shard)));
        calls.len() - before
    }

    fn renew(&mut self, calls: &mut Vec<Call>) {
        if self.renewed_at.is_some_and(|at| at.elapsed() < RENEW_EVERY) {
            return;
        }
        self.renewed_at = Some(Instant::now());
        let key = self.place.keys.requests_by_instance(&self.place.instance, self.place.shard);
        calls.push(cmd("EXPIRE").arg(key.as_bytes()).arg(86_400).into());
    }

    async fn flushed(&mut self, reply: Reply) -> Result<(), Error> {
        let Some(flush) = self.sent.take() else { return Ok(()) };
        let answer = match flush.read(reply) {
            Ok(answer) => answer,
            Err(error) => {
                self.sent = Some(flush);
                return Err(error.into());
            }
        };
        match answer {
            Outcome::Done(Flushed::Counted { now_ms, hour_ms, as_other }) => {
                self.store_time = Some((Instant::now(), now_ms));
                self.names.count_as_other(&as_other);
                let mut tally = flush.tally;
                self.names.settle(&mut tally);
                self.names.settle(&mut self.unsent);
                self.kept.keep(&tally, now_ms);
                *self.unsaved.hours.entry(hour_ms).or_default() += tally.requests();
                self.unsaved.tally.merge(tally.totals_only());
                Ok(())
            }
            Outcome::Done(Flushed::Stray { now_ms }) => {
                self.store_time = Some((Instant::now(), now_ms));
                self.sent = Some(flush);
                Ok(())
            }
            Outcome::Done(Flushed::Foreign) => {
                self.sent = Some(flush);
                self.recover(0).await
            }
            Outcome::Lost { found } => {
                self.sent = Some(flush);
                self.recover(found.map_or(0, Epoch::get)).await
            }
        }
    }

    /// The shard's counters are gone, or of another epoch.
    async fn recover(&mut self, found: u32) -> Result<(), Error> {
        // What is being saved must be settled under the epoch that it was flushed in.
        if self.saving.is_some() {
            self.save().await?;
        }
        let shard = self.place.shard;
        let seen = checkpoint::epoch(&self.sources.database, shard.number()).await?;
        // An epoch that is newer than mine was new by somebody who puts the totals back. Should nothing come of it,
        // the next flush is refused again, in that epoch.
        if seen <= self.epoch.map_or(0, Epoch::get) {
            self.restore(shard, seen, found).await?;
        }
        self.send_again().await
    }

    /// Puts a shard's totals back in a new epoch, unless somebody else has new one.
    async fn restore(&self, shard: Shard, seen: u32, found: u32) -> Result<(), Error> {
        let Sources { store, database, .. } = &self.sources;
        if let Some(new) = checkpoint::begin_epoch(database, shard.number(), seen, found).await? {
            tracing::info!(shard = shard.number(), epoch = new.epoch, "restoring totals from the database");
            restore::restore(store, &self.place.keys, shard, &new).await?;
        }
        Ok(())
    }

    /// Takes part in the shard's present epoch: all that is not in the database is sent again.
    async fn send_again(&mut self) -> Result<(), Error> {
        self.find_epoch().await?;
        let unsaved = std::mem::take(&mut self.unsaved);
        self.unsent.merge(unsaved.tally);
        self.unsent.merge(self.kept.take());
        if let Some(flush) = self.sent.take() {
            self.unsent.merge(flush.tally);
        }
        if let Some(checkpoint) = self.saving.take() {
            // It was refused, so its counts are nowhere else.
            self.unsent.merge(checkpoint.tally);
        }
        Ok(())
    }

    async fn find_epoch(&mut self) -> Result<(), Error> {
        let epoch = checkpoint::epoch(&self.sources.database, self.place.shard.number()).await?;
        self.epoch = Some(Epoch::new(epoch)?);
        Ok(())
    }

    fn next_checkpoint(&mut self) -> Option<Checkpoint> {
        let Unsaved { tally, hours } = std::mem::take(&mut self.unsaved);
        if tally.is_empty() {
            return None;
        }
        let mut totals = Totals::new();
        for (endpoint, counted) in &tally.endpoints {
            checkpoint::add_totals(&mut totals, &self.names.name(*endpoint), &counted.totals);
        }
        totals.insert((TotalKind::Instance, self.place.instance.to_string()), tally.requests());
        for (hour, count) in hours {
            totals.insert((TotalKind::Hour, hour.to_string()), count);
        }
        self.saves += 1;
        Some(Checkpoint { number: self.saves, totals, tally })
    }

    /// What the store's clock says, as far as is known.
    fn now_ms(&self) -> u64 {
        match self.store_time {
            Some((at, now_ms)) => now_ms + at.elapsed().as_millis() as u64,
            None => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64),
        }
    }
}

fn read(answer: hob_store::Result<Value>) -> Result<Reply, Error> {
    Reply::from_redis_value(answer?).map_err(unreadable)
}

#[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
fn unreadable(error: impl ToString) -> Error {
    Error::Store(hob_store::Error::Reply(error.to_string()))
}
