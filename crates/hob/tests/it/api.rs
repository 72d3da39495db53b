//! The HTTP API of the binary, checked against its OpenAPI document.

mod slow {
    use hob_testkit::{budget, run_schemathesis};

    use crate::program::Server;

    const ADMIN: &str = "an unguessable admin token";

    /// Event streams never end, so schemathesis cannot test them.
    const EXCLUDE_STREAMS: [&str; 2] = ["--exclude-path-regex", "(events|live)$"];

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn responses_match_the_openapi_document_and_are_never_500() {
        let server = Server::start_with(&["--demo"], &[("HOB_ADMIN_TOKEN", ADMIN), ("HOB_LOG", "error")]);
        run_schemathesis(&server.url("/api/openapi.json"), ADMIN, budget(3, 200), &EXCLUDE_STREAMS).await;
    }
}
