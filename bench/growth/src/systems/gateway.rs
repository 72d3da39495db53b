//! Checks of an exact limit, with more and more callers that have used it.

use anyhow::Result;
use serde_json::{Value, json};

use crate::deployment::{Cost, Deployment};

/// Checks in one request.
const BATCH: u64 = 100;
/// Checks that are measured.
const CHECKS: u64 = 20_000;

pub(crate) async fn measure(callers: u64) -> Result<Cost> {
    let settings =
        "[gateway]\n[[gateway.rules]]\nname = \"api\"\nwindows = \"1000/1h\"\napplies_to = \"checks\"\n";
    let deployment = Deployment::start("gateway", settings)?;
    let batches = |count: u64| (0..count / BATCH).map(move |batch| batch_of(batch, callers));
    deployment.post_all(batches(callers)).await?;
    let work = deployment.work()?;
    deployment.post_all(batches(CHECKS)).await?;
    work.per_unit(CHECKS)
}

/// A batch of checks, of callers that are spread over all.
fn batch_of(batch: u64, callers: u64) -> (String, Value) {
    // A prime, so that every caller is chosen before any is chosen again.
    let caller = |at: u64| (batch * BATCH + at) * 7_919 % callers;
    let checks: Vec<Value> =
        (0..BATCH).map(|at| json!({ "rule": "api", "key": format!("user:{}", caller(at)) })).collect();
    ("/api/v1/limits/check/batch".to_owned(), json!({ "checks": checks }))
}
