//! The API of the whole program, as its document describes it.

mod slow {
    use hob_testkit::{budget, run_schemathesis};

    use crate::program::Server;

    const ADMIN: &str = "an unguessable admin token";

    /// Streams have no end that an examination could wait for.
    const BUT_STREAMS: [&str; 2] = ["--exclude-path-regex", "(events|live)$"];

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whatever_is_asked_the_answer_is_in_the_document_and_never_500() {
        let server = Server::start_with(&["--demo"], &[("HOB_ADMIN_TOKEN", ADMIN), ("HOB_LOG", "error")]);
        run_schemathesis(&server.url("/api/openapi.json"), ADMIN, budget(3, 200), &BUT_STREAMS).await;
    }
}
