//! Streams end when the credential of their client ends.

use hob_database::UnixMs;
use hob_fixtures::{Layout, TestApp, TestContext, every_service};
use hob_service::{Live, SecretRef};
use hob_testkit::LIMIT;
use hob_web::{Config, Tokens};

use crate::garden::{Garden, routes};
use crate::live::Events;
use crate::protected::{ADMIN, NEEDS, ProtectedApp, token, token_until};

const LIVE: &str = "/live?topics=garden";

async fn open(app: &TestApp) -> Events {
    let mut events = Events::open(app, LIVE).await;
    events.until("retry:").await.unwrap();
    events
}

#[track_caller]
fn assert_ended(rest: Option<&str>) {
    assert_eq!(rest, None, "the stream has ended");
}

every_service! {
    NEEDS;

    async fn stream_ends_on_every_node_when_its_token_is_revoked(context: TestContext) {
        let other = context.another_node().await;
        let (mut here, mut there) = (ProtectedApp::start(&context).await, ProtectedApp::start(&other).await);
        let (kept, _) = token(&context, "garden:read").await;
        let (revoked, id) = token(&context, "garden:read").await;
        let mut streams = [open(here.with_token(&revoked)).await, open(there.with_token(&revoked)).await];
        let mut kept = open(there.with_token(&kept)).await;
        assert_eq!(here.with_token(ADMIN).delete(&format!("/api/v1/tokens/{id}")).await.status, 204);
        for stream in &mut streams {
            assert_ended(stream.until("never").await.as_deref());
        }
        there.app.web().changes().notify("garden");
        kept.until("data: garden\n\n").await.expect("streams of other tokens stay open");
        other.tasks.stop(LIMIT).await;
    }
}

/// `hob token revoke` changes the database only; nothing is published.
#[tokio::test]
async fn stream_ends_when_its_token_is_revoked_in_the_database() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    let (secret, id) = token(&context, "garden:read").await;
    let mut stream = open(protected.with_token(&secret)).await;
    assert!(Tokens::new(&context.database).revoke(&id.into(), "a test").await.unwrap());
    assert_ended(stream.until("never").await.as_deref());
}

#[tokio::test]
async fn stream_ends_when_its_token_expires() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    let soon = UnixMs(UnixMs::now().0 + 2_000);
    let (secret, _) = token_until(&context, "garden:read", Some(soon)).await;
    // On a busy machine, the token may expire before.
    let response = protected.with_token(&secret).open(LIVE).await;
    if response.status() == 200 {
        assert_ended(Events::of(response).until("never").await.as_deref());
    }
}

#[tokio::test]
async fn stream_ends_when_its_session_or_the_token_behind_it_ends() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    let cookie = protected.sign_in(ADMIN).await;
    let mut stream = open(protected.with_cookie(&cookie)).await;
    assert_eq!(protected.with_cookie(&cookie).submit("/sign-out", &[]).await.status, 303);
    assert_ended(stream.until("never").await.as_deref());

    let (secret, id) = token(&context, "garden:read").await;
    let cookie = protected.sign_in(&secret).await;
    let mut stream = open(protected.with_cookie(&cookie)).await;
    protected.with_token(ADMIN).delete(&format!("/api/v1/tokens/{id}")).await;
    assert_ended(stream.until("never").await.as_deref());
}

#[tokio::test]
async fn streams_of_the_admin_end_when_the_token_is_replaced() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    let cookie = protected.sign_in(ADMIN).await;
    let mut streams = [open(protected.with_token(ADMIN)).await, open(protected.with_cookie(&cookie)).await];
    protected.replace_admin_token("another horse battery staple");
    for stream in &mut streams {
        assert_ended(stream.until("never").await.as_deref());
    }
}

#[tokio::test]
async fn open_streams_end_when_the_server_gets_an_admin_token() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let (config, replace) = Live::new(Config::default());
    let app = TestApp::start_with_config(&context, config, |_| routes(Garden::default())).await;
    let mut stream = open(&app).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin");
    std::fs::write(&path, ADMIN).unwrap();
    replace.replace(Config { admin_token: Some(SecretRef::File(path)), ..Config::default() });
    assert_ended(stream.until("never").await.as_deref());
}
