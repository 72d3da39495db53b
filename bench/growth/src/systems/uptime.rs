//! Checks of monitors at the same rate, with more and more monitors and longer intervals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use serde_json::json;

use crate::deployment::{Cost, Deployment, serve};

/// Checks per second, for every number of monitors.
const RATE: u64 = 100;
/// How long checks are measured.
const MEASURED: Duration = Duration::from_secs(30);

pub(crate) async fn measure(monitors: u64) -> Result<Cost> {
    let checks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&checks);
    let answer = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { "ok" }
    };
    let target = serve(Router::new().fallback(answer)).await?;
    let deployment = Deployment::start("uptime", "")?;
    let spec = |number: u64| {
        json!({
            "name": format!("monitor {number}"), "kind": "http", "target": format!("http://{target}/{number}"),
            "interval_s": monitors / RATE, "timeout_s": 1,
        })
    };
    let requests = (0..monitors).map(|number| ("/api/v1/uptime/monitors".to_owned(), spec(number)));
    deployment.post_all(requests).await?;
    let (work, before) = (deployment.work()?, checks.load(Ordering::Relaxed));
    tokio::time::sleep(MEASURED).await;
    work.per_unit(checks.load(Ordering::Relaxed) - before)
}
