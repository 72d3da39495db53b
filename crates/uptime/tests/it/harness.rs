//! A schedule with a clock that the test sets.

use std::collections::HashMap;
use std::time::Duration;

use hob_fixtures::TestContext;
use hob_store::epoch::Outcome;
use hob_store::{Clock, Store, cmd};
use hob_uptime::Schedule;
use hob_uptime::database::monitors;
use hob_uptime::keys::MonitorId;
use hob_uptime::monitor::check::{CheckOutcome, FailureClass, MonitorKind, Observation, Phases};
use hob_uptime::monitor::{Monitor, MonitorSpec};
use hob_uptime::schedule::record::{JudgedResult, PendingChange, RecordOutcome};
use hob_uptime::schedule::state::MonitorHealth;
use hob_uptime::schedule::{Claim, ClaimBatch, PlanOutcome, ScheduleEntry};

/// 2024-01-15T08:00:00Z
pub(crate) const START: Duration = Duration::from_secs(1_705_305_600);
pub(crate) const GRACE: Duration = Duration::from_secs(5);

pub(crate) struct ScheduleHarness {
    pub(crate) context: TestContext,
    pub(crate) clock: Clock,
    pub(crate) schedule: Schedule,
}

impl ScheduleHarness {
    pub(crate) async fn new(context: TestContext) -> Self {
        let clock = Clock::driven(START);
        let schedule = Schedule::new(&context.store.with_clock(clock.clone()), context.layout).unwrap();
        schedule.open(&context.database, GRACE).await.unwrap();
        Self { context, clock, schedule }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.context.store
    }

    /// The same schedule on another node.
    pub(crate) async fn another(&self) -> Schedule {
        let store = self.context.store.with_clock(self.clock.clone());
        let schedule = Schedule::new(&store, self.context.layout).unwrap();
        schedule.open(&self.context.database, GRACE).await.unwrap();
        schedule
    }

    /// Adds a monitor to the database and the schedule, due now.
    pub(crate) async fn add(&self, id: &str, with: impl FnOnce(&mut MonitorSpec)) -> Monitor {
        let mut spec = MonitorSpec::new(id, MonitorKind::Tcp, "127.0.0.1:1");
        with(&mut spec);
        let id = MonitorId::new(id).unwrap();
        let monitor = monitors::add(&self.context.database, &id, &spec).await.unwrap().expect("a free id");
        self.plan(&monitor).await;
        monitor
    }

    pub(crate) async fn plan(&self, monitor: &Monitor) -> PlanOutcome {
        let now_ms = self.schedule.now_ms(self.schedule.shard_of(&monitor.id)).await.unwrap();
        let lease = monitor.timeout() + GRACE;
        let check_when_due = ScheduleEntry {
            id: &monitor.id,
            generation: monitor.generation,
            lease,
            next_ms: now_ms,
            health: MonitorHealth::NEW,
        };
        done(self.schedule.plan(check_when_due).await.unwrap())
    }

    /// Claims the due monitors of every shard.
    pub(crate) async fn claim(&self) -> Vec<Claim> {
        claim_all(&self.schedule).await.claims
    }

    /// Claims the only due monitor.
    pub(crate) async fn claim_one(&self) -> Claim {
        let mut claims = self.claim().await;
        assert_eq!(claims.len(), 1, "{claims:?}");
        claims.remove(0)
    }

    /// Records a result, 20 ms after the claim.
    pub(crate) async fn record(
        &self,
        monitor: &Monitor,
        claim: &Claim,
        observation: &Observation,
    ) -> (RecordOutcome, Option<PendingChange>) {
        let result = JudgedResult::new(monitor, claim, observation, claim.claimed_ms + 20);
        let recorded = done(self.schedule.record(&result).await.unwrap());
        (recorded, result.pending_change().filter(|_| recorded == RecordOutcome::Recorded))
    }

    /// Sets the clock to when the monitor is due, and records a result.
    pub(crate) async fn check_when_due(
        &self,
        monitor: &Monitor,
        observation: &Observation,
    ) -> Option<PendingChange> {
        let due: f64 = self
            .store()
            .run(
                cmd("ZSCORE")
                    .arg(self.schedule.keys().schedule(self.schedule.shard_of(&monitor.id)))
                    .arg(monitor.id.as_str()),
            )
            .await
            .unwrap();
        self.clock.set(Duration::from_secs_f64(due) + Duration::from_millis(1));
        let claim = self.claim_one().await;
        let (recorded, change) = self.record(monitor, &claim, observation).await;
        assert_eq!(recorded, RecordOutcome::Recorded);
        change
    }

    pub(crate) async fn hash(&self, key: impl AsRef<[u8]>) -> HashMap<String, String> {
        self.store().run(cmd("HGETALL").arg(key.as_ref())).await.unwrap()
    }

    pub(crate) async fn get(&self, key: impl AsRef<[u8]>) -> Option<String> {
        self.store().run(cmd("GET").arg(key.as_ref())).await.unwrap()
    }

    pub(crate) async fn ttl_s(&self, key: impl AsRef<[u8]>) -> i64 {
        let ms: i64 = self.store().run(cmd("PTTL").arg(key.as_ref())).await.unwrap();
        if ms < 0 { ms } else { ms / 1000 }
    }

    pub(crate) fn now_s(&self) -> u64 {
        self.clock.us().parse::<u64>().unwrap() / 1_000_000
    }
}

pub(crate) async fn claim_all(schedule: &Schedule) -> ClaimBatch {
    let mut all = ClaimBatch { claims: Vec::new(), dropped: Vec::new(), next_due_in: None };
    for shard in schedule.shards() {
        let claims = done(schedule.claim(shard, 100).await.unwrap());
        all.claims.extend(claims.claims);
        all.dropped.extend(claims.dropped);
    }
    all
}

/// The answer of a script that did not find its state lost.
#[track_caller]
pub(crate) fn done<T>(outcome: Outcome<T>) -> T {
    match outcome {
        Outcome::Done(answer) => answer,
        Outcome::Lost { found } => panic!("the shard is lost, found {found:?}"),
    }
}

pub(crate) fn good() -> Observation {
    Observation {
        outcome: CheckOutcome::Ok { status_code: 200 },
        phases: Phases { total: Some(Duration::from_micros(120_700)), ..Phases::default() },
        ..bad()
    }
}

pub(crate) fn bad() -> Observation {
    Observation::failed(FailureClass::Connect, "connection refused")
}

pub(crate) fn permanent_failure() -> Observation {
    Observation::failed(FailureClass::Forbidden, "target not allowed")
}
