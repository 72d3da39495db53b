//! A run with more and more items, with a quota that it does not reach.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, bail};
use axum::Router;
use serde_json::json;

use crate::deployment::{Cost, Deployment, serve, until};

const ENDS_WITHIN: Duration = Duration::from_secs(600);

pub(crate) async fn measure(items: u64) -> Result<Cost> {
    let api = serve(Router::new().fallback(async || axum::Json(json!({ "id": 1 })))).await?;
    let deployment = Deployment::start("pipeline", "")?;
    let mut keys = String::new();
    for item in 0..items {
        let _ = writeln!(keys, "item-{item}");
    }
    let folder = deployment.folder().join("hob-data/pipelines");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("items.txt"), keys)?;
    let plan = format!(
        "name = \"growth\"\nquota = {{ name = \"api\", windows = \"100000/1h\" }}\n\
         [source]\nstep = \"item\"\nfile = \"items.txt\"\n\
         [step.item]\nget = \"http://{api}/items/${{key}}\"\nextract = {{ id = \"$.id\" }}\nsink = \"out\"\n\
         [sink.out]\njsonl = \"out.jsonl\"\n[http]\nper_host = 16\n"
    );
    deployment.post("/api/v1/pipelines", &json!({ "source": plan })).await?;
    let work = deployment.work()?;
    deployment.post("/api/v1/pipelines/growth/runs", &json!({ "id": "run" })).await?;
    until(ENDS_WITHIN, async || {
        let state = deployment.get("/api/v1/pipelines/runs/run").await?["state"].clone();
        match state.as_str() {
            Some("completed") => Ok(Some(())),
            Some("failed" | "cancelled" | "paused") => bail!("the run is {state}"),
            _ => Ok(None),
        }
    })
    .await?;
    work.per_unit(items)
}
