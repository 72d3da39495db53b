//! The whole service: monitors that are claimed, checked, recorded and written down, on the embedded store and SQLite.

use std::time::Duration;

use anyhow::{Context, Result};
use hob_hot::{Address, Hot};
use hob_house::config::Secrets;
use hob_house::{House, Live, NodeName, Tasks};
use hob_records::{Records, Transaction, sql};
use hob_schema::Layout;
use hob_uptime::check::Kind;
use hob_uptime::monitor::MonitorSpec;
use hob_uptime::{Config, Uptime};
use hob_web::Web;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::process::{self, Process};

/// What is left out of the figures, so that the first sweep does not count.
const WARM_UP: Duration = Duration::from_secs(5);

/// How many monitors, and how often each is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) monitors: usize,
    pub(crate) interval_s: u32,
}

/// Measures a load in a process of its own, and prints a row of the table.
pub(crate) fn measure(url: &str, load: Load, seconds: u64) -> Result<()> {
    let Load { monitors, interval_s } = load;
    let words = [url, &monitors.to_string(), &interval_s.to_string(), &seconds.to_string()];
    let mut child = Process::own(&[&["worker"], &words[..]].concat())?;
    println!("| {monitors} every {interval_s} s | {} |", child.first_line()?);
    Ok(())
}

/// The child's part.
pub(crate) async fn run(url: &str, load: Load, seconds: u64) -> Result<()> {
    let metrics = PrometheusBuilder::new().install_recorder().context("no recorder")?;
    let folder = tempfile::tempdir()?;
    let house = house(&folder.path().join("hob.db").display().to_string()).await?;
    fill(&house.records, url, load).await?;
    let uptime = Uptime::open(&house, Live::fixed(Config::default())).await?;
    let web = Web::open(&house, Live::fixed(hob_web::Config::default()))?;
    uptime.start(web.changes());
    tokio::time::sleep(WARM_UP).await;
    let (before, cpu) = (checks(&metrics), process::cpu("self")?);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let done = checks(&metrics) - before;
    let cpu_us = (process::cpu("self")? - cpu).as_secs_f64() * 1e6 / done.max(1.0);
    let late = |quantile| late_ms(&metrics, quantile);
    println!(
        "{:.0} | {:.1} ms | {:.1} ms | {:.1} ms | {cpu_us:.0} | {} MiB",
        done / seconds as f64,
        late("0.5"),
        late("0.99"),
        late("0.999"),
        resident_mib()?
    );
    house.tasks.stop(Duration::from_secs(10)).await;
    Ok(())
}

async fn house(path: &str) -> Result<House> {
    let sets = [hob_web::MIGRATIONS, hob_uptime::MIGRATIONS];
    Ok(House {
        hot: Hot::connect(&"embedded://".parse::<Address>()?).await?,
        layout: Layout::Plain,
        records: Records::open(&path.parse()?, &sets).await?,
        node: NodeName::random(),
        secrets: Secrets::none(),
        tasks: Tasks::new(),
    })
}

/// All monitors in one transaction: adding them is not what is measured.
async fn fill(records: &Records, url: &str, load: Load) -> Result<()> {
    let mut spec = MonitorSpec::new("bench", Kind::Http, url);
    spec.interval_s = load.interval_s;
    spec.assertions = vec!["status == 200".to_owned()];
    let text = &serde_json::to_string(&spec)?;
    let work = |tx: Transaction| async move {
        for n in 0..load.monitors {
            let insert = sql("INSERT INTO uptime_monitor (id, generation, spec, created_at, changed_at)
                              VALUES ($1, 1, $2, $3, $3)");
            tx.execute(insert.bind(format!("m{n}")).bind(text.as_str()).bind(tx.now())).await?;
        }
        Ok::<_, hob_records::Error>(())
    };
    Ok(records.write(work).await?)
}

fn checks(metrics: &PrometheusHandle) -> f64 {
    values(metrics, "hob_uptime_checks_total").sum()
}

fn late_ms(metrics: &PrometheusHandle, quantile: &str) -> f64 {
    values(metrics, &format!("hob_uptime_late_seconds{{quantile=\"{quantile}\"}}")).sum::<f64>() * 1e3
}

fn values(metrics: &PrometheusHandle, name: &str) -> impl Iterator<Item = f64> {
    let lines: Vec<String> =
        metrics.render().lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect();
    lines.into_iter().filter_map(|line| line.rsplit(' ').next()?.parse().ok())
}

fn resident_mib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("a strange /proc")?;
    let kib: u64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
    Ok(kib / 1024)
}
