//! What takes its time.

use hob_testkit::{Layout, TestApp, TestHouse, budget, examine_api};

use crate::door::NEEDS;
use crate::garden::{Garden, routes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_asked_of_the_api_the_answer_is_in_its_document() {
    let house = TestHouse::embedded(NEEDS, Layout::Plain).await;
    let app = TestApp::start(&house, routes(Garden::default())).await;
    // The one route that is there to fail.
    let but = ["--exclude-path", "/api/v1/garden/trip"];
    examine_api(&app.url("/api/openapi.json"), budget(20, 500), &but).await;
}
