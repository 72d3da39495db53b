//! Quotas: how many calls an API allows, shared by all users of a credential.
//!
//! A caller reserves a call before it makes it, and settles it afterwards. The call occupies every window of its quota
//! from the reservation until one window after its end, so that the API never counts more calls than the quota, whatever
//! its clock. Each operation is one script on the store's clock. A reservation is granted only after it is in the call
//! log in the database. When the store has lost its data, the quota is rebuilt from the log before it grants calls again.
//! While the store is unavailable, it grants none.
//!
//! Each reservation has a number from the store that the log accepts once. A store that has returned with older data
//! issues a number again, so the log alone is enough to notice that, and the reservation is not granted.

mod feedback;
mod file;
mod limits;
pub(crate) mod log;
mod reservation;
mod restore;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use hob_database::{Database, Transaction, UnixMs};
use hob_store::epoch::{self, Epoch, Fence, MARKER, Outcome};
use hob_store::repair::{self, KeyType, STORED};
use hob_store::{CLOCK, Call as StoreCall, Reply, Script, Store, cmd};

pub use feedback::QuotaFeedback;
pub use file::QuotaFile;
pub(crate) use limits::MAX_CALLS;
pub use limits::{Limits, QuotaName};
pub use reservation::{NewReservation, Reservation, ReserveDecision};

use crate::config::Config;
use crate::database::calls;
use crate::database::quotas::{self, QuotaRow};
use crate::error::{Error, Result};
use crate::keys::{HourKey, Keys};
use file::ProcessLock;
use log::{CallLog, LogEntry, LogOutcome, LoggedCall};

const QUOTA: &str = include_str!("quota/quota.lua");
const TURNS: &str = include_str!("quota/turns.lua");

static RESERVE: Script =
    Script::with(&[CLOCK, MARKER, STORED, QUOTA, TURNS], include_str!("quota/reserve.lua"));
static SETTLE: Script = Script::with(&[CLOCK, MARKER, STORED, QUOTA], include_str!("quota/settle.lua"));
static USAGE: Script = Script::with(&[CLOCK, MARKER, STORED, QUOTA], include_str!("quota/usage.lua"));

pub(crate) const HOUR_MS: i64 = 3_600_000;
/// How long a cached definition is valid.
const DEFINITION_MAX_AGE: Duration = Duration::from_secs(2);
/// How many losses of the store one operation recovers from.
const MAX_RECOVERIES: usize = 4;
/// Maximum wait before a caller asks again: calls may be released and limits raised, and a caller that stays away longer
/// loses its place among the sharers.
pub const MAX_QUOTA_WAIT: Duration = Duration::from_secs(2);
/// Maximum time from a reservation to the end of its calls.
pub const MAX_HOLD: Duration = Duration::from_secs(3600);

/// All quotas. Clones share their state.
#[derive(Clone, Debug)]
pub struct Quotas {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    keys: Keys,
    database: Database,
    log: CallLog,
    /// The last known hour of the store's clock.
    hour: AtomicI64,
    public: Option<PublicQuota>,
    /// Set if other processes share the quotas.
    lock: Option<ProcessLock>,
    definitions: RwLock<HashMap<QuotaName, (Arc<QuotaDefinition>, Instant)>>,
    /// One rebuild per node at a time.
    rebuilding: tokio::sync::Mutex<()>,
}

/// The quota that the documented counters count (P1, P2).
#[derive(Clone, Debug)]
pub struct PublicQuota {
    pub name: QuotaName,
    /// Its limits, unless a plan or the API defines others (P8).
    pub limits: Limits,
}

/// A quota as it is in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaDefinition {
    pub name: QuotaName,
    pub limits: Limits,
    /// The API refuses calls until this time.
    pub blocked_until: UnixMs,
    /// Raised whenever the store has lost the quota.
    pub epoch: Epoch,
}

/// The usage of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    pub definition: Arc<QuotaDefinition>,
    pub now: UnixMs,
    pub blocked_until: Option<UnixMs>,
    /// Calls in flight.
    pub in_flight: u32,
    pub windows: Vec<WindowUsage>,
}

