//! The relay: numbers events in order and publishes them. One relay is active at a time among all nodes.
//!
//! The active relay holds a lease that it renews; another one takes over after the lease has expired. Numbers are
//! assigned in a transaction that locks the lease's row and checks its fence. So a relay whose lease expired while it
//! was suspended cannot assign a number twice.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::retention::{self, Retention, Trimmed};
use super::{EMITTED, Event, numbered_after, numbered_name};
use crate::connection::Isolation;
use crate::{Database, Error, PerDialect, Query, Read as _, Signal, Transaction, from_row, sql};

/// Publishes events. Every node runs a relay; the one with the lease does the work.
#[derive(Debug)]
pub struct Relay {
    database: Database,
    retention: Retention,
    /// How long other relays wait before they take over from this relay.
    lease: Duration,
    held: Option<HeldLease>,
    /// When another relay's lease expires, as far as this relay knows.
    free_in: Duration,
    trimmed: Option<Instant>,
    /// Whether the last events could not be published.
    is_stuck: bool,
}

/// The lease that this relay holds.
#[derive(Clone, Copy, Debug)]
struct HeldLease {
    fence: i64,
    renewed: Instant,
}

/// The result of one round of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayRound {
    /// Another relay holds the lease.
    NotLeaseHolder,
    /// There were no events.
    Idle,
    Worked {
        numbered: usize,
        published: usize,
    },
    /// Events were numbered but could not be published.
    Unpublished,
}

/// An event without a number.
struct UnnumberedEvent {
    id: i64,
    topic: String,
    key: String,
    payload: String,
    written_at: crate::UnixMs,
}

from_row!(UnnumberedEvent { id, topic, key, payload, written_at });

