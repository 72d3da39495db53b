//! Slow tests.

use hob_fixtures::{Layout, TestContext};
use hob_testkit::{budget, run_schemathesis};

use crate::protected::{ADMIN, NEEDS, ProtectedApp};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_api_response_matches_the_openapi_document() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let protected = ProtectedApp::start(&context).await;
    // This route always panics.
    let exclude = ["--exclude-path", "/api/v1/garden/trip"];
    run_schemathesis(&protected.app.url("/api/openapi.json"), ADMIN, budget(20, 500), &exclude).await;
}
