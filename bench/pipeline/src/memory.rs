//! Memory in Redis per item in flight (`MEMORY USAGE`).

use hob_web::Service as _;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use hob_pipeline::fake_api::{FakeApi, FakeApiConfig};
use hob_pipeline::run::RunState;
use hob_store::{Store, cmd};
use tempfile::TempDir;

use crate::ours;

/// Items in flight: the maximum that a plan may have per host.
const IN_FLIGHT: u32 = 64;
/// Total number of items.
const WAITING: u64 = 10_000;

pub(crate) async fn print(redis: SocketAddr) -> Result<()> {
    let store = Store::connect(&format!("redis://{redis}").parse()?).await?;
    store.run::<()>(cmd("FLUSHALL")).await?;
    let folder = TempDir::new()?;
    let limits = vec![(100_000, Duration::from_secs(3600))];
    let latency = Duration::from_secs(4);
    let config = FakeApiConfig { dockets: WAITING, entries: 0, page: 100, limits, token: None, latency };
    let api = FakeApi::start(config).await?;
    let keys: Vec<String> = (1..=WAITING).map(|id| format!("\"{id}\"")).collect();
    let plan = format!(
        "name = \"memory\"\nquota = {{ name = \"api\", windows = \"100000/1h\" }}\n\
         source = {{ step = \"docket\", list = [{}] }}\n\
         [step.docket]\nget = \"{}/dockets/${{key}}/\"\n[http]\nper_host = {IN_FLIGHT}\n",
        keys.join(", "),
        api.url()
    );
    let (context, pipelines) = ours::pipelines(&store, folder.path(), 200).await?;
    let plan = pipelines.put_plan(&plan).await?;
    let run = pipelines.start_run(&plan.name, None).await?;
    pipelines.start(&hob_web::Changes::detached(&context));
    while pipelines.quotas().usage(&plan.quota).await?.in_flight < IN_FLIGHT {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let families = families(&store).await?;
    println!("\n| family | keys | bytes | bytes per item in flight |\n|---|---:|---:|---:|");
    let mut each = 0.0;
    for (family, (keys, bytes)) in &families {
        // The number of other keys depends on runs and quotas, not on items.
        let is_per_item = matches!(family.as_str(), "task_start" | "quota:calls");
        let share = f64::from(u32::try_from(*bytes)?) / f64::from(IN_FLIGHT);
        each += if is_per_item { share } else { 0.0 };
        let share = if is_per_item { format!("{share:.0}") } else { "–".to_owned() };
        println!("| {family} | {keys} | {bytes} | {share} |");
    }
    println!(
        "| total, {IN_FLIGHT} in flight and {} waiting | | | {each:.0} |",
        WAITING - u64::from(IN_FLIGHT)
    );
    pipelines.apply(&run.id, hob_pipeline::run::RunAction::Cancel).await?;
    context.tasks.stop(Duration::from_secs(30)).await;
    ensure!(pipelines.run(&run.id).await?.state == RunState::Cancelled, "the run did not end");
    Ok(())
}

/// Keys and bytes by family.
async fn families(store: &Store) -> Result<BTreeMap<String, (u64, u64)>> {
    let keys: Vec<String> = store.run(cmd("KEYS").arg("*").clone()).await?;
    let mut families: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for key in keys {
        let parts: Vec<&str> = key.split(':').collect();
        let family = match parts.as_slice() {
            [_, "quota", .., kind] => format!("quota:{kind}"),
            [_, family, ..] => (*family).to_owned(),
            _ => key.clone(),
        };
        let bytes: Option<u64> =
            store.run(cmd("MEMORY").arg("USAGE").arg(&key).arg("SAMPLES").arg(0).clone()).await?;
        let (keys, sum) = families.entry(family).or_default();
        *keys += 1;
        *sum += bytes.unwrap_or(0);
    }
    Ok(families)
}
