//! Claims, fences and rows: tests that play the part of a node that dies.

use hob_fixtures::{Needs, TestContext, every_service};
use hob_load_generator::{Fault, LatencyHistogram, StepSecond};
use hob_service::Live;
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use hob_web::Web;

use hob_database::sql;

use super::*;
use crate::plan::PlanSource;
use crate::{Config, Load, PublicStatus, QueueOutcome, RunRequest};

const NEEDS: Needs = Needs {
    schemas: &[("schemas/load.toml", include_str!("../../../../../schemas/load.toml"))],
    migrations: &[crate::MIGRATIONS],
};

const PLAN: &str = "name = 'x'\ntarget = 'http://127.0.0.1:1'\n[[scenario]]\nname = 's'\n\
                    load = { rate = 1, for = '60s' }\nstep = [{ name = 'a', request = 'GET /' }]";
const LEASE: Duration = Duration::from_secs(5);

async fn queued(context: &TestContext) -> (Load, TestId) {
    let load = Load::open(context.context(), Live::fixed(Config::default())).await.unwrap();
    let plan = load.add_plan(&PlanSource::toml(PLAN)).await.unwrap();
    let QueueOutcome::Queued(id) = load.queue_run(plan, &RunRequest::default()).await.unwrap() else {
        panic!("not queued")
    };
    (load, id)
}

fn second(at: u32) -> Second {
    let latencies = LatencyHistogram::from_iter([(1000, 3)]);
    let step = StepSecond { intended: latencies.clone(), actual: latencies, ..StepSecond::default() };
    Second { second: at, steps: [(0, step)].into(), ..Second::default() }
}

/// Requests of four seconds and three steps, from a few microseconds to some seconds: the second, the step, and what was
/// measured.
fn requests() -> impl Iterator<Item = (usize, u16, StepSecond)> {
    let mut state = 1_u64;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..4_000).map(move |n: usize| {
        let actual_us = draw(10_u64.pow(1 + (n % 7) as u32));
        let latency = |us| LatencyHistogram::from_iter([(us, 1)]);
        let traffic = StepSecond { bytes_in: draw(1000), bytes_out: draw(100), ..StepSecond::default() };
        let request = if n.is_multiple_of(11) {
            let faults = [(Fault::Status(500 + (n % 3) as u16), 1)].into();
            StepSecond { failures: latency(actual_us * 2), failed: 1, faults, ..traffic }
        } else {
            StepSecond { intended: latency(actual_us * 2), actual: latency(actual_us), ..traffic }
        };
        (n / 1000, draw(3) as u16, request)
    })
}

/// The measurements of one of `runners` runners, which share the requests evenly.
fn measured(runners: u64, runner: u64) -> Vec<Second> {
    let mut seconds: Vec<Second> = (0..4).map(Second::new).collect();
    for second in &mut seconds {
        (second.generator.ran, second.generator.active_users) = (Duration::from_secs(1), 7 / runners);
    }
    for (n, (at, step, request)) in (0..).zip(requests()) {
        if n % runners == runner {
            seconds[at].generator.slip.merge(&request.actual);
            seconds[at].steps.entry(step).or_default().merge(&request);
        }
    }
    seconds
}

