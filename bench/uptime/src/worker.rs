//! The whole service: monitors are claimed, checked and recorded, with SQLite as the database.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench_kit::{Process, Usage, median, resident};
use hob_database::{Database, Transaction, sql};
use hob_schema::Layout;
use hob_service::{Live, NodeName, ServiceContext};
use hob_store::{Address, Store, cmd};
use hob_uptime::monitor::MonitorSpec;
use hob_uptime::monitor::check::MonitorKind;
use hob_uptime::{Config, Uptime};
use hob_web::Service as _;
use hob_web::Web;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Excluded from the rates. The delay of checks is measured from the start.
const WARM_UP: Duration = Duration::from_secs(5);

/// The maximum time for a rebuild.
const MAX_REBUILD_TIME: Duration = Duration::from_secs(60);

pub(crate) const HEAD: &str = "\
| monitors | checks/s | late p50 | p99 | p99.9 | worst | missed | CPU µs per check | resident | dashboard | rebuilt |
|---|---|---|---|---|---|---|---|---|---|---|";

/// The number of monitors, their interval, and the length of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) monitors: usize,
    pub(crate) interval_s: u32,
    pub(crate) seconds: u64,
}

impl Load {
    /// Measures in a separate process and prints a row of the table.
    pub(crate) fn measure(self, url: &str, store: &str) -> Result<()> {
        let Self { monitors, interval_s, seconds } = self;
        let numbers = [monitors.to_string(), interval_s.to_string(), seconds.to_string()];
        let [a, b, c] = numbers.each_ref().map(String::as_str);
        let mut child = Process::own(&["worker", url, store, a, b, c])?;
        println!("| {monitors} every {interval_s} s | {} |", child.first_line()?);
        Ok(())
    }

    /// Runs in the separate process.
    pub(crate) async fn run(self, url: &str, store: &str) -> Result<()> {
        // One window for the whole run, so that every delay is in the figures.
        let window = WARM_UP + Duration::from_secs(self.seconds) + Duration::from_secs(600);
        let recorder = PrometheusBuilder::new().set_bucket_duration(window)?;
        let metrics = recorder.install_recorder().context("no recorder")?;
        let folder = tempfile::tempdir()?;
        let context = context(&folder.path().join("hob.db").display().to_string(), store).await?;
        // The data of an earlier row belongs to another database.
        context.store.run::<()>(cmd("FLUSHALL")).await?;
        self.fill(&context.database, url).await?;
        let uptime = Uptime::open(&context, Live::fixed(Config::default())).await?;
        let web = Web::open(&context, Live::fixed(hob_web::Config::default()))?;
        uptime.start(web.changes());

        tokio::time::sleep(WARM_UP).await;
        let (checks, cpu) = (sum(&metrics, CHECKS), Usage::start(vec![std::process::id()])?);
        tokio::time::sleep(Duration::from_secs(self.seconds)).await;
        let done = sum(&metrics, CHECKS) - checks;
        let cpu_us = cpu.us_each(done as u64)?;
        let late = |quantile: &str| sum(&metrics, &format!("{LATE}{{quantile=\"{quantile}\"}}")) * 1e3;
        let figures = format!(
            "{:.0} | {:.0} ms | {:.0} ms | {:.0} ms | {:.0} ms | {:.0} | {cpu_us:.0} | {} MiB",
            done / self.seconds as f64,
            late("0.5"),
            late("0.99"),
            late("0.999"),
            late("1"),
            sum(&metrics, MISSED),
            resident(std::process::id())? >> 20
        );
        let (dashboard, rebuilt) =
            (read_dashboard(&uptime).await?, self.rebuild(&context.store, &uptime).await?);
        println!(
            "{figures} | {:.0} ms | {:.0} ms",
            dashboard.as_secs_f64() * 1e3,
            rebuilt.as_secs_f64() * 1e3
        );
        context.tasks.stop(Duration::from_secs(10)).await;
        Ok(())
    }

    /// Adds all monitors in one transaction; this is not measured.
    async fn fill(self, database: &Database, url: &str) -> Result<()> {
        let mut spec = MonitorSpec::new("bench", MonitorKind::Http, url);
        spec.interval_s = self.interval_s;
        spec.assertions = vec!["status == 200".to_owned()];
        let text = &serde_json::to_string(&spec)?;
        let work = |tx: Transaction| async move {
            for n in 0..self.monitors {
                let insert = sql("INSERT INTO uptime_monitor (id, generation, spec, created_at, changed_at)
                                  VALUES ($1, 1, $2, $3, $3)");
                tx.execute(insert.bind(format!("m{n}")).bind(text.as_str()).bind(tx.now())).await?;
            }
            Ok::<_, hob_database::Error>(())
        };
        Ok(database.write(work).await?)
    }

    /// Flushes the store during the checks; returns the time until every monitor is scheduled again.
    async fn rebuild(self, store: &Store, uptime: &Uptime) -> Result<Duration> {
        store.run::<()>(cmd("FLUSHALL")).await?;
        let started = Instant::now();
        while started.elapsed() < MAX_REBUILD_TIME {
            let mut planned = 0;
            for shard in uptime.schedule().shards() {
                let keys = uptime.schedule().keys();
                planned += store.run::<usize>(cmd("ZCARD").arg(keys.schedule(shard))).await?;
                planned += store.run::<usize>(cmd("ZCARD").arg(keys.leases(shard))).await?;
            }
            if planned >= self.monitors {
                return Ok(started.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        bail!("the schedule was not rebuilt in time")
    }
}

/// The time to read the dashboard: the states of all monitors, and a page of rows.
async fn read_dashboard(uptime: &Uptime) -> Result<Duration> {
    let mut rounds = Vec::new();
    for _ in 0..5 {
        // Wait until the cached snapshot has expired.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let started = Instant::now();
        let snapshot = uptime.snapshot().await?;
        let monitors = uptime.monitors();
        uptime.rows(&snapshot, &monitors[..monitors.len().min(100)]).await?;
        rounds.push(started.elapsed());
    }
    Ok(median(rounds, Duration::as_secs_f64))
}

const CHECKS: &str = "hob_uptime_checks_total";
const LATE: &str = "hob_uptime_late_seconds";
const MISSED: &str = "hob_uptime_missed_total";

/// The sum of a metric, or its value with these labels.
fn sum(metrics: &PrometheusHandle, name: &str) -> f64 {
    let text = metrics.render();
    let values =
        text.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit(' ').next());
    values.filter_map(|value| value.parse::<f64>().ok()).sum()
}

async fn context(path: &str, store: &str) -> Result<ServiceContext> {
    let sets = [hob_web::MIGRATIONS, hob_uptime::MIGRATIONS];
    let store = Store::connect(&store.parse::<Address>()?).await?;
    let database = Database::open(&path.parse()?, &sets).await?;
    Ok(ServiceContext::new(store, Layout::Plain, database, NodeName::random()))
}
