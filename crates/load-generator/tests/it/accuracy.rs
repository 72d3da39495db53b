//! Compares the latencies that the generator measures with those that a server logs. p50, p99 and p99.9 may differ by 1 %
//! and the round trip that a probe measured during the run, times the number of requests that are served together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_load_generator::generator::{Generator, Job, Share, Targets};
use hob_load_generator::plan::{LoadModel, Plan};
use hob_load_generator::{LatencyHistogram, Totals};

use crate::probe::{LatencyProbe, RoundTrips};
use hob_testkit::{HttpServer, Reply, repeat_until_ok};

const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// Runs a plan to its end.
pub(crate) async fn run(plan: &Plan, threads: u32) -> Totals {
    run_at(plan, threads, Instant::now() + Duration::from_millis(20)).await
}

async fn run_at(plan: &Plan, threads: u32, start: Instant) -> Totals {
    let plan = Arc::new(plan.clone());
    let targets = Targets::default().resolve(&plan, 0).await.unwrap();
    let job =
        Job { plan: Arc::clone(&plan), run_type: 0, share: Share::WHOLE, threads, seed: 7, start, targets };
    let mut generator = Generator::start(&job).unwrap();
    let mut totals = Totals::new(&plan);
    while let Some(second) = generator.next().await {
        totals.add(&second);
    }
    totals
}

/// Compares measured latencies with the logged ones. `together` requests may be served at the same time and delay each
/// other.
fn compare(
    measured: &LatencyHistogram,
    mut truth: Vec<Duration>,
    round_trips: &RoundTrips,
    together: u32,
) -> Result<(), String> {
    assert_eq!(measured.count(), truth.len() as u64, "every request is measured once");
    truth.sort_unstable();
    for quantile in QUANTILES {
        let rank = (truth.len() as f64 * quantile).ceil() as usize;
        let (logged, round_trip) = (truth[rank - 1], round_trips.quantile(quantile) * together);
        let found = Duration::from_micros(measured.quantile_us(quantile));
        if found < logged.mul_f64(0.99) || found > logged.mul_f64(1.01) + round_trip {
            let name = format!("p{}", quantile * 100.0);
            return Err(format!("{name} is {found:?}, logged {logged:?} and round trip {round_trip:?}"));
        }
    }
    Ok(())
}

const SHORT: Duration = Duration::from_secs(3);
/// Few, because closed users that are served together stay together and delay each other, most of all in a debug build.
const USERS: u32 = 4;

async fn open_and_closed(behaviour: fn(u64) -> Reply) {
    for (load, together) in [(LoadModel::rate(400.0, SHORT, 500), 1), (LoadModel::users(USERS, SHORT), USERS)]
    {
        repeat_until_ok(async || {
            let (server, probe) = (HttpServer::start(behaviour), LatencyProbe::start());
            let totals = run(&Plan::quick(&server.url("/"), load.clone()).unwrap(), 1).await;
            let round_trips = probe.finish();
            compare(totals.actual(), server.latencies(), &round_trips, together)?;
            // No arrival waited for a user, so both latencies are equal except for the slip of the generator.
            let slip = Duration::from_micros(totals.slip().quantile_us(0.99));
            let (intended, actual) =
                (totals.intended().quantile_us(0.99), totals.actual().quantile_us(0.99) as f64 * 1.01);
            if Duration::from_micros(intended) > Duration::from_micros(actual as u64) + slip {
                return Err(format!("{intended} µs from the intended start, slip {slip:?}"));
            }
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn constant_latency_is_measured_correctly() {
    open_and_closed(|_| Reply::After(Duration::from_millis(40))).await;
}

#[tokio::test]
async fn two_latencies_are_measured_correctly() {
    open_and_closed(|n| Reply::After(Duration::from_millis(if n.is_multiple_of(5) { 200 } else { 40 })))
        .await;
}

#[tokio::test]
async fn one_slow_request_in_200_is_measured() {
    open_and_closed(|n| Reply::After(Duration::from_millis(if n % 200 == 7 { 100 } else { 30 }))).await;
}

const FREEZE: Duration = Duration::from_secs(2);

/// Runs a plan against a server that freezes two seconds after the start.
async fn run_frozen(server: &HttpServer, load: LoadModel, start: Instant) -> (Totals, RoundTrips) {
    let (plan, probe) = (Plan::quick(&server.url("/"), load).unwrap(), LatencyProbe::start());
    let freeze = async {
        tokio::time::sleep_until((start + Duration::from_secs(2)).into()).await;
        server.freeze(FREEZE);
    };
    let (totals, ()) = tokio::join!(run_at(&plan, 1, start), freeze);
    (totals, probe.finish())
}

/// All arrivals during a freeze have to wait, including those without a free user. The latency from the intended start
/// shows it; the latency from the actual start need not.
#[tokio::test]
async fn freeze_counts_for_all_arrivals_during_it() {
    let (rate, duration) = (200.0, Duration::from_secs(8));
    for max_users in [10, 1000] {
        repeat_until_ok(async || {
            let server = HttpServer::start(|_| Reply::After(Duration::from_millis(30)));
            let start = Instant::now() + Duration::from_millis(20);
            let (totals, round_trips) =
                run_frozen(&server, LoadModel::rate(rate, duration, max_users), start).await;
            // Requests are served in order: the n-th response belongs to the n-th arrival.
            let mut responses = server.response_times();
            responses.sort_unstable();
            let arrival = |n: usize| start + Duration::from_secs_f64(n as f64 / rate);
            let waited: Vec<Duration> = responses
                .iter()
                .enumerate()
                .map(|(n, at)| at.saturating_duration_since(arrival(n)))
                .collect();
            assert_eq!(
                waited.len(),
                (rate * duration.as_secs_f64()) as usize,
                "every arrival gets a response"
            );
            let in_flight = totals.actual().count_above(1_000_000);
            if max_users == 10 && in_flight > 10 {
                return Err(format!("{in_flight} requests were in flight during the freeze"));
            }
            compare(totals.intended(), waited, &round_trips, 1)
        })
        .await;
    }
}

/// Closed users wait during a freeze, so their latencies match the log of the server.
#[tokio::test]
async fn closed_users_measure_a_freeze_correctly() {
    repeat_until_ok(async || {
        let server = HttpServer::start(|_| Reply::After(Duration::from_millis(30)));
        let start = Instant::now() + Duration::from_millis(20);
        let (totals, round_trips) =
            run_frozen(&server, LoadModel::users(USERS, Duration::from_secs(6)), start).await;
        compare(totals.actual(), server.latencies(), &round_trips, USERS)
    })
    .await;
}
