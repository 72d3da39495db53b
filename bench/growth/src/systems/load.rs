//! Requests of more and more virtual users, as fast as they can.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use axum::Router;
use serde_json::json;

use crate::deployment::{Cost, Deployment, serve, until};

const RUN: &str = "10s";
const ENDS_WITHIN: Duration = Duration::from_secs(60);

pub(crate) async fn measure(users: u64) -> Result<Cost> {
    let target = serve(Router::new().fallback(async || "ok")).await?;
    let deployment = Deployment::start("load", "")?;
    let plan = format!(
        "name = \"Growth\"\ntarget = \"http://{target}\"\n[[scenario]]\nname = \"all\"\n\
         load = {{ users = {users}, for = \"{RUN}\" }}\n[[scenario.step]]\nname = \"get\"\nrequest = \"GET /\"\n"
    );
    let plan = deployment.post("/api/v1/load/plans", &json!({ "source": plan })).await?;
    let plan = plan["id"].as_u64().context("a plan without an id")?;
    let work = deployment.work()?;
    let run = deployment.post(&format!("/api/v1/load/plans/{plan}/runs"), &json!({ "runners": 1 })).await?;
    let run = run["id"].as_str().context("a run without an id")?;
    until(ENDS_WITHIN, async || {
        let state = deployment.get(&format!("/api/v1/load/runs/{run}")).await?["state"].clone();
        match state.as_str() {
            Some("completed") => Ok(Some(())),
            Some("pending" | "starting" | "running" | "stopping") => Ok(None),
            other => bail!("the run is {other:?}"),
        }
    })
    .await?;
    let report = deployment.get(&format!("/api/v1/load/runs/{run}/report")).await?;
    work.per_unit(report["requests"].as_u64().context("a report without requests")?)
}
