//! The demo: a small shop on loopback that is sometimes slow and sometimes fails, and tests that are run against it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use hob_database::PageRequest;
use hob_service::Task;
use tokio::net::TcpListener;

use crate::Error;
use crate::load::{Load, Wish};
use crate::plan::Written;
use crate::plan::catalog::PlanId;

const PLAN: &str = include_str!("demo/shop.toml");
/// Between two runs.
const REST: Duration = Duration::from_secs(45);
const LOOK: Duration = Duration::from_secs(2);

/// Opens the demo's shop, and tests it now and then.
pub(crate) fn start(tests: &Load) {
    let this = tests.clone();
    tests.inner.context.tasks.spawn("load demo", move |task| {
        let tests = this.clone();
        async move {
            if let Err(error) = demonstrate(&tests, &task).await {
                tracing::warn!(%error, "load demo stopped");
            }
        }
    });
}

async fn demonstrate(tests: &Load, task: &Task) -> Result<(), Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let serving = axum::serve(listener, shop()).into_future();
    tokio::select! {
        served = serving => served.map_err(Error::from),
        tested = test_now_and_then(tests, task, address) => tested,
        () = task.stopped() => Ok(()),
    }
}

fn shop() -> Router {
    Router::new()
        .route("/", get(async || answer(4.0, 0.002).await))
        .route("/search", get(async || answer(12.0, 0.005).await))
        .route("/orders", post(async || answer(25.0, 0.02).await))
}

/// Takes about so long, rarely far longer, and fails now and then.
async fn answer(typical_ms: f64, failing: f64) -> (StatusCode, &'static str) {
    let luck: f64 = rand::random();
    let factor = if luck < 0.01 { 12.0 } else { 0.5 + 2.0 * luck * luck };
    tokio::time::sleep(Duration::from_secs_f64(typical_ms * factor / 1000.0)).await;
    if rand::random::<f64>() < failing {
        return (StatusCode::SERVICE_UNAVAILABLE, "{\"ok\": false}");
    }
    (StatusCode::OK, "{\"ok\": true, \"id\": 17}")
}

async fn test_now_and_then(tests: &Load, task: &Task, address: SocketAddr) -> Result<(), Error> {
    let source = PLAN.replace("http://127.0.0.1:8080", &format!("http://{address}"));
    let plan = tests.add_plan(&Written::toml(source)).await?;
    loop {
        queue(tests, plan).await?;
        while !rests(tests).await? {
            if !task.pause(LOOK).await {
                return Ok(());
            }
            task.beat();
        }
        if !task.pause(REST).await {
            return Ok(());
        }
    }
}

async fn queue(tests: &Load, plan: PlanId) -> Result<(), Error> {
    let wish = Wish { run_type: Some("evening".into()), ..Wish::default() };
    tests.queue_run(plan, &wish).await.map(drop)
}

/// Whether nothing waits or runs.
async fn rests(tests: &Load) -> Result<bool, Error> {
    let newest = tests.runs(None, &PageRequest::first(10)).await?.rows;
    Ok(newest.iter().all(|run| run.state.is_final()))
}
