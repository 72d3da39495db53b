//! The work in Hob: a run of a plan with one step that does nothing.

use hob_web::Service as _;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bench_kit::Usage;
use hob_database::{Address, Database};
use hob_pipeline::run::RunState;
use hob_pipeline::{Config, MIGRATIONS, Pipelines};
use hob_schema::Layout;
use hob_service::{Live, NodeName, ServiceContext};
use hob_store::{Address as StoreAddress, Store, cmd};
use tempfile::TempDir;

use crate::Cost;

/// Items that the node holds at a time.
const BATCH: u32 = 2_000;

const PLAN: &str = r#"
name = "bench"
quota = { name = "none", windows = "1000/1m" }
source = { step = "nothing", file = "items.txt" }
[step.nothing]
"#;

/// Measures a run from its start to its end, including reading the file.
pub(crate) async fn run(store: &StoreAddress, items: u64, redis: Option<u32>) -> Result<Cost> {
    let folder = TempDir::new()?;
    let mut file = std::io::BufWriter::new(std::fs::File::create(folder.path().join("items.txt"))?);
    for item in 0..items {
        writeln!(file, "{item}")?;
    }
    file.into_inner()?.sync_all()?;
    let store = Store::connect(store).await?;
    let (context, pipelines) = pipelines(&store, folder.path(), BATCH).await?;
    let plan = pipelines.put_plan(PLAN).await?;
    let processes = redis.into_iter().chain([std::process::id()]).collect();
    let (started, usage) = (Instant::now(), Usage::start(processes)?);
    let run = pipelines.start_run(&plan.name, None).await?;
    pipelines.start(&hob_web::Changes::detached(&context));
    while pipelines.run(&run.id).await?.state != RunState::Completed {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (elapsed, cpu) = (started.elapsed(), usage.so_far()?);
    context.tasks.stop(Duration::from_secs(10)).await;
    let keys: u64 = store.run(cmd("DBSIZE")).await?;
    ensure!(keys < 20, "{keys} keys are left in the store");
    Ok(Cost { items, elapsed, cpu })
}

/// A node with its own database.
pub(crate) async fn pipelines(
    store: &Store,
    folder: &Path,
    batch: u32,
) -> Result<(ServiceContext, Pipelines)> {
    let database = Database::open(&Address::sqlite(folder.join("bench.db")), &[MIGRATIONS]).await?;
    let context = ServiceContext::new(store.clone(), Layout::Plain, database, NodeName::random());
    let config = Config { folder: folder.to_owned(), batch_size: batch, ..Config::default() };
    let pipelines = Pipelines::open(&context, Live::fixed(config)).await?;
    Ok((context, pipelines))
}
