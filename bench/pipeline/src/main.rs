//! Item transitions a second with a step that does nothing: Hob on its embedded store and on Redis, BullMQ and RQ on the
//! same Redis. An item makes two transitions, waiting → claimed → done.
//!
//! `cargo run --release -p bench-pipeline -- 1000000`; BullMQ is installed with npm and RQ with pip, into a temporary
//! folder.

mod others;

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hob_hot::{Address as HotAddress, Hot, cmd};
use hob_house::{House, Live, NodeName};
use hob_pipeline::run::RunState;
use hob_pipeline::{Config, MIGRATIONS, Pipelines};
use hob_records::{Address, Records};
use hob_schema::Layout;
use hob_testkit::RedisServer;
use tempfile::TempDir;

/// RQ and the like are far slower; a part of the items says as much.
const OTHERS_SHARE: u64 = 20;

fn main() -> Result<()> {
    let items: u64 =
        std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse()).context("how many items?")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let redis = RedisServer::start();
    say("| system | items | seconds | transitions/s |");
    say("|---|---:|---:|---:|");
    let embedded = runtime.block_on(hob(&HotAddress::Embedded, items))?;
    row("Hob, embedded store, SQLite", items, embedded);
    let on_redis = runtime.block_on(hob(&redis.url().parse()?, items))?;
    row("Hob, Redis, SQLite", items, on_redis);
    let folder = TempDir::new()?;
    let fewer = (items / OTHERS_SHARE).max(1000);
    match others::bullmq(folder.path(), redis.port(), fewer) {
        Ok(lasted) => row("BullMQ, Redis", fewer, lasted),
        Err(error) => say(&format!("| BullMQ: {error:#} | | | |")),
    }
    let fewest = (fewer / 10).max(500);
    match others::rq(folder.path(), redis.port(), fewest) {
        Ok(lasted) => row("RQ SimpleWorker, Redis", fewest, lasted),
        Err(error) => say(&format!("| RQ: {error:#} | | | |")),
    }
    Ok(())
}

/// From the first claim to the last commit, the reading of the file included.
async fn hob(hot: &HotAddress, items: u64) -> Result<Duration> {
    let folder = TempDir::new()?;
    let mut file = std::io::BufWriter::new(std::fs::File::create(folder.path().join("items.txt"))?);
    for item in 0..items {
        writeln!(file, "{item}")?;
    }
    file.into_inner()?.sync_all()?;
    let records = Records::open(&Address::sqlite(folder.path().join("bench.db")), &[MIGRATIONS]).await?;
    let hot = Hot::connect(hot).await?;
    let house = House::new(hot.clone(), Layout::Plain, records, NodeName::random());
    let config = Config { folder: folder.path().to_owned(), batch: 2000, ..Config::default() };
    let pipelines = Pipelines::open(&house, Live::fixed(config))?;
    let plan = "name = \"bench\"\nquota = { name = \"none\", windows = \"1000/1m\" }\n\
                source = { step = \"nothing\", file = \"items.txt\" }\n[step.nothing]\n";
    let plan = pipelines.put_plan(plan).await?;
    let begun = Instant::now();
    let run = pipelines.start_run(&plan.name, None).await?;
    pipelines.start();
    while pipelines.run(&run.id).await?.state != RunState::Completed {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let lasted = begun.elapsed();
    house.tasks.stop(Duration::from_secs(10)).await;
    let keys: u64 = hot.run(cmd("DBSIZE")).await?;
    anyhow::ensure!(keys < 20, "{keys} keys are left in hot state");
    Ok(lasted)
}

fn row(system: &str, items: u64, lasted: Duration) {
    let rate = 2.0 * items as f64 / lasted.as_secs_f64();
    say(&format!("| {system} | {items} | {:.1} | {rate:.0} |", lasted.as_secs_f64()));
}

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn say(line: &str) {
    println!("{line}");
}