/// The usage of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowUsage {
    pub limit: u32,
    pub usable: u32,
    pub period: Duration,
    pub used: u32,
    /// When one more call fits.
    pub fits_at: UnixMs,
}

impl WindowUsage {
    pub fn left(&self) -> u32 {
        self.usable.saturating_sub(self.used)
    }
}

impl Quotas {
    pub fn new(store: &Store, keys: &Keys, database: &Database, public: Option<PublicQuota>) -> Self {
        Self::with_lock(store, keys, database, public, None)
    }

    fn with_lock(
        store: &Store,
        keys: &Keys,
        database: &Database,
        public: Option<PublicQuota>,
        lock: Option<ProcessLock>,
    ) -> Self {
        let inner = Inner {
            store: store.clone(),
            keys: keys.clone(),
            database: database.clone(),
            log: CallLog::new(database),
            hour: AtomicI64::new(jiff::Timestamp::now().as_millisecond() / HOUR_MS),
            public,
            lock,
            definitions: RwLock::default(),
            rebuilding: tokio::sync::Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Creates a quota, or changes its limits. Other nodes apply the change within two seconds. If its longest window
    /// becomes longer, the store has deleted calls that count again: it is rebuilt from the call log, in a new epoch.
    pub async fn define(&self, name: &QuotaName, limits: &Limits) -> Result<()> {
        let (windows, public) = (&limits.to_string(), self.inner.public.as_ref());
        let work = |tx: Transaction| async move {
            let before =
                quotas::find(&tx, name).await?.map(|row| QuotaDefinition::of(row, public)).transpose()?;
            quotas::put(&tx, name, windows, limits.buffer()).await?;
            if let Some(Some(before)) = before
                && before.epoch.get() > 0
                && before.limits.longest_window() < limits.longest_window()
            {
                quotas::raise_epoch(&tx, name, before.epoch.get()).await?;
            }
            Ok::<_, Error>(())
        };
        self.inner.database.write(work).await?;
        self.inner.definitions.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(())
    }

    /// The definition of a quota, cached for two seconds.
    pub async fn definition(&self, name: &QuotaName) -> Result<Arc<QuotaDefinition>> {
        let definitions =
            self.inner.definitions.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if let Some((definition, since)) = definitions
            && since.elapsed() < DEFINITION_MAX_AGE
        {
            return Ok(definition);
        }
        self.load_definition(name).await
    }

    async fn load_definition(&self, name: &QuotaName) -> Result<Arc<QuotaDefinition>> {
        let public = self.inner.public.as_ref();
        let mut row = quotas::find(&self.inner.database, name).await?;
        if row.is_none() && public.is_some_and(|public| public.name == *name) {
            self.inner.database.write(|tx| async move { quotas::put_default(&tx, name).await }).await?;
            row = quotas::find(&self.inner.database, name).await?;
        }
        let definition = row.map(|row| QuotaDefinition::of(row, public)).transpose()?.flatten();
        let definition = Arc::new(definition.ok_or_else(|| Error::not_found("quota", name))?);
        let entry = (Arc::clone(&definition), Instant::now());
        self.inner.definitions.write().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), entry);
        Ok(definition)
    }

    pub async fn all(&self) -> Result<Vec<QuotaDefinition>> {
        let rows = quotas::list(&self.inner.database).await?;
        let public = self.inner.public.as_ref();
        rows.into_iter().filter_map(|row| QuotaDefinition::of(row, public).transpose()).collect()
    }

