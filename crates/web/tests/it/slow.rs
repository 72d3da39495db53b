//! What takes its time.

use hob_fixtures::{Layout, TestContext};
use hob_testkit::{budget, run_schemathesis};

use crate::door::{ADMIN, Locked, NEEDS};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_api_response_matches_the_openapi_document() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let door = Locked::start(&context).await;
    // The one route that is there to fail.
    let but = ["--exclude-path", "/api/v1/garden/trip"];
    run_schemathesis(&door.app.url("/api/openapi.json"), ADMIN, budget(20, 500), &but).await;
}