/// How many events are numbered or published at a time.
const BATCH: u16 = 500;
const TRIM_EVERY: Duration = Duration::from_secs(60);
/// How often the relay checks a SQLite database for events of other processes.
const POLL_SQLITE_EVERY: Duration = Duration::from_millis(100);
/// The shortest wait for the lease of another relay.
const MIN_LEASE_WAIT: Duration = Duration::from_millis(100);
/// Sent when a relay releases its lease.
const RELEASED: Signal = Signal("outbox.released");
/// The pause after a partial batch, so that a busy outbox is drained in batches, not event by event. It doubles while each
/// pause gathers several events.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Relay {
    pub fn new(database: &Database, retention: Retention) -> Self {
        Self {
            database: database.clone(),
            retention,
            lease: Duration::from_secs(10),
            held: None,
            free_in: Duration::ZERO,
            trimmed: None,
            is_stuck: false,
        }
    }

    /// Sets the duration of the lease. With a shorter lease, other relays take over sooner, but the lease is renewed
    /// more often.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Relays until `stop` is ready, then releases the lease so that another relay takes over at once. `publish` gets
    /// events in the order of their numbers, one topic at a time. It gets the same events again until it returns `Ok`,
    /// so delivery is at least once.
    pub async fn run<F, E>(
        mut self,
        mut publish: impl FnMut(Vec<Event>) -> F + Send,
        stop: impl Future<Output = ()> + Send,
    ) where
        F: Future<Output = Result<(), E>> + Send,
        E: Display,
    {
        let mut stop = pin!(stop);
        let (mut emitted, mut released) = (self.database.wakeups(EMITTED), self.database.wakeups(RELEASED));
        let mut gather = MIN_PAUSE;
        loop {
            let round = self.run_round(&mut publish).await;
            if let Err(error) = &round {
                tracing::warn!(error = error as &dyn std::error::Error, "outbox relay failed, retrying");
            }
            gather = match round {
                Ok(RelayRound::Worked { numbered: 2.., .. }) => (gather * 2).min(MAX_PAUSE),
                _ => MIN_PAUSE,
            };
            let pause = async {
                match round {
                    Ok(RelayRound::Worked { numbered, .. }) if numbered < usize::from(BATCH) => {
                        sleep(gather).await;
                    }
                    Ok(RelayRound::Worked { .. }) => {}
                    Ok(RelayRound::Idle) => {
                        tokio::select! {
                            () = emitted.wait(POLL_SQLITE_EVERY) => {}
                            () = sleep(self.renew_in()) => {}
                        }
                    }
                    // The lease holder publishes the events of this node. This relay only has to notice that the lease is
                    // free.
                    Ok(RelayRound::NotLeaseHolder) => {
                        released.wait_at_most(self.free_in.clamp(MIN_LEASE_WAIT, self.lease)).await;
                    }
                    Ok(RelayRound::Unpublished) | Err(_) => sleep(RETRY_AFTER).await,
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = pause => {}
            }
        }
        if let Err(error) = self.release().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to release the outbox lease, it will expire"
            );
        }
    }

    /// One round: claims or renews the lease, numbers new events, publishes unpublished ones.
    pub async fn run_round<F, E>(
        &mut self,
        mut publish: impl FnMut(Vec<Event>) -> F + Send,
    ) -> Result<RelayRound, Error>
    where
        F: Future<Output = Result<(), E>> + Send,
        E: Display,
    {
        let Some(held) = self.claim_or_renew().await? else {
            return Ok(RelayRound::NotLeaseHolder);
        };
        let (has_new, is_behind) = self.pending().await?;
        let numbered = if has_new { self.number(held).await? } else { Some(0) };
        let Some(numbered) = numbered else {
            self.held = None;
            return Ok(RelayRound::NotLeaseHolder);
        };
        let published =
            if numbered > 0 || is_behind { self.publish(held, &mut publish).await? } else { Some(0) };
        // Runs even if publishing failed, because retention also limits unpublished events.
        self.trim().await?;
        Ok(match (numbered, published) {
            (_, None) => RelayRound::Unpublished,
            (0, Some(0)) => RelayRound::Idle,
            (numbered, Some(published)) => RelayRound::Worked { numbered, published },
        })
    }

    /// Releases the lease, so that another relay can take over at once.
    pub async fn release(self) -> Result<(), Error> {
        let Some(HeldLease { fence, .. }) = self.held else {
            return Ok(());
        };
        let work = |tx: Transaction| async move {
            tx.signal(RELEASED);
            let release = sql("UPDATE hob_outbox_lease SET held_until = 0 WHERE fence = $1");
            tx.execute(release.bind(fence)).await.map(drop)
        };
        self.database.write_with(Isolation::ReadCommitted, work).await
    }

    fn renew_in(&self) -> Duration {
        let age = self.held.map_or(Duration::ZERO, |held| held.renewed.elapsed());
        (self.lease / 2).saturating_sub(age)
    }

    /// Claims the lease, or renews it after half of its duration. `None` if another relay holds it.
    async fn claim_or_renew(&mut self) -> Result<Option<HeldLease>, Error> {
        let (lease, fence) = (self.lease, self.held.map(|held| held.fence));
        if let Some(held) = self.held.filter(|held| held.renewed.elapsed() < lease / 2) {
            return Ok(Some(held));
        }
        if fence.is_none() {
            self.free_in = self.time_until_free().await?;
            if !self.free_in.is_zero() {
                return Ok(None);
            }
        }
        let begun = Instant::now();
        let work = |tx| async move { claim(&tx, fence, lease).await };
        let fence = self.database.write_with(Isolation::ReadCommitted, work).await?;
        self.held = fence.map(|fence| HeldLease { fence, renewed: begun });
        Ok(self.held)
    }

    /// Read before a claim, because a read does not block other relays.
    async fn time_until_free(&self) -> Result<Duration, Error> {
        let left: Query<(i64,)> = sql(PerDialect {
            sqlite: "SELECT held_until - CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) FROM hob_outbox_lease",
            postgres: "SELECT held_until - CAST(extract(epoch FROM now()) * 1000 AS BIGINT) FROM hob_outbox_lease",
        });
        let (left,) = self.database.one(left).await?;
        // The lease is free after this time, not at it.
        Ok(u64::try_from(left + 1).map_or(Duration::ZERO, Duration::from_millis))
    }

    /// Whether there are events without a number, and numbered events that are not published.
    async fn pending(&self) -> Result<(bool, bool), Error> {
        let pending = sql("SELECT EXISTS (SELECT 1 FROM hob_outbox_new),
                                  EXISTS (SELECT 1 FROM hob_outbox_topic WHERE published < numbered)");
        self.database.one(pending).await
    }

    /// Numbers one batch of new events and returns their count; `None` if the lease was lost.
    async fn number(&self, held: HeldLease) -> Result<Option<usize>, Error> {
        let work = |tx| async move { number(&tx, held.fence).await };
        let numbered = self.database.write_with(Isolation::ReadCommitted, work).await?;
        Ok(numbered.map(|(count, topics)| {
            topics.iter().for_each(|topic| self.database.wake(&numbered_name(topic)));
            count
        }))
    }

    async fn trim(&mut self) -> Result<(), Error> {
        if self.trimmed.is_some_and(|trimmed| trimmed.elapsed() < TRIM_EVERY) {
            return Ok(());
        }
        let trimmed = retention::trim(&self.database, self.retention).await?;
        self.trimmed = (trimmed == Trimmed::All).then(Instant::now);
        Ok(())
    }

    /// Publishes one batch of each topic that has unpublished events, and returns the number of events; `None` if
    /// publishing failed.
    async fn publish<F, E>(
        &mut self,
        held: HeldLease,
        publish: &mut (impl FnMut(Vec<Event>) -> F + Send),
    ) -> Result<Option<usize>, Error>
    where
        F: Future<Output = Result<(), E>> + Send,
        E: Display,
    {
        let behind: Query<(String, u64)> =
            sql("SELECT topic, published FROM hob_outbox_topic WHERE published < numbered");
        let mut count = 0;
        for (topic, published) in self.database.all(behind).await? {
            let events = self.database.all(numbered_after(&topic, published, BATCH)).await?;
            let (Some(last), length) = (events.last().map(|event| event.number), events.len()) else {
                continue;
            };
            let published = publish(events).await;
            let was_stuck = std::mem::replace(&mut self.is_stuck, published.is_err());
            if let Err(error) = published {
                if !was_stuck {
                    tracing::warn!(topic, %error, "failed to publish outbox events, retrying");
                }
                // All topics are published over the same bus, so the others would fail too.
                return Ok(None);
            }
            if was_stuck {
                tracing::info!("publishing of outbox events has recovered");
            }
            let topic = topic.as_str();
            let work = |tx| async move { mark_published(&tx, held.fence, topic, last).await };
            self.database.write_with(Isolation::ReadCommitted, work).await?;
            count += length;
        }
        Ok(Some(count))
    }
}