    /// Reserves calls. A granted reservation is in the call log.
    pub async fn reserve(&self, name: &QuotaName, new: &NewReservation) -> Result<ReserveDecision> {
        new.check(&self.definition(name).await?.limits)?;
        let _exclusive = self.exclusive(name).await?;
        for _ in 0..MAX_RECOVERIES {
            let arguments = |call: StoreCall| {
                call.arg(&new.id).arg(new.calls).arg(&new.run).arg(new.weight).arg(millis(new.hold))
            };
            let (mut reply, definition) = self.run(name, &RESERVE, arguments).await?;
            let granted = reply.word() == "granted";
            let (now, at, foreign): (i64, i64, u32) = (reply.next()?, reply.next()?, reply.next()?);
            self.log_foreign(name, UnixMs(now), foreign).await?;
            if !granted {
                let after = UnixMs(at).since(UnixMs(now));
                return Ok(ReserveDecision::Wait { at: UnixMs(at), after });
            }
            let (id, run) = (new.id.clone(), new.run.clone());
            let (reserved_at, until) = (UnixMs(now), UnixMs(at));
            let call = LoggedCall {
                id,
                quota: name.clone(),
                run,
                calls: new.calls,
                reserved_at,
                until,
                settled: false,
            };
            let reservation = Reservation::of(&call);
            // Processes with a lock file have a store each, so their numbers are not unique.
            let number = Fence::from_u64(reply.next()?);
            let number = self.inner.lock.is_none().then_some(number);
            // A reservation that cannot be logged occupies the quota until its deadline; its calls are not made.
            let entry = LogEntry::Reserved { call, epoch: definition.epoch, number };
            match self.inner.log.write(entry).await? {
                LogOutcome::Written => return Ok(ReserveDecision::Granted(reservation)),
                LogOutcome::StaleEpoch => {
                    self.load_definition(name).await?;
                    // If the store still has the reservation, it was granted under the old limits.
                    self.settle_in_store(&reservation, 0, QuotaFeedback::default()).await?;
                }
                LogOutcome::RepeatedNumber => {
                    tracing::warn!(quota = %name, "store has lost calls of a quota, rebuilding it");
                    self.settle_in_store(&reservation, 0, QuotaFeedback::default()).await?;
                    self.invalidate(&definition).await?;
                }
            }
        }
        Err(Error::StoreUnstable)
    }

    /// Settles a reservation of which `made` calls were made. The others are released.
    pub async fn settle(&self, reservation: &Reservation, made: u32, feedback: QuotaFeedback) -> Result<()> {
        let made = made.min(reservation.calls);
        let _exclusive = self.exclusive(&reservation.quota).await?;
        let (ended, blocked) = self.settle_in_store(reservation, made, feedback).await?;
        if feedback.blocked_for.is_some() {
            let quota = reservation.quota.clone();
            self.inner.log.write(LogEntry::Blocked { quota, until: blocked }).await?;
        }
        let id = reservation.id.clone();
        self.inner.log.write(LogEntry::Settled { id, made, ended }).await?;
        Ok(())
    }

    /// Returns when the calls ended, and until when the API refuses calls.
    async fn settle_in_store(
        &self,
        reservation: &Reservation,
        made: u32,
        feedback: QuotaFeedback,
    ) -> Result<(UnixMs, UnixMs)> {
        let (counted, period) = feedback.counted.unwrap_or_default();
        let arguments = |call: StoreCall| {
            let call =
                call.arg(&reservation.id).arg(reservation.calls).arg(made).arg(reservation.reserved_at.0);
            call.arg(feedback.blocked_for.map_or(0, millis)).arg(counted).arg(millis(period))
        };
        let (mut reply, _) = self.run(&reservation.quota, &SETTLE, arguments).await?;
        let (ended, blocked, foreign): (i64, i64, u32) = (reply.next()?, reply.next()?, reply.next()?);
        self.log_foreign(&reservation.quota, UnixMs(ended), foreign).await?;
        Ok((UnixMs(ended), UnixMs(blocked)))
    }

    /// Finds a reservation that is not settled.
    pub async fn reservation(&self, name: &QuotaName, id: &str) -> Result<Reservation> {
        let call = calls::find(&self.inner.database, name, id).await?.filter(|call| !call.settled);
        call.as_ref().map(Reservation::of).ok_or_else(|| Error::not_found("open reservation", id))
    }

