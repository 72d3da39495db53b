//! U1 U5 U9: random claims, crashes, late results, edits, pauses, deletions and losses, compared with a small model: no
//! monitor is lost, no claim has two results, no stale result is written, only allowed transitions happen.

use std::collections::BTreeMap;
use std::time::Duration;

use hob_fixtures::{Layout, TestContext};
use hob_store::epoch::Outcome;
use hob_testkit::budget;
use hob_uptime::database::incidents;
use hob_uptime::database::monitors::{self, MonitorEdit};
use hob_uptime::incident::{self, Alerting};
use hob_uptime::monitor::{Monitor, MonitorSpec};
use hob_uptime::schedule::record::{JudgedResult, RecordOutcome};
use hob_uptime::schedule::state::MonitorState;
use hob_uptime::schedule::{Claim, RemovalReason};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::NEEDS;
use crate::harness::{GRACE, ScheduleHarness, bad, done, good, permanent_failure};

#[derive(Clone, Debug)]
enum Action {
    /// A worker claims the due monitors.
    Claim,
    /// A worker records a result under one of its claims, perhaps long after its lease.
    Record(usize, u8),
    /// A worker dies with one of its claims.
    Crash(usize),
    Wait(u16),
    Edit(usize),
    Pause(usize),
    Delete(usize),
    Flush,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => Just(Action::Claim),
        6 => (any::<usize>(), 0_u8..4).prop_map(|(which, how)| Action::Record(which, how)),
        1 => any::<usize>().prop_map(Action::Crash),
        4 => (1_u16..40).prop_map(Action::Wait),
        1 => any::<usize>().prop_map(Action::Edit),
        1 => any::<usize>().prop_map(Action::Pause),
        1 => any::<usize>().prop_map(Action::Delete),
        1 => Just(Action::Flush),
    ]
}

/// The expected state.
struct Model {
    harness: ScheduleHarness,
    monitors: BTreeMap<String, Monitor>,
    claims: Vec<Claim>,
    /// The newest fence of each monitor.
    newest: BTreeMap<String, u64>,
    /// The newest fence with a recorded result.
    recorded: BTreeMap<String, u64>,
}

impl Model {
    async fn new(layout: Layout) -> Self {
        let harness = ScheduleHarness::new(TestContext::embedded(NEEDS, layout).await).await;
        let mut monitors = BTreeMap::new();
        for n in 0..4 {
            let id = format!("m{n}");
            let with = |spec: &mut MonitorSpec| {
                (spec.interval_s, spec.retries, spec.recoveries) = (10, n, 1 + n % 2);
            };
            let monitor = harness.add(&id, with).await;
            monitors.insert(id, monitor);
        }
        Self { harness, monitors, claims: Vec::new(), newest: BTreeMap::new(), recorded: BTreeMap::new() }
    }

    fn pick(&self, which: usize) -> Option<Monitor> {
        self.monitors.values().nth(which % self.monitors.len().max(1)).cloned()
    }

    async fn action(&mut self, action: &Action) {
        match action {
            Action::Claim => self.claim().await,
            Action::Record(which, how) if !self.claims.is_empty() => {
                let claim = self.claims.swap_remove(which % self.claims.len());
                self.record(&claim, *how).await;
            }
            Action::Crash(which) if !self.claims.is_empty() => {
                self.claims.swap_remove(which % self.claims.len());
            }
            Action::Record(..) | Action::Crash(_) => {}
            Action::Wait(seconds) => self.harness.clock.advance(Duration::from_secs((*seconds).into())),
            Action::Edit(which) => {
                if let Some(monitor) = self.pick(*which) {
                    let mut spec = monitor.spec.clone();
                    spec.retry_delay_s = spec.retry_delay_s % 50 + 1;
                    self.edit(&monitor, spec).await;
                }
            }
            Action::Pause(which) => {
                if let Some(monitor) = self.pick(*which) {
                    let mut spec = monitor.spec.clone();
                    spec.paused = !spec.paused;
                    self.edit(&monitor, spec).await;
                }
            }
            Action::Delete(which) if self.monitors.len() > 2 => {
                if let Some(monitor) = self.pick(*which) {
                    monitors::remove(&self.harness.context.database, &monitor.id).await.unwrap();
                    self.harness.schedule.remove(&monitor.id, RemovalReason::Deleted).await.unwrap();
                    self.monitors.remove(monitor.id.as_str());
                }
            }
            Action::Delete(_) => {}
            Action::Flush => {
                self.harness.context.test_store().flush_all().await;
                self.rebuild().await;
            }
        }
    }