/// Renews the lease of `fence`, or claims an expired one with a new fence. `None` if another relay holds it.
async fn claim(tx: &Transaction, fence: Option<i64>, lease: Duration) -> Result<Option<i64>, Error> {
    let until = tx.now().plus(lease);
    if let Some(fence) = fence {
        let renew = sql("UPDATE hob_outbox_lease SET held_until = $2 WHERE fence = $1");
        if tx.execute(renew.bind(fence).bind(until)).await? == 1 {
            return Ok(Some(fence));
        }
    }
    let claim = sql("UPDATE hob_outbox_lease SET fence = fence + 1, held_until = $2
                     WHERE held_until < $1 RETURNING fence");
    let claimed: Option<(i64,)> = tx.optional(claim.bind(tx.now()).bind(until)).await?;
    Ok(claimed.map(|(fence,)| fence))
}

/// Numbers one batch. Returns the number of events and their topics.
async fn number(tx: &Transaction, fence: i64) -> Result<Option<(usize, Vec<String>)>, Error> {
    if !lock_lease(tx, fence).await? {
        return Ok(None);
    }
    let new: Query<UnnumberedEvent> =
        sql("SELECT id, topic, key, payload, written_at FROM hob_outbox_new ORDER BY id LIMIT $1");
    let new = tx.all(new.bind(BATCH)).await?;
    let ids: Vec<i64> = new.iter().map(|event| event.id).collect();
    let mut topics: BTreeMap<String, Vec<UnnumberedEvent>> = BTreeMap::new();
    for event in new {
        topics.entry(event.topic.clone()).or_default().push(event);
    }
    let numbered = topics.keys().cloned().collect();
    for (topic, events) in topics {
        let last = advance(tx, &topic, events.len()).await?;
        let first = last + 1 - events.len() as u64;
        let rows = (first..).zip(events);
        let rows =
            rows.map(|(number, event)| (event.topic, number, event.key, event.payload, event.written_at));
        let head = "INSERT INTO hob_outbox_event (topic, number, key, payload, written_at)";
        tx.insert_all(head, rows, "").await?;
    }
    let taken = sql("DELETE FROM hob_outbox_new WHERE id IN ($1...)");
    tx.execute(taken.bind_list(&ids)).await?;
    Ok(Some((ids.len(), numbered)))
}

/// Checks the fence and locks the lease's row until the transaction ends, so that no other relay can claim it.
async fn lock_lease(tx: &Transaction, fence: i64) -> Result<bool, Error> {
    let lock = sql("UPDATE hob_outbox_lease SET fence = fence WHERE fence = $1");
    Ok(tx.execute(lock.bind(fence)).await? == 1)
}

/// Reserves the next `count` numbers of a topic, and returns the last one.
async fn advance(tx: &Transaction, topic: &str, count: usize) -> Result<u64, Error> {
    let advance =
        sql("INSERT INTO hob_outbox_topic AS t (topic, numbered, published, forgotten) VALUES ($1, $2, 0, 0)
         ON CONFLICT (topic) DO UPDATE SET numbered = t.numbered + $2 RETURNING numbered");
    let (last,) = tx.one(advance.bind(topic).bind(count)).await?;
    Ok(last)
}

async fn mark_published(tx: &Transaction, fence: i64, topic: &str, number: u64) -> Result<(), Error> {
    if lock_lease(tx, fence).await? {
        let mark = sql("UPDATE hob_outbox_topic SET published = $2 WHERE topic = $1 AND published < $2");
        tx.execute(mark.bind(topic).bind(number)).await?;
    }
    Ok(())
}