    /// Reads the usage of a quota.
    pub async fn usage(&self, name: &QuotaName) -> Result<QuotaUsage> {
        let _exclusive = self.exclusive(name).await?;
        let (mut reply, definition) = self.run(name, &USAGE, |call| call).await?;
        let (now, blocked, in_flight, foreign): (i64, i64, u32, u32) =
            (reply.next()?, reply.next()?, reply.next()?, reply.next()?);
        self.log_foreign(name, UnixMs(now), foreign).await?;
        let mut windows = Vec::new();
        for window in definition.limits.windows() {
            let (usable, period) = (definition.limits.usable(window), window.period);
            let (used, fits_at) = (reply.next()?, UnixMs(reply.next()?));
            windows.push(WindowUsage { limit: window.limit, usable, period, used, fits_at });
        }
        let blocked_until = (blocked > 0).then_some(UnixMs(blocked));
        Ok(QuotaUsage { definition, now: UnixMs(now), blocked_until, in_flight, windows })
    }

    /// Calls per time step, for a chart.
    pub async fn history(
        &self,
        name: &QuotaName,
        since: UnixMs,
        step: Duration,
    ) -> Result<Vec<(UnixMs, u64)>> {
        let step_ms = i64::try_from(step.as_millis()).unwrap_or(i64::MAX).max(1);
        Ok(calls::history(&self.inner.database, name, since, step_ms).await?)
    }

    /// Number of calls reserved in the hour of a time.
    pub async fn reserved_in_hour(&self, name: &QuotaName, of: UnixMs) -> Result<u64> {
        let start = of.0 / HOUR_MS * HOUR_MS;
        let (from, to) = (UnixMs(start), UnixMs(start + HOUR_MS));
        Ok(calls::reserved_between(&self.inner.database, name, from, to).await?)
    }

    /// Deletes the part of the call log that is older than every window and than `keep`.
    pub async fn delete_old_calls(&self, keep: Duration) -> Result<u64> {
        let database = &self.inner.database;
        let mut deleted = 0;
        for definition in self.all().await? {
            let newest = calls::newest(database, &definition.name).await?;
            let keep = keep.max(definition.limits.longest_window() + MAX_HOLD);
            deleted += calls::delete_before(database, &definition.name, newest.minus(keep)).await?;
        }
        Ok(deleted)
    }

    /// Runs a script of a quota. Rebuilds a lost quota and updates the hour, then runs the script again. Returns the
    /// definition that the script used.
    async fn run(
        &self,
        name: &QuotaName,
        script: &'static Script,
        arguments: impl Fn(StoreCall) -> StoreCall,
    ) -> Result<(Reply, Arc<QuotaDefinition>)> {
        for _ in 0..MAX_RECOVERIES {
            let definition = self.definition(name).await?;
            let hour = self.inner.hour.load(Ordering::Relaxed);
            let keys = self.keys(&definition, hour)?;
            let call = script.on(&keys);
            let ttl_ms = millis(self.inner.keys.rate_limit_ttl());
            let call =
                call.arg(definition.epoch.get()).arg(self.inner.store.clock().us()).arg(hour).arg(ttl_ms);
            let call = with_windows(arguments(call), &definition.limits);
            let answer = match self.inner.store.run(call).await {
                Err(error) if error.is_foreign_value() => {
                    self.repair(keys, &error).await?;
                    continue;
                }
                answer => answer?,
            };
            match Outcome::read(answer, Ok)? {
                Outcome::Lost { .. } => self.rebuild(&definition).await?,
                Outcome::Done(mut reply) if reply.word() == "hour" => {
                    self.inner.hour.store(reply.next()?, Ordering::Relaxed);
                }
                Outcome::Done(reply) => return Ok((reply, definition)),
            }
        }
        Err(Error::StoreUnstable)
    }

    /// Makes the next script of a quota find it lost.
    async fn invalidate(&self, definition: &QuotaDefinition) -> Result<()> {
        let marker = self.inner.keys.quota_marker(definition.name.id());
        self.inner.store.run::<Reply>(epoch::discard(&marker, definition.epoch)).await?;
        Ok(())
    }