    async fn edit(&mut self, monitor: &Monitor, spec: MonitorSpec) {
        let (id, spec) = (&monitor.id, &spec);
        let edited = self.harness.context.database.write(|tx| async move {
            let edited = monitors::edit(&tx, id, spec).await?;
            if let MonitorEdit::Edited(monitor) = &edited
                && monitor.spec.paused
            {
                incident::resolve(&tx, monitor, tx.now(), incident::Resolution::Paused, None).await?;
            }
            Ok::<_, hob_uptime::Error>(edited)
        });
        let MonitorEdit::Edited(edited) = edited.await.unwrap() else { panic!("not edited") };
        if edited.spec.paused {
            self.harness.schedule.remove(&edited.id, RemovalReason::Paused).await.unwrap();
        } else {
            self.harness.plan(&edited).await;
        }
        self.monitors.insert(edited.id.to_string(), *edited);
    }

    async fn rebuild(&self) {
        for shard in self.harness.schedule.shards() {
            if let Outcome::Lost { .. } = self.harness.schedule.claim(shard, 0).await.unwrap() {
                let database = &self.harness.context.database;
                self.harness.schedule.rebuild(database, shard, GRACE).await.unwrap();
            }
        }
    }

    async fn claim(&mut self) {
        for claim in self.harness.claim().await {
            let monitor = self.monitors.get(claim.id.as_str()).expect("only monitors that exist are claimed");
            assert!(!monitor.spec.paused, "a paused monitor is not claimed");
            assert_eq!(claim.generation, monitor.generation);
            let before = self.newest.insert(claim.id.to_string(), claim.fence.get());
            assert!(before.is_none_or(|before| before < claim.fence.get()), "fences only grow");
            self.claims.push(claim);
        }
    }

    async fn record(&mut self, claim: &Claim, how: u8) {
        let observation = match how {
            0 | 1 => good(),
            2 => bad(),
            _ => permanent_failure(),
        };
        let id = claim.id.as_str();
        // A worker may have an outdated monitor.
        let Some(monitor) = self.monitors.get(id).cloned() else { return };
        let result = JudgedResult::new(&monitor, claim, &observation, claim.claimed_ms + 20);
        let recorded = done(self.harness.schedule.record(&result).await.unwrap());
        let may = self.newest.get(id) == Some(&claim.fence.get())
            && self.recorded.get(id) != Some(&claim.fence.get())
            && claim.generation == monitor.generation
            && !monitor.spec.paused;
        if recorded == RecordOutcome::Recorded {
            assert!(may, "a late, repeated or outdated result was recorded");
            assert!(allowed(claim.health.state, result.health.state), "{claim:?} to {:?}", result.health);
            self.recorded.insert(id.to_owned(), claim.fence.get());
            if let Some(change) = result.pending_change() {
                let alerted = incident::save_change(
                    &self.harness.context.database,
                    &monitor,
                    &change,
                    Alerting::Enabled,
                )
                .await
                .unwrap();
                self.harness.schedule.confirm_change(&change, alerted).await.unwrap();
            }
        }
    }

    /// After a quiet time every monitor is due, and the database agrees with the store.
    async fn check_final_state(&mut self) {
        self.rebuild().await;
        self.harness.clock.advance(Duration::from_secs(120));
        let claimed: Vec<Claim> = self.harness.claim().await;
        let mut ids: Vec<String> = claimed.iter().map(|claim| claim.id.to_string()).collect();
        ids.sort();
        let active = self.monitors.values().filter(|monitor| !monitor.spec.paused);
        let active: Vec<String> = active.map(|monitor| monitor.id.to_string()).collect();
        assert_eq!(ids, active, "every monitor is claimed exactly once");
        let open = incidents::all_open(&self.harness.context.database).await.unwrap();
        for claim in claimed {
            let is_open = open.iter().any(|incident| incident.monitor_id == claim.id);
            assert_eq!(claim.health.is_down(), is_open, "{claim:?}");
        }
    }
}

fn allowed(from: MonitorState, to: MonitorState) -> bool {
    use MonitorState::{Down, Pending, Recovering, Suspect, Up};
    matches!(
        (from, to),
        (Pending | Up | Suspect, Up | Suspect | Down) | (Down | Recovering, Down | Recovering | Up)
    )
}

#[test]
fn random_operations_keep_the_contract() {
    let cases = budget(12, 300);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let strategy = (proptest::collection::vec(action(), 20..60), any::<bool>());
    let outcome = runner.run(&strategy, |(actions, tagged)| {
        runtime.block_on(async {
            let layout = if tagged { Layout::Tagged } else { Layout::Plain };
            let mut model = Model::new(layout).await;
            for action in &actions {
                model.action(action).await;
            }
            model.check_final_state().await;
        });
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
