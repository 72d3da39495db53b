//! Whatever another client writes into a key of pipelines, runs and other quotas are not affected, and the key is repaired.

use std::time::Duration;

use hob_fixtures::{ForeignClient, Layout, TestApp, TestContext};
use hob_pipeline::fake_api::{FakeApi, FakeApiConfig, Fault};
use hob_pipeline::run::RunState;
use hob_service::Live;
use hob_testkit::{LIMIT, wait_for};
use hob_web::{Service as _, Web};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::runs::{api_config, plan, start_run};
use crate::support::{NEEDS, start};

async fn runs_and_other_quotas_are_not_affected(context: TestContext) {
    let limits = vec![(1_000_000, Duration::from_secs(60))];
    let latency = Duration::from_millis(300);
    let config = FakeApiConfig { dockets: 20_000, entries: 0, limits, latency, ..api_config() };
    let api = FakeApi::start(config).await.unwrap();
    for docket in 1..=20_000 {
        if docket % 2 == 0 {
            api.fail(&format!("/dockets/{docket}/"), Fault::Status(404));
        }
    }
    let folder = TempDir::new().unwrap();
    let web = Web::open(context.context(), Live::fixed(hob_web::Config::default())).unwrap();
    let pipelines = start(context.context(), folder.path(), web.changes()).await;
    let app = TestApp::start_with(web.clone(), pipelines.routes()).await;
    let text = plan(&api).replace("windows = \"1000/1m\"", "windows = \"100000/1m\"");
    let run = start_run(&pipelines, &text).await;
    let put = app.put("/api/v1/quota/other", &json!({ "windows": "100000/1h" })).await;
    assert_eq!(put.status, 200, "{put:?}");
    let work = async |what: &str| {
        // The run shares this quota, so the reservation may have to wait for its turn.
        let reserved = app.post("/api/v1/quota/api/reserve", &json!({})).await;
        assert_eq!(reserved.status, 200, "{what}: {}", reserved.text());
        let granted: Value = app.post("/api/v1/quota/other/reserve", &json!({})).await.json();
        assert_eq!(granted["granted"], true, "{what}: {granted}");
        let calls = pipelines.run(&run.id).await.unwrap().calls;
        wait_for(format_args!("another call of the run after {what}"), LIMIT, async || {
            let run = pipelines.run(&run.id).await.unwrap();
            assert_eq!(run.state, RunState::Running, "{what}: {run:?}");
            if run.calls > calls { Ok(()) } else { Err(run) }
        })
        .await;
        for page in [
            "/pipelines",
            "/api/v1/pipelines",
            "/api/v1/pipelines/runs",
            "/api/v1/pipelines/health",
            "/api/v1/quota",
        ] {
            let response = app.get(page).await;
            assert_eq!(response.status, 200, "{page} after {what}: {}", response.text());
        }
    };
    ForeignClient::new(&context, "api", []).overwrite_each_family(work).await;
}

/// P1–P8
#[tokio::test(flavor = "multi_thread")]
async fn runs_are_not_affected_by_foreign_values_on_the_embedded_engine() {
    runs_and_other_quotas_are_not_affected(TestContext::embedded(NEEDS, Layout::Plain).await).await;
}

/// P1–P8
#[tokio::test(flavor = "multi_thread")]
async fn runs_are_not_affected_by_foreign_values_on_redis() {
    runs_and_other_quotas_are_not_affected(TestContext::redis(NEEDS).await).await;
}
