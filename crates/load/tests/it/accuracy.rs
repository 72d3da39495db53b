//! What the generator measures against what a server knows to be true: p50, p99 and p99.9 within 1 %, and what a
//! witness saw the machine itself take for the way there and back during that run; as many ways as requests may be
//! answered together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_load::generator::{Generator, Job, Share, Targets};
use hob_load::plan::{Load, Plan};
use hob_load::{Spread, Tally};

use crate::oracle::{Answer, Oracle};
use crate::witness::{Ways, Witness};

const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];
/// What other programs do to the machine hits requests and the witness at different times: a round in which they
/// differ is measured again, and a generator that measures wrongly fails them all.
const ROUNDS: usize = 6;

/// Runs a plan to its end.
pub(crate) async fn run(plan: &Plan, threads: u32) -> Tally {
    run_at(plan, threads, Instant::now() + Duration::from_millis(20)).await
}

async fn run_at(plan: &Plan, threads: u32, start: Instant) -> Tally {
    let plan = Arc::new(plan.clone());
    let route = Targets::default().resolve(&plan, 0).await.unwrap();
    let job =
        Job { plan: Arc::clone(&plan), run_type: 0, share: Share::WHOLE, threads, seed: 7, start, route };
    let mut generator = Generator::start(&job).unwrap();
    let mut tally = Tally::new(&plan);
    while let Some(second) = generator.next().await {
        tally.add(&second);
    }
    tally
}

/// Holds measured latencies against true ones, of which there must be as many. So many requests may be answered
/// `together`, and then wait for each other's way.
fn compare(measured: &Spread, mut truth: Vec<Duration>, ways: &Ways, together: u32) -> Result<(), String> {
    assert_eq!(measured.count(), truth.len() as u64, "every request is measured, once");
    truth.sort_unstable();
    for quantile in QUANTILES {
        let rank = (truth.len() as f64 * quantile).ceil() as usize;
        let (true_one, way) = (truth[rank - 1], ways.quantile(quantile) * together);
        let found = Duration::from_micros(measured.quantile_us(quantile));
        if found < true_one.mul_f64(0.99) || found > true_one.mul_f64(1.01) + way {
            let name = format!("p{}", quantile * 100.0);
            return Err(format!("{name} is {found:?}, in truth {true_one:?} and {way:?} for the way"));
        }
    }
    Ok(())
}

/// Measures until a round agrees.
async fn agrees(mut round: impl AsyncFnMut() -> Result<(), String>) {
    let mut disagreements = Vec::new();
    for _ in 0..ROUNDS {
        match round().await {
            Ok(()) => return,
            Err(disagreement) => disagreements.push(disagreement),
        }
    }
    panic!("{disagreements:#?}");
}

const SHORT: Duration = Duration::from_secs(3);
/// Few, since closed users who are answered together stay together, and wait for each other: without optimisation
/// that is much.
const USERS: u32 = 4;

async fn open_and_closed(behaviour: fn(u64) -> Answer) {
    for (load, together) in [(Load::rate(400.0, SHORT, 500), 1), (Load::users(USERS, SHORT), USERS)] {
        agrees(async || {
            let (oracle, witness) = (Oracle::start(behaviour), Witness::start());
            let tally = run(&Plan::quick(&oracle.url("/"), load.clone()).unwrap(), 1).await;
            let ways = witness.tell();
            compare(tally.actual(), oracle.took(), &ways, together)?;
            // Nobody had to wait for a user, so that both ways to measure are one; but for the generator's own slip.
            let slip = Duration::from_micros(tally.slip().quantile_us(0.99));
            let (intended, actual) =
                (tally.intended().quantile_us(0.99), tally.actual().quantile_us(0.99) as f64 * 1.01);
            if Duration::from_micros(intended) > Duration::from_micros(actual as u64) + slip {
                return Err(format!("from the intended start {intended} µs, slip {slip:?}"));
            }
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_constant_latency_is_measured_truly() {
    open_and_closed(|_| Answer::After(Duration::from_millis(40))).await;
}

#[tokio::test]
async fn two_latencies_are_told_apart() {
    open_and_closed(|n| Answer::After(Duration::from_millis(if n.is_multiple_of(5) { 200 } else { 40 })))
        .await;
}

#[tokio::test]
async fn one_slow_request_in_two_hundred_is_seen() {
    open_and_closed(|n| Answer::After(Duration::from_millis(if n % 200 == 7 { 100 } else { 30 }))).await;
}

const FREEZE: Duration = Duration::from_secs(2);

/// Runs a plan against a server that stands still two seconds after the start.
async fn run_frozen(oracle: &Oracle, load: Load, start: Instant) -> (Tally, Ways) {
    let (plan, witness) = (Plan::quick(&oracle.url("/"), load).unwrap(), Witness::start());
    let freezing = async {
        tokio::time::sleep_until((start + Duration::from_secs(2)).into()).await;
        oracle.freeze(FREEZE);
    };
    let (tally, ()) = tokio::join!(run_at(&plan, 1, start), freezing);
    (tally, witness.tell())
}

/// A server that stands still makes everybody wait who came meanwhile, also those for whom no user was free: the
/// latency from the intended start knows, whatever the one from the actual start says.
#[tokio::test]
async fn a_freeze_is_felt_by_all_who_should_have_started_during_it() {
    let (rate, lasting) = (200.0, Duration::from_secs(8));
    for most_users in [10, 1000] {
        agrees(async || {
            let oracle = Oracle::start(|_| Answer::After(Duration::from_millis(30)));
            let start = Instant::now() + Duration::from_millis(20);
            let (tally, ways) = run_frozen(&oracle, Load::rate(rate, lasting, most_users), start).await;
            // First come, first served: the n-th that was answered is the n-th that came.
            let mut answered = oracle.answered();
            answered.sort_unstable();
            let came = |n: usize| start + Duration::from_secs_f64(n as f64 / rate);
            let waited: Vec<Duration> =
                answered.iter().enumerate().map(|(n, at)| at.saturating_duration_since(came(n))).collect();
            assert_eq!(waited.len(), (rate * lasting.as_secs_f64()) as usize, "none is left out");
            let under_way = tally.actual().above(1_000_000);
            if most_users == 10 && under_way > 10 {
                return Err(format!("{under_way} requests were under way when it froze"));
            }
            compare(tally.intended(), waited, &ways, 1)
        })
        .await;
    }
}

/// Closed users stand still with the server, and what they measure is what the server did to them.
#[tokio::test]
async fn a_freeze_is_measured_truly_by_closed_users() {
    agrees(async || {
        let oracle = Oracle::start(|_| Answer::After(Duration::from_millis(30)));
        let start = Instant::now() + Duration::from_millis(20);
        let (tally, ways) = run_frozen(&oracle, Load::users(USERS, Duration::from_secs(6)), start).await;
        compare(tally.actual(), oracle.took(), &ways, USERS)
    })
    .await;
}
