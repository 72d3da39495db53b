//! Hob's generator in a separate process.

use anyhow::Result;
use hob_load::generator::Targets;
use hob_load::plan::{Format, Plan};
use hob_load::{LocalRun, Report};

use crate::CONNECTIONS;

/// Sends `rate` requests per second, or as fast as possible if `rate` is 0.
pub(crate) fn generate(url: &str, rate: u32, seconds: u64) -> Result<()> {
    let load = if rate > 0 {
        format!("{{ rate = {rate}, for = \"{seconds}s\", max_users = {CONNECTIONS} }}")
    } else {
        format!("{{ users = {CONNECTIONS}, for = \"{seconds}s\" }}")
    };
    let text = format!(
        "name = 'bench'\n[[scenario]]\nname = 's'\nload = {load}\n[[scenario.step]]\nname = 'a'\n\
         request = 'GET {url}'\nexpect = {{ status = 200 }}\n"
    );
    let plan = Plan::read(&text, Format::Toml)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let mut run = LocalRun::start(plan, 0, &Targets::default(), 1).await?;
        while run.next().await.is_some() {}
        anyhow::Ok(Report::of(&run))
    })?;
    println!("99% {}ms\n99.9% {}ms", report.latency.p99, report.latency.p999);
    anyhow::ensure!(report.failed == 0, "{} requests failed: {:?}", report.failed, report.faults);
    Ok(())
}
