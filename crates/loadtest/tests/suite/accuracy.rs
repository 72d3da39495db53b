//! What the generator measures against what a server knows to be true: within 1 %, and what the machine itself
//! adds to a request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_loadtest::Tally;
use hob_loadtest::generator::{Generator, Job, Share, Targets};
use hob_loadtest::plan::{Load, Plan};

use crate::oracle::{Answer, Oracle};

/// On a machine that does other things too, a request takes so much longer to get to the server and back.
const OVERHEAD: Duration = Duration::from_millis(2);
const ROUNDS: usize = 6;

/// Runs a plan to its end.
pub(crate) async fn run(plan: &Plan, threads: u32) -> Tally {
    let plan = Arc::new(plan.clone());
    let route = Targets::default().resolve(&plan, 0).await.unwrap();
    let start = Instant::now() + Duration::from_millis(20);
    let job =
        Job { plan: Arc::clone(&plan), run_type: 0, share: Share::WHOLE, threads, seed: 7, start, route };
    let mut generator = Generator::start(&job).unwrap();
    let mut tally = Tally::new(&plan);
    while let Some(second) = generator.next().await {
        tally.add(&second);
    }
    tally
}

fn close(what: &str, measured_us: u64, truth: Duration) -> Result<(), String> {
    let measured = Duration::from_micros(measured_us);
    let (least, most) = (truth.mul_f64(0.99), truth.mul_f64(1.01) + OVERHEAD);
    if (least..=most).contains(&measured) {
        return Ok(());
    }
    Err(format!("{what}: measured {measured:?}, in truth {truth:?}"))
}

fn compare(tally: &Tally, oracle: &Oracle) -> Result<(), String> {
    assert_eq!(tally.requests(), oracle.requests());
    for quantile in [0.5, 0.99, 0.999] {
        let what = format!("p{}", quantile * 100.0);
        close(&what, tally.actual().quantile_us(quantile), oracle.quantile(quantile))?;
    }
    Ok(())
}

fn constant(_: u64) -> Answer {
    Answer::After(Duration::from_millis(40))
}

fn bimodal(n: u64) -> Answer {
    Answer::After(Duration::from_millis(if n.is_multiple_of(5) { 200 } else { 40 }))
}

fn rarely_slow(n: u64) -> Answer {
    Answer::After(Duration::from_millis(if n % 200 == 7 { 300 } else { 30 }))
}

/// What other programs do to the machine while a request is on its way is in no server's log: a disturbed round is
/// measured again, and a generator that measures wrongly fails them all.
async fn open_and_closed(behaviour: fn(u64) -> Answer) {
    let lasting = Duration::from_secs(3);
    for load in [Load::rate(400.0, lasting, 500), Load::users(16, lasting)] {
        let mut outcome = Err(String::new());
        for _ in 0..ROUNDS {
            let oracle = Oracle::start(behaviour);
            let tally = run(&Plan::quick(&oracle.url("/"), load.clone()).unwrap(), 1).await;
            outcome = compare(&tally, &oracle);
            if outcome.is_ok() {
                break;
            }
        }
        outcome.unwrap_or_else(|wrong| panic!("in each of {ROUNDS} rounds, at last {wrong}"));
    }
}

#[tokio::test]
async fn a_constant_latency_is_measured_truly() {
    open_and_closed(constant).await;
}

#[tokio::test]
async fn two_latencies_are_told_apart() {
    open_and_closed(bimodal).await;
}

#[tokio::test]
async fn one_slow_request_in_two_hundred_is_seen() {
    open_and_closed(rarely_slow).await;
}

/// A server that stands still for two seconds makes everybody wait who came meanwhile: the latency from the
/// intended start knows, whatever the one from the actual start says.
#[tokio::test]
async fn a_freeze_is_felt_by_all_who_should_have_started_during_it() {
    let oracle = Oracle::start(|_| Answer::After(Duration::from_millis(5)));
    let freeze = Duration::from_secs(2);
    let (rate, lasting) = (200.0, Duration::from_secs(8));
    // Few users, so that most arrivals have to wait for one.
    let plan = Plan::quick(&oracle.url("/"), Load::rate(rate, lasting, 10)).unwrap();
    let running = run(&plan, 1);
    let freezing = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        oracle.freeze(freeze);
    };
    let (tally, ()) = tokio::join!(running, freezing);
    assert_eq!(tally.requests(), (rate * lasting.as_secs_f64()) as u64, "none is left out");
    // A quarter of all arrivals came during the freeze, and the one at its beginning waited for all of it.
    let longest = Duration::from_micros(tally.intended().max_us());
    assert!(longest >= freeze.mul_f64(0.99) && longest < freeze * 2, "the longest wait was {longest:?}");
    let waited_long = tally.intended().above(1_000_000) as f64 / tally.requests() as f64;
    assert!((0.10..0.20).contains(&waited_long), "an eighth waited more than a second, not {waited_long}");
    let p99 = Duration::from_micros(tally.intended().quantile_us(0.99));
    assert!(p99 > Duration::from_millis(1800), "p99 is {p99:?}");
    let actual = tally.actual().above(1_000_000);
    assert!(actual <= 10, "{actual} requests were under way when it froze");
}
