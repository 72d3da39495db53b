//! The verdict on a run: which results count, and over which time.

use std::time::Duration;

use hob_load::generator::Targets;
use hob_load::plan::{Format, Plan};
use hob_load::{LocalRun, Report};

use hob_testkit::{HttpServer, Reply, repeat_until_ok};

/// Nothing listens on this port.
const DEAD: &str = "http://127.0.0.1:1";

fn plan(target: &str, load: &str, thresholds: &str) -> Plan {
    let text = format!(
        "name = 't'\ntarget = '{target}'\nthresholds = [{thresholds}]\n[[scenario]]\nname = 's'\nload = {{ {load} }}\n\
         step = [{{ name = 'a', request = 'GET /', expect = {{ status = [200, 204] }} }}]"
    );
    Plan::read(&text, Format::Toml).unwrap()
}

async fn report(plan: Plan) -> Report {
    let mut local = LocalRun::start(plan, 0, &Targets::default(), 1).await.unwrap();
    while local.next().await.is_some() {}
    Report::of(&local)
}

#[tokio::test]
async fn failed_requests_do_not_count_as_fast_ones() {
    let report = report(plan(DEAD, "rate = 10, for = '1s'", "'p95 < 50ms', 'error_rate <= 100%'")).await;
    assert_eq!((report.requests, report.failed), (10, 10));
    let p95 = &report.thresholds[0];
    assert!(!p95.met && p95.measured() == "no successful request", "{p95:?}");
    assert!(report.thresholds[1].met && !report.passed(), "{:?}", report.thresholds);
    assert_eq!((report.latency.max, report.steps[0].latency.max), (0.0, 0.0));
    assert!(report.latency_failed.max > 0.0 && report.steps[0].latency_failed.max > 0.0);
    let text = report.text();
    assert!(
        text.contains("failed requests")
            && text.contains("     –")
            && text.contains("✗ p95 < 50ms (no successful request)"),
        "{text}"
    );
}

#[tokio::test]
async fn latency_is_that_of_successful_requests() {
    let server = HttpServer::start(|n| {
        if n % 2 == 0 {
            Reply::Raw(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n".to_vec())
        } else {
            Reply::After(Duration::from_millis(30))
        }
    });
    let report =
        report(plan(&server.url(""), "rate = 20, for = '1s'", "'p50 > 29ms', 'error_rate < 60%'")).await;
    assert_eq!((report.requests, report.failed), (20, 10));
    assert!(report.latency.min >= 30.0 && report.passed(), "{:?}", report.thresholds);
    assert_eq!(report.histogram.iter().map(|bar| bar.count).sum::<u64>(), 10);
    assert_eq!(report.faults[0].what, "status 503 instead of 200 or 204");
}

#[tokio::test]
async fn plan_without_an_error_threshold_fails_above_the_default() {
    let dead = report(plan(DEAD, "rate = 10, for = '1s'", "'rate > 1/s'")).await;
    assert!(!dead.passed() && dead.text().contains("✗ error_rate <= 5% (default)"), "{}", dead.text());
    let server = HttpServer::start(|_| Reply::After(Duration::ZERO));
    let healthy = report(plan(&server.url(""), "rate = 10, for = '1s'", "")).await;
    assert!(
        healthy.passed() && healthy.text().contains("✓ error_rate <= 5% (default)"),
        "{}",
        healthy.text()
    );
}

/// 81 requests in 2 s are not 27 per second.
#[tokio::test]
async fn rate_of_an_aborted_run_uses_the_time_that_it_ran() {
    let server = HttpServer::start(|_| Reply::After(Duration::ZERO));
    repeat_until_ok(async || {
        let abort = "{ that = 'rate > 1000/s', abort_after = '2s' }";
        let report = report(plan(&server.url(""), "rate = 40, for = '60s'", abort)).await;
        let rates = [Some(report.rate), report.thresholds[0].value];
        let is_right = |rate: &Option<f64>| rate.is_some_and(|rate| (38.0..42.0).contains(&rate));
        if rates.iter().all(is_right) { Ok(()) } else { Err(format!("{rates:?}")) }
    })
    .await;
}
