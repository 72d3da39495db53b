//! Whatever another client writes into a key of load, runs go on, and the key is repaired.

use std::time::Duration;

use hob_database::UnixMs;
use hob_fixtures::{Exception, ForeignClient, Layout, TestApp, TestContext};
use hob_load::{Config, KeyPlanId, Keys, Load, LogStream, RunRequest, RunState, SessionId};
use hob_service::Live;
use hob_store::cmd;
use hob_testkit::{HttpServer, LIMIT, Reply, wait_for};
use hob_web::Service as _;

use crate::kit::{NEEDS, add, queue, run, wait_for_state, worker_config};

async fn runs_are_not_affected(context: TestContext) {
    let config = Config { max_concurrent_runs: 2, ..worker_config() };
    let load = Load::open(context.context(), Live::fixed(config)).await.unwrap();
    let app = TestApp::start(context.context(), load.routes()).await;
    load.start(app.web().changes());
    let server = HttpServer::start(|n| {
        if n % 3 == 0 {
            Reply::Raw(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n".to_vec())
        } else {
            Reply::After(Duration::from_millis(1))
        }
    });
    let plan = add(&load, &server.url(""), 10, "1h").await;
    let victim = queue(&load, plan, RunRequest::default()).await;
    wait_for_state(&load, &victim, RunState::Running).await;
    let other = queue(&load, plan, RunRequest::default()).await;
    wait_for_state(&load, &other, RunState::Running).await;
    let waiting = queue(&load, plan, RunRequest::default()).await;
    let (keys, plan_id) = (Keys::new(context.layout), KeyPlanId::new(plan.0).unwrap());
    let session = SessionId::new("session").unwrap();
    let work = async |what: &str| {
        let _ = load
            .views()
            .add_session(&run(&load, &victim).await, UnixMs::now(), &session, "127.0.0.1", 1)
            .await;
        // The cache may expire at any time; then the plan is loaded.
        let expired = context.store.run::<u64>(cmd("DEL").arg(keys.plan(&plan_id)).clone()).await;
        expired.expect("the store answers");
        let cached = load.cache().plan(plan).await.unwrap();
        assert!(cached.is_some(), "the plan after {what}");
        let _ = load.cache().groups(plan, "smoke").await;
        let _ = load.cache().users(plan, "smoke").await;
        let _ = load.logs().read(&victim, LogStream::All, 0, 10).await;
        for id in [&victim, &other] {
            assert_eq!(run(&load, id).await.state, RunState::Running, "{id} after {what}");
        }
        assert_eq!(run(&load, &waiting).await.state, RunState::Pending, "{what}");
        let before = server.requests();
        wait_for("requests", LIMIT, async || server.requests() > before).await;
        for page in [
            "/load".to_owned(),
            format!("/load/plans/{plan}"),
            format!("/load/runs/{other}"),
            format!("/load/runs/{victim}"),
        ] {
            let response = app.get(&page).await;
            assert_eq!(response.status, 200, "{page} after {what}: {}", response.text());
        }
    };
    let loading = Exception::Momentary(keys.loading(&plan_id));
    let client = ForeignClient::new(&context, victim.as_str(), [("loading", loading)]);
    client.overwrite_all_families(work).await;
}

/// L1–L10
#[tokio::test(flavor = "multi_thread")]
async fn runs_are_not_affected_by_foreign_values_on_the_embedded_engine() {
    runs_are_not_affected(TestContext::embedded(NEEDS, Layout::Plain).await).await;
}

/// L1–L10
#[tokio::test(flavor = "multi_thread")]
async fn runs_are_not_affected_by_foreign_values_on_redis() {
    runs_are_not_affected(TestContext::redis(NEEDS).await).await;
}