every_service! {
    NEEDS;

    /// L9
    async fn rows_are_written_once(context: TestContext) {
        let (load, id) = queued(&context).await;
        let run = claim(&context.database, "a", LEASE).await.unwrap().unwrap();
        let number = add_runner(&context.database, &id, run.epoch, "a", LEASE).await.unwrap().unwrap();
        assert_eq!(add_runner(&context.database, &id, run.epoch, "a", LEASE).await.unwrap(), None, "one runner per node");
        start(&context.database, &run, Duration::ZERO).await.unwrap();
        let runner_id = RunnerId { run: id.clone(), epoch: run.epoch, number, node: "a".into() };
        let seconds = [second(0), second(1)];
        for _ in 0..3 {
            let written = write_seconds(&context.database, &runner_id, &seconds, RunnerState::Working, "", LEASE).await;
            assert_eq!(written.unwrap(), Membership::Active);
        }
        let all = load.seconds(&run, 0, usize::MAX).await.unwrap();
        assert_eq!(all.iter().map(Second::requests).collect::<Vec<_>>(), [3, 3]);
        write_seconds(&context.database, &runner_id, &[], RunnerState::Done, "", LEASE).await.unwrap();
        let late = write_seconds(&context.database, &runner_id, &[second(2)], RunnerState::Working, "", LEASE).await;
        assert_eq!(late.unwrap(), Membership::Removed, "a runner that has finished cannot write");
        assert_eq!(load.seconds(&run, 0, usize::MAX).await.unwrap().len(), 2);
    }

    /// L9: the same requests, measured by seven runners and by one, give the same buckets in every second and step, although
    /// each row is written twice and later ones before earlier ones.
    async fn seven_runners_measure_the_same_as_one(context: TestContext) {
        let (load, id) = queued(&context).await;
        context.database.execute(sql("UPDATE load_run SET runners = 7")).await.unwrap();
        let run = claim(&context.database, "node 0", LEASE).await.unwrap().unwrap();
        let whole = measured(1, 0);
        for runner in 0..7 {
            let node = format!("node {runner}");
            let number = add_runner(&context.database, &id, run.epoch, &node, LEASE).await.unwrap().unwrap();
            let runner_id = RunnerId { run: id.clone(), epoch: run.epoch, number, node };
            let seconds = measured(7, runner);
            for part in [&seconds[2..], &seconds[..3], &seconds[..]] {
                let written = write_seconds(&context.database, &runner_id, part, RunnerState::Working, "", LEASE).await;
                assert_eq!(written.unwrap(), Membership::Active);
            }
        }
        let merged = load.seconds(&run, 0, usize::MAX).await.unwrap();
        assert_eq!(merged.len(), whole.len());
        for (merged, whole) in merged.iter().zip(&whole) {
            assert_eq!(merged, whole);
        }
        let mut all = LatencyHistogram::default();
        merged.iter().flat_map(|second| second.steps.values()).for_each(|step| all.merge(&step.actual));
        let mut plain = LatencyHistogram::default();
        requests().for_each(|(_, _, request)| plain.merge(&request.actual));
        assert_eq!(all, plain);
    }

    /// L9: with the highest number of runners and steps.
    async fn largest_second_is_read_completely(context: TestContext) {
        let (load, id) = queued(&context).await;
        context.database.execute(sql("UPDATE load_run SET runners = 64")).await.unwrap();
        let run = claim(&context.database, "node 0", LEASE).await.unwrap().unwrap();
        let steps: std::collections::BTreeMap<u16, StepSecond> =
            (0..64).map(|step| (step, second(0).steps[&0].clone())).collect();
        let seconds = [0, 1].map(|at| Second { second: at, steps: steps.clone(), ..Second::default() });
        for runner in 0..64 {
            let node = format!("node {runner}");
            let number = add_runner(&context.database, &id, run.epoch, &node, LEASE).await.unwrap().unwrap();
            let runner_id = RunnerId { run: id.clone(), epoch: run.epoch, number, node };
            let written = write_seconds(&context.database, &runner_id, &seconds, RunnerState::Working, "", LEASE).await;
            assert_eq!(written.unwrap(), Membership::Active);
        }
        let merged = load.seconds(&run, 0, usize::MAX).await.unwrap();
        assert_eq!(merged.iter().map(Second::requests).collect::<Vec<_>>(), [64 * 64 * 3; 2]);
    }

    /// The older seconds are corrupt.
    async fn card_reads_only_the_seconds_that_it_shows(context: TestContext) {
        let (load, id) = queued(&context).await;
        let run = claim(&context.database, "a", LEASE).await.unwrap().unwrap();
        let number = add_runner(&context.database, &id, run.epoch, "a", LEASE).await.unwrap().unwrap();
        start(&context.database, &run, Duration::ZERO).await.unwrap();
        let runner_id = RunnerId { run: id.clone(), epoch: run.epoch, number, node: "a".into() };
        let seconds: Vec<Second> = (0..300).map(second).collect();
        write_seconds(&context.database, &runner_id, &seconds, RunnerState::Working, "", LEASE).await.unwrap();
        let spoil = sql("UPDATE load_second SET data = $1 WHERE second < $2").bind(Vec::<u8>::new()).bind(180);
        context.database.execute(spoil).await.unwrap();
        let card = load.card().await;
        assert_eq!((card.status.as_str(), card.spark), ("1 running", vec![Some(3.0); 120]));
    }

    /// L7
    async fn run_is_claimed_once_and_only_its_coordinator_ends_it(context: TestContext) {
        let (_, id) = queued(&context).await;
        let first = claim(&context.database, "a", Duration::ZERO).await.unwrap().unwrap();
        assert_eq!(claim(&context.database, "b", LEASE).await.unwrap(), None);
        start(&context.database, &first, Duration::ZERO).await.unwrap();
        let adopted = wait_for("the lease to run out", LIMIT, async || {
            match recover_expired(&context.database, "b", LEASE).await.unwrap() {
                Some(ExpiredRun::TakenOver(run)) => Some(run),
                _ => None,
            }
        }).await;
        assert!(adopted.fence > first.fence && adopted.epoch == first.epoch);
        assert_eq!(renew_lease(&context.database, &first, LEASE).await.unwrap(), None);
        let late = finish(&context.database, &first, Ending::Completed, "", Progress::default(), None).await.unwrap();
        assert_eq!(late, Transition::Gone, "a former coordinator changes nothing");
        let ended = finish(&context.database, &adopted, Ending::Completed, "", Progress::default(), None).await.unwrap();
        assert_eq!(ended, Transition::Applied(RunState::Completed));
        assert_eq!(runs::find(&context.database, &id).await.unwrap().unwrap().state, RunState::Completed);
    }

    async fn run_is_requeued_when_its_coordinator_dies_before_the_start(context: TestContext) {
        let (load, id) = queued(&context).await;
        claim(&context.database, "dead", Duration::ZERO).await.unwrap().unwrap();
        load.start(Web::open(context.context(), Live::fixed(hob_web::Config::default())).unwrap().changes());
        wait_for("another node to take it", LIMIT, async || {
            let run = load.run(&id).await.unwrap().unwrap();
            run.state == RunState::Running && run.holder.as_deref() == Some(context.node.as_str())
        }).await;
        load.cancel(&id).await.unwrap();
    }

    async fn run_of_a_dead_node_ends_as_lost(context: TestContext) {
        let (load, id) = queued(&context).await;
        let run = claim(&context.database, "dead", Duration::ZERO).await.unwrap().unwrap();
        add_runner(&context.database, &id, run.epoch, "dead", Duration::ZERO).await.unwrap().unwrap();
        start(&context.database, &run, Duration::ZERO).await.unwrap();
        load.start(Web::open(context.context(), Live::fixed(hob_web::Config::default())).unwrap().changes());
        let begun = std::time::Instant::now();
        let ended = wait_for("a final state", LIMIT, async || {
            load.run(&id).await.unwrap().filter(|run| run.state.is_final())
        }).await;
        assert_eq!((ended.state, ended.state.public_status()), (RunState::Lost, PublicStatus::Failed), "{}", ended.message);
        assert!(begun.elapsed() < Duration::from_secs(15));
        assert!(has_report(&load, &ended).await);
    }
}

async fn has_report(load: &Load, run: &Run) -> bool {
    load.report(run).await.unwrap().is_some()
}
