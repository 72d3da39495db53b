//! The demo: a small shop on loopback, sometimes slow and sometimes failing, a plan that tests it, and its earlier runs.

mod past;

use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use hob_database::PageRequest;
use hob_service::Task;
use tokio::net::TcpListener;

use crate::Error;
use crate::load::{Load, RunRequest};
use crate::plan::PlanSource;
use crate::plan::catalog::PlanId;

const PLAN: &str = include_str!("demo/shop.toml");
const RUN_TYPE: &str = "evening";
/// Between two runs.
const RUN_INTERVAL: Duration = Duration::from_secs(45);
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Starts the shop, adds the plan and its earlier runs, and runs it again and again.
pub(crate) async fn start(load: &Load) -> Result<(), Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let stopped = load.inner.context.tasks.stop_token();
    tokio::spawn(async move {
        tokio::select! {
            served = axum::serve(listener, shop()).into_future() => {
                if let Err(error) = served {
                    tracing::warn!(%error, "demo shop of the load service stopped");
                }
            }
            () = stopped.cancelled() => {}
        }
    });
    let source = PlanSource::toml(PLAN.replace("http://127.0.0.1:8080", &format!("http://{address}")));
    let plan_id = load.add_plan(&source).await?;
    let plan = source.read()?;
    past::write(load, plan_id, &plan, plan.run_type(RUN_TYPE).unwrap_or(0)).await?;
    let this = load.clone();
    load.inner.context.tasks.spawn_demo("load demo", move |task| {
        let load = this.clone();
        async move {
            if let Err(error) = run_repeatedly(&load, &task, plan_id).await {
                tracing::warn!(%error, "demo of the load service failed");
            }
        }
    });
    Ok(())
}

fn shop() -> Router {
    Router::new()
        .route("/", get(async || answer(4.0, 0.002).await))
        .route("/search", get(async || answer(12.0, 0.005).await))
        .route("/orders", post(async || answer(25.0, 0.02).await))
}

/// Takes about `typical_ms`, rarely 12 times as long, and fails with probability `failing`.
async fn answer(typical_ms: f64, failing: f64) -> (StatusCode, &'static str) {
    let luck: f64 = rand::random();
    let factor = if luck < 0.01 { 12.0 } else { 0.5 + 2.0 * luck * luck };
    tokio::time::sleep(Duration::from_secs_f64(typical_ms * factor / 1000.0)).await;
    if rand::random::<f64>() < failing {
        return (StatusCode::SERVICE_UNAVAILABLE, "{\"ok\": false}");
    }
    (StatusCode::OK, "{\"ok\": true, \"id\": 17}")
}

async fn run_repeatedly(load: &Load, task: &Task, plan: PlanId) -> Result<(), Error> {
    loop {
        queue(load, plan).await?;
        while !is_idle(load).await? {
            if !task.pause(POLL_INTERVAL).await {
                return Ok(());
            }
            task.heartbeat();
        }
        if !task.pause(RUN_INTERVAL).await {
            return Ok(());
        }
    }
}

async fn queue(load: &Load, plan: PlanId) -> Result<(), Error> {
    let request = RunRequest { run_type: Some(RUN_TYPE.into()), ..RunRequest::default() };
    load.queue_run(plan, &request).await.map(drop)
}

/// Whether no run is pending or active.
async fn is_idle(load: &Load) -> Result<bool, Error> {
    let newest = load.runs(None, &PageRequest::first(10)).await?.rows;
    Ok(newest.iter().all(|run| run.state.is_final()))
}
