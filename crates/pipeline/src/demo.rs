//! The demo: a fake of the CourtListener API, a run that fetches from it under a small quota, and two earlier runs.

pub mod fake_api;
mod past;

use std::time::Duration;

use hob_database::PageRequest;

use crate::demo::fake_api::{FakeApi, FakeApiConfig, Fault};
use crate::error::{Error, Result};
use crate::pipeline::Pipelines;

/// Starts the fake API on loopback, and a run that calls it.
pub(crate) async fn start(pipelines: &Pipelines) -> Result<()> {
    let limits = vec![(40, Duration::from_secs(60)), (1500, Duration::from_secs(3600))];
    let latency = Duration::from_millis(120);
    let config = FakeApiConfig { dockets: 400, entries: 2, page: 20, limits, token: None, latency };
    let cannot = |source| Error::File { what: "the fake API".to_owned(), source };
    let api = FakeApi::start(config).await.map_err(cannot)?;
    for (path, fault) in [
        ("/dockets/2/", Fault::Status(500)),
        ("/dockets/5/", Fault::Status(403)),
        ("/dockets/9/", Fault::Garbage),
        ("/dockets/9/", Fault::Garbage),
        ("/dockets/9/", Fault::Garbage),
        ("/dockets/13/", Fault::Truncated),
    ] {
        api.fail(path, fault);
    }
    let text = include_str!("../../../examples/pipelines/courtlistener.toml");
    let text = text.replace("https://www.courtlistener.com/api/rest/v4", &api.url());
    let text = text.replace("5/1m, 50/1h, 125/1d", "40/1m, 1500/1h").replace("buffer = 1", "buffer = 2");
    // The fake API needs no token.
    let lines = text.lines().filter(|line| !line.starts_with("headers"));
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    let plan = pipelines.put_plan(&text).await?;
    if pipelines.runs(&PageRequest::first(1)).await?.rows.is_empty() {
        let other = pipelines.put_plan(&text.replace("courtlistener", "opinions")).await?;
        past::write(pipelines, &plan, &other).await?;
        pipelines.start_run(&plan.name, None).await?;
    }
    // The fake API runs until the service stops.
    let stopped = pipelines.shared.context.tasks.stop_token();
    tokio::spawn(async move {
        stopped.cancelled().await;
        drop(api);
    });
    Ok(())
}
