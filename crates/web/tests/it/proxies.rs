//! Requests that a proxy has forwarded.

use hob_fixtures::{Layout, TestApp, TestContext};
use hob_web::Config;
use http::header::HeaderName;
use serde_json::Value;

use crate::garden::{Garden, routes};
use crate::protected::{ADMIN, NEEDS, ProtectedApp};

const GNOMES: &str = "/api/v1/garden/gnomes";

/// A proxy on the same machine would make everyone an admin.
#[tokio::test]
async fn server_without_an_admin_token_refuses_forwarded_requests() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut app = TestApp::start(&context, routes(Garden::default())).await;
    assert_eq!(app.get(GNOMES).await.status, 200);
    for (name, value) in [
        ("forwarded", "for=203.0.113.7"),
        ("via", "1.1 proxy"),
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-host", "hob.example"),
        ("x-forwarded-proto", "https"),
        ("x-real-ip", "203.0.113.7"),
    ] {
        app.forget_headers();
        app.use_header(HeaderName::from_static(name), value);
        for path in [GNOMES, "/garden", "/live?topics=garden", "/sign-in"] {
            let answer = app.get(path).await;
            assert_eq!(answer.status, 403, "{name} {path}");
            assert!(
                answer.text().contains("Set HOB_ADMIN_TOKEN or [server] admin_token"),
                "{}",
                answer.text()
            );
        }
    }
    app.forget_headers();
    assert_eq!(app.get("/garden").await.status, 200);
}

#[tokio::test]
async fn server_with_an_admin_token_accepts_forwarded_requests() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    protected.with_token(ADMIN);
    protected.app.use_header(HeaderName::from_static("x-forwarded-for"), "203.0.113.7");
    let gnomes: Value = protected.app.get(GNOMES).await.json();
    assert_eq!(gnomes, serde_json::json!([]));
}

#[tokio::test]
async fn session_cookie_is_secure_behind_a_trusted_tls_proxy() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let trusting = Config { trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()], ..Config::default() };
    for (config, scheme, secure) in [
        (trusting.clone(), Some("https"), true),
        (trusting.clone(), Some("http"), false),
        (trusting, None, false),
        (Config::default(), Some("https"), false),
    ] {
        let mut protected = ProtectedApp::with(&context, config.clone()).await;
        protected.anonymous();
        if let Some(scheme) = scheme {
            protected.app.use_header(HeaderName::from_static("x-forwarded-proto"), scheme);
        }
        let signed_in = protected.app.submit("/sign-in", &[("token", ADMIN)]).await;
        let signed_out = protected.app.submit("/sign-out", &[]).await;
        for answer in [signed_in, signed_out] {
            let set = answer.header("set-cookie");
            assert!(set.starts_with("hob_session="), "{set}");
            assert_eq!(set.contains("; Secure"), secure, "{scheme:?} {:?}: {set}", config.trusted_proxies);
        }
    }
}
