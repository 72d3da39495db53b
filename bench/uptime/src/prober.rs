//! Hob's probe, in a separate process.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench_kit::{Process, cpu};
use hob_service::config::Secrets;
use hob_uptime::monitor::assertion::Assertion;
use hob_uptime::monitor::check::{Check, CheckSpec, MonitorKind};
use hob_uptime::probe::{Limits, Probe};
use tokio::task::JoinSet;

use crate::CONCURRENCY;
use crate::figures::Figures;

/// A round in a new process.
pub(crate) fn measure(url: &str, seconds: u64) -> Result<Figures> {
    Figures::parse(&Process::own(&["probe", url, &seconds.to_string()])?.first_line()?)
}

/// Checks as fast as possible and prints the figures.
pub(crate) async fn run(url: &str, seconds: u64) -> Result<()> {
    let spec =
        CheckSpec { kind: MonitorKind::Http, target: url.to_owned(), http: None, dns: None, heartbeat: None };
    let check = spec.validate().ok().context("invalid check")?;
    let assertions: Vec<Assertion> = vec!["status in 200..299".parse()?];
    let probe = Probe::new(Limits::default(), Secrets::none());
    let started = Instant::now();
    let end = started + Duration::from_secs(seconds);
    let mut workers = JoinSet::new();
    for _ in 0..CONCURRENCY {
        workers.spawn(work(probe.clone(), check.clone(), assertions.clone(), end));
    }
    let mut latencies = Vec::new();
    while let Some(result) = workers.join_next().await {
        latencies.extend(result??);
    }
    println!("{}", Figures::new(latencies, started.elapsed(), cpu(std::process::id())?)?.line());
    Ok(())
}

async fn work(probe: Probe, check: Check, assertions: Vec<Assertion>, end: Instant) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    while Instant::now() < end {
        let report = probe.run(&check, &assertions, Duration::from_secs(10)).await;
        if !report.is_ok() {
            bail!("a check failed: {:?}", report.outcome);
        }
        latencies.extend(report.phases.total);
    }
    Ok(latencies)
}
