//! Requests are logged, and secrets are not.

use std::io::Write;
use std::sync::{Arc, Mutex};

use hob_fixtures::{Layout, TestContext};
use http::header::HeaderName;

use crate::protected::{ADMIN, NEEDS, ProtectedApp, token};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn requests_are_in_the_log_and_secrets_are_not() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    let (secret, _) = token(&context, "garden:read").await;
    protected.with_token(&secret);
    protected.app.use_header(HeaderName::from_static("x-request-id"), "the-first");
    assert_eq!(
        protected.app.get("/api/v1/garden/gnomes?min_height_cm=7&secret=in-the-query").await.status,
        200
    );
    let cookie = protected.sign_in(ADMIN).await;
    assert_eq!(protected.with_cookie(&cookie).get("/garden").await.status, 200);
    assert_eq!(protected.with_token("hob_mistyped-token").get("/api/v1/tokens").await.status, 401);

    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let line = text
        .lines()
        .find(|line| line.contains("hob::access") && line.contains("the-first"))
        .expect("a log line for the request");
    assert!(line.contains("/api/v1/garden/gnomes") && line.contains("status=200"), "{line}");
    let session = cookie.split_once('=').unwrap().1;
    for secret in [&*secret, session, ADMIN, "hob_mistyped-token", "in-the-query"] {
        assert!(!text.contains(secret), "{secret} is in the log:\n{text}");
    }
}
