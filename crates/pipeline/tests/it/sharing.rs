//! Sharers of a quota get calls by weight: runs on one node and on several, and scripts that use the API.

use std::time::Duration;

use hob_database::{Read as _, UnixMs, sql};
use hob_fixtures::every_service;
use hob_pipeline::fake_api::{FakeApi, FakeApiConfig};
use hob_pipeline::quota::{
    MAX_QUOTA_WAIT, NewReservation, QuotaFeedback, Quotas, Reservation, ReserveDecision,
};
use hob_testkit::{LIMIT, run, wait_for};

use crate::runs::{api_config, start_run};
use crate::support::{NEEDS, TestEnv, api, new_reservation};

const TICK_MS: u64 = 10;

/// A caller that makes one call after another and takes part for a while.
struct Caller {
    sharer: &'static str,
    weight: u32,
    call_ms: u64,
    /// When it starts and stops.
    active_ms: std::ops::Range<u64>,
    open: Option<Reservation>,
    next_ms: u64,
    /// When its calls were granted.
    granted_ms: Vec<u64>,
}

impl Caller {
    fn new(sharer: &'static str, weight: u32, call_ms: u64) -> Self {
        Self {
            sharer,
            weight,
            call_ms,
            active_ms: 0..u64::MAX,
            open: None,
            next_ms: 0,
            granted_ms: Vec::new(),
        }
    }

    fn active(mut self, active_ms: std::ops::Range<u64>) -> Self {
        self.active_ms = active_ms;
        self
    }

    async fn step(&mut self, quotas: &Quotas, now_ms: u64) {
        if now_ms < self.next_ms || !self.active_ms.contains(&now_ms) {
            return;
        }
        if let Some(call) = self.open.take() {
            quotas.settle(&call, 1, QuotaFeedback::default()).await.unwrap();
        }
        let id = NewReservation::random_id();
        let new = NewReservation { run: self.sharer.to_owned(), weight: self.weight, ..new_reservation(&id) };
        match quotas.reserve(&api(), &new).await.unwrap() {
            ReserveDecision::Granted(call) => {
                self.open = Some(call);
                self.granted_ms.push(now_ms);
                self.next_ms = now_ms + self.call_ms;
            }
            ReserveDecision::Wait { after, .. } => {
                let wait_ms = u64::try_from(after.min(MAX_QUOTA_WAIT).as_millis()).unwrap();
                self.next_ms = now_ms + wait_ms.next_multiple_of(TICK_MS).max(TICK_MS);
            }
        }
    }
}

/// Lets the callers take turns until `end_ms`.
async fn simulate(env: &TestEnv, windows: &str, callers: &mut [Caller], end_ms: u64) {
    let quotas = env.quotas_with(windows, 0).await;
    for now_ms in (0..end_ms).step_by(usize::try_from(TICK_MS).unwrap()) {
        for caller in callers.iter_mut() {
            caller.step(&quotas, now_ms).await;
        }
        env.advance(Duration::from_millis(TICK_MS));
    }
}

/// Calls of a sharer between two times.
fn calls(callers: &[Caller], sharer: &str, times: std::ops::Range<u64>) -> usize {
    let of_sharer = callers.iter().filter(|caller| caller.sharer == sharer);
    of_sharer.flat_map(|caller| &caller.granted_ms).filter(|at| times.contains(at)).count()
}

/// In any ten seconds between two times, at least `least` calls are made, and every sharer has its share of them within
/// 10 %.
#[track_caller]
fn assert_shares(callers: &[Caller], times: std::ops::Range<u64>, least: usize, shares: &[(&str, usize)]) {
    let weights: usize = shares.iter().map(|(_, weight)| weight).sum();
    for start in (times.start..=times.end - 10_000).step_by(500) {
        let calls = |sharer: &str| calls(callers, sharer, start..start + 10_000);
        let total: usize = shares.iter().map(|(sharer, _)| calls(sharer)).sum();
        assert!(total >= least, "{total} calls in 10 s after {start} ms");
        for (sharer, weight) in shares {
            let (got, due) = (calls(sharer) as f64, (total * weight) as f64 / weights as f64);
            assert!(
                (got - due).abs() <= 0.1 * due,
                "{sharer} got {got} of {due} calls in 10 s after {start} ms"
            );
        }
    }
}

