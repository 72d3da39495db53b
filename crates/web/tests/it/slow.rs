//! What takes its time.

use hob_testkit::{Layout, TestContext, budget, examine_api};

use crate::door::{ADMIN, Locked, NEEDS};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_asked_of_the_api_the_answer_is_in_its_document() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let door = Locked::start(&context).await;
    // The one route that is there to fail.
    let but = ["--exclude-path", "/api/v1/garden/trip"];
    examine_api(&door.app.url("/api/openapi.json"), ADMIN, budget(20, 500), &but).await;
}