    /// Deletes keys of a quota that another client has changed. If the quota cannot do without one of them, it is rebuilt
    /// from the call log: without its marker it counts as lost.
    async fn repair(&self, keys: Vec<hob_store::Key>, error: &hob_store::Error) -> Result<()> {
        const KINDS: [KeyType; 4] = [KeyType::Hash, KeyType::Zset, KeyType::Hash, KeyType::Hash];
        let kinds = KINDS.into_iter().chain(std::iter::repeat(KeyType::String));
        let keys: Vec<_> = keys.into_iter().zip(kinds).collect();
        let repaired = repair::repair(&self.inner.store, error, &keys).await?;
        // Marker, calls and state; after them the turns and the public counters.
        if repaired.iter().any(|at| *at < 3) {
            self.inner.store.run::<u64>(cmd("DEL").arg(&keys[0].0)).await?;
        }
        Ok(())
    }

    fn keys(&self, definition: &QuotaDefinition, hour: i64) -> Result<Vec<hob_store::Key>> {
        let (keys, quota) = (&self.inner.keys, definition.name.id());
        let mut all = vec![keys.quota_marker(quota), keys.quota_calls(quota), keys.quota_state(quota)];
        all.push(keys.quota_turns(quota));
        if self.inner.public.as_ref().is_some_and(|public| public.name == definition.name) {
            let shard = keys.space().shard_of(quota.as_str());
            let hours = [hour_key(hour - 1)?, hour_key(hour)?, hour_key(hour + 1)?];
            all.extend(hours.iter().map(|hour| keys.rate_limit(hour, shard)));
            all.extend(hours.iter().map(|hour| keys.counter(hour, shard)));
        }
        Ok(all)
    }

    async fn log_foreign(&self, quota: &QuotaName, at: UnixMs, calls: u32) -> Result<()> {
        if calls == 0 {
            return Ok(());
        }
        tracing::info!(%quota, calls, "API calls of other programs detected");
        crate::metrics::foreign(quota, calls);
        let id = format!("foreign-{}", NewReservation::random_id());
        let (quota, run) = (quota.clone(), "foreign".to_owned());
        let call = LoggedCall { id, quota, run, calls, reserved_at: at, until: at, settled: true };
        self.inner.log.write(LogEntry::Foreign(call)).await?;
        Ok(())
    }
}

impl PublicQuota {
    /// The public quota of the configuration, if it names one.
    pub(crate) fn of(config: &Config) -> Result<Option<Self>> {
        if config.public_quota.is_empty() {
            return Ok(None);
        }
        let limits = Limits::parse(&format!("{}/1h", config.call_limit_per_hour), config.safety_buffer);
        let limits = limits.map_err(|error| {
            Error::invalid("pipeline.call_limit_per_hour and pipeline.safety_buffer", error)
        })?;
        Ok(Some(Self { name: config.public_quota.parse()?, limits }))
    }
}

impl QuotaDefinition {
    /// `None` if the limits are those of the public quota, and this is not the public quota any more.
    fn of(row: QuotaRow, public: Option<&PublicQuota>) -> Result<Option<Self>> {
        let limits = if row.windows.is_empty() {
            let Some(public) = public.filter(|public| public.name == row.name) else { return Ok(None) };
            public.limits.clone()
        } else {
            Limits::parse(&row.windows, row.buffer)?
        };
        let epoch = Epoch::new(row.epoch)?;
        Ok(Some(Self { name: row.name, limits, blocked_until: row.blocked_until, epoch }))
    }
}

/// The documented name of an hour (P6); `hour` counts from 1970.
pub(crate) fn hour_key(hour: i64) -> Result<HourKey> {
    let start = jiff::Timestamp::from_second(hour.saturating_mul(3600)).unwrap_or(jiff::Timestamp::MAX);
    HourKey::new(start.strftime("%Y-%m-%d_%H")).map_err(|error| Error::invalid("hour", error))
}

fn with_windows(call: StoreCall, limits: &Limits) -> StoreCall {
    limits
        .windows()
        .iter()
        .fold(call, |call, window| call.arg(limits.usable(window)).arg(millis(window.period)))
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