every_service! {
    NEEDS;

    /// P8: the heavy run is on one node, the light one on two nodes with more workers, and a script makes one call
    /// after another.
    async fn sharers_get_calls_by_weight_in_any_ten_seconds(context: TestContext) {
        let env = TestEnv::new(context);
        let mut callers: Vec<Caller> = (0..4).map(|_| Caller::new("heavy", 3, 100)).collect();
        callers.extend((0..9).map(|_| Caller::new("light", 1, 50)));
        callers.push(Caller::new("script", 1, 60));
        simulate(&env, "20/1s", &mut callers, 25_000).await;
        assert_shares(&callers, 2_000..25_000, 170, &[("heavy", 3), ("light", 1), ("script", 1)]);
    }

    /// P8: calls become free in bursts, since all calls of a window end at about the same time.
    async fn sharers_get_calls_by_weight_in_every_burst(context: TestContext) {
        let env = TestEnv::new(context);
        let mut callers: Vec<Caller> = (0..8).map(|_| Caller::new("heavy", 3, 20)).collect();
        callers.extend((0..8).map(|_| Caller::new("light", 1, 20)));
        simulate(&env, "40/5s", &mut callers, 30_000).await;
        assert_shares(&callers, 6_000..30_000, 70, &[("heavy", 3), ("light", 1)]);
    }

    /// P8: calls become free in bursts, and one sharer has many workers.
    async fn script_that_makes_one_call_after_another_gets_its_share(context: TestContext) {
        let env = TestEnv::new(context);
        let mut callers: Vec<Caller> = (0..8).map(|_| Caller::new("run", 1, 20)).collect();
        callers.push(Caller::new("script", 1, 60));
        simulate(&env, "40/5s", &mut callers, 30_000).await;
        assert_shares(&callers, 6_000..30_000, 60, &[("run", 1), ("script", 1)]);
    }

    /// P8: a sharer that needs less than its share does not slow down the others.
    async fn rest_of_a_share_goes_to_the_others(context: TestContext) {
        let env = TestEnv::new(context);
        let mut callers: Vec<Caller> = (0..8).map(|_| Caller::new("run", 1, 20)).collect();
        callers.push(Caller::new("slow", 1, 1_000));
        simulate(&env, "20/1s", &mut callers, 22_000).await;
        let (run, slow) = (calls(&callers, "run", 2_000..22_000), calls(&callers, "slow", 2_000..22_000));
        assert!(slow >= 16, "{slow} calls of the slow sharer in 20 s");
        assert!(run >= 280, "{run} of about 360 calls");
    }

    /// P8: a sharer that pauses leaves its calls to the others, and gets no more than its share when it returns.
    async fn idle_sharer_neither_blocks_others_nor_saves_calls(context: TestContext) {
        let env = TestEnv::new(context);
        let mut callers = vec![Caller::new("busy", 1, 50), Caller::new("busy", 1, 50)];
        callers.extend((0..2).map(|_| Caller::new("idle", 1, 50).active(0..5_000)));
        callers.extend((0..2).map(|_| Caller::new("idle", 1, 50).active(20_000..40_000)));
        simulate(&env, "10/1s", &mut callers, 32_000).await;
        assert_shares(&callers, 8_000..19_000, 85, &[("busy", 1)]);
        assert_shares(&callers, 21_000..32_000, 85, &[("busy", 1), ("idle", 1)]);
    }
}

/// Two runs of plans with these weights, on nodes that share the store and the database. Checks the shares among 100
/// calls, counted from when both runs are making calls.
async fn compare_runs(nodes: usize, weights: [u32; 2], latency: Duration, windows: &str) {
    let env = TestEnv::embedded().await;
    let limits = vec![(1000, Duration::from_secs(1))];
    let api = FakeApi::start(FakeApiConfig { dockets: 1000, limits, latency, ..api_config() }).await.unwrap();
    let mut all = Vec::new();
    for _ in 0..nodes {
        all.push(env.node().await);
    }
    let mut runs = Vec::new();
    for (name, weight) in ["one", "two"].into_iter().zip(weights) {
        let keys: Vec<String> = (1..=1000).map(|key| format!("\"{key}\"")).collect();
        let text = format!(
            "name = \"{name}\"\nweight = {weight}\nquota = {{ name = \"api\", windows = \"{windows}\" }}\n\
             source = {{ step = \"docket\", list = [{}] }}\n[step.docket]\nget = \"{}/dockets/${{key}}/\"\n",
            keys.join(", "),
            api.url()
        );
        runs.push(start_run(&all[0].pipelines, &text).await.id);
    }
    let made = wait_for("100 calls of both runs", LIMIT * 4, async || {
        let list = sql("SELECT run, reserved_at FROM pipeline_call ORDER BY reserved_at, id");
        let made: Vec<(String, UnixMs)> = env.database.all(list).await.unwrap();
        // The first seconds are left out: one run starts before the other.
        let first = |run: &str| made.iter().find(|(of, _)| of == run).map(|(_, at)| *at);
        let both = first(runs[0].as_str())?.max(first(runs[1].as_str())?).plus(Duration::from_secs(2));
        let after: Vec<String> =
            made.into_iter().filter(|(_, at)| *at >= both).map(|(run, _)| run).take(100).collect();
        (after.len() == 100).then_some(after)
    })
    .await;
    let due = f64::from(weights[0]) / f64::from(weights[0] + weights[1]);
    let got = made.iter().filter(|run| *run == runs[0].as_str()).count() as f64 / 100.0;
    assert!((got - due).abs() <= 0.1 * due, "the first run made {got} of the calls; its share is {due}");
}

/// P8
#[test]
fn runs_on_one_node_share_a_quota_and_a_host() {
    run(compare_runs(1, [1, 1], Duration::from_millis(20), "20/1s"));
    run(compare_runs(1, [3, 1], Duration::from_millis(20), "20/1s"));
}

/// P8
#[test]
fn runs_on_several_nodes_share_a_quota_and_a_host() {
    run(compare_runs(2, [3, 1], Duration::from_millis(20), "20/1s"));
}

/// The concurrency limit of the host is reached before the quota.
#[test]
fn runs_share_a_slow_host_by_weight() {
    run(compare_runs(1, [3, 1], Duration::from_millis(250), "1000/1s"));
}
