//! The limit of wrong credentials per address.

use hob_fixtures::{Layout, TestContext, TestResponse};
use hob_web::Config;
use http::header::HeaderName;
use serde_json::Value;

use crate::protected::{ADMIN, NEEDS, ProtectedApp, token};

const GNOMES: &str = "/api/v1/garden/gnomes";

#[track_caller]
fn assert_throttled(answer: &TestResponse) {
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert!((1..=60).contains(&answer.header("retry-after").parse::<u32>().unwrap()));
}

#[tokio::test]
async fn sign_in_attempts_and_wrong_tokens_are_limited_together() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    let (used, unused) = (token(&context, "garden:read").await.0, token(&context, "garden:read").await.0);
    let cookie = protected.sign_in(ADMIN).await;
    assert_eq!(protected.with_token(&used).get(GNOMES).await.status, 200);
    for number in 0..5 {
        let guess = format!("guess {number}");
        let refused = protected.anonymous().submit("/sign-in", &[("token", &guess)]).await;
        assert_eq!(refused.status, 403);
        assert!(refused.text().contains("not valid"));
        assert_eq!(refused.header("set-cookie"), "");
        assert_eq!(protected.with_token(&format!("hob_guess {number}")).get(GNOMES).await.status, 401);
    }
    assert_throttled(&protected.anonymous().submit("/sign-in", &[("token", ADMIN)]).await);
    assert_throttled(&protected.with_token(ADMIN).get(GNOMES).await);
    assert_throttled(&protected.with_token(&unused).get(GNOMES).await);
    assert_eq!(protected.with_token(ADMIN).get("/sign-in").await.status, 200, "public pages are not limited");
    assert_eq!(protected.with_token(&used).get(GNOMES).await.status, 200, "a token in use stays valid");
    let log: Value = protected.with_cookie(&cookie).get("/api/v1/audit?limit=1").await.json();
    assert_eq!(log["items"][0]["what"], "session.refuse", "sessions are not limited");
}

#[tokio::test]
async fn program_that_repeats_an_expired_token_does_not_block_others() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    for _ in 0..50 {
        assert_eq!(protected.with_token("hob_expired").get(GNOMES).await.status, 401);
    }
    assert_eq!(protected.with_token(ADMIN).get(GNOMES).await.status, 200);
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_are_limited_one_by_one() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let config = Config { trusted_proxies: vec!["127.0.0.1".parse().unwrap()], ..Config::default() };
    let mut protected = ProtectedApp::with(&context, config).await;
    let forwarded_for = HeaderName::from_static("x-forwarded-for");
    for number in 0..10 {
        protected.with_token(&format!("hob_guess {number}"));
        // What a client invents stands to the left of its address.
        protected.app.use_header(forwarded_for.clone(), &format!("192.0.2.{number}, 203.0.113.7"));
        assert_eq!(protected.app.get(GNOMES).await.status, 401);
    }
    protected.with_token(ADMIN);
    protected.app.use_header(forwarded_for.clone(), "203.0.113.7");
    assert_throttled(&protected.app.get(GNOMES).await);
    protected.app.use_header(forwarded_for, "203.0.113.8");
    assert_eq!(protected.app.get(GNOMES).await.status, 200);
}

#[tokio::test]
async fn forwarded_address_of_an_untrusted_client_is_ignored() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    for number in 0..10 {
        protected.with_token(&format!("hob_guess {number}"));
        protected.app.use_header(HeaderName::from_static("x-forwarded-for"), &format!("192.0.2.{number}"));
        assert_eq!(protected.app.get(GNOMES).await.status, 401);
    }
    assert_throttled(&protected.with_token(ADMIN).get(GNOMES).await);
}
