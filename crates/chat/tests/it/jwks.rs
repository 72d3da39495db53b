//! Tokens that an identity provider signs with keys that it publishes at a URL.

use std::time::Duration;

use axum::http::StatusCode;
use hob_chat::{Chat, Config};
use hob_fixtures::{KeyAlgorithm, Layout, TestApp, TestContext, TestIssuer, TokenSignature};
use hob_service::Period;
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, config, start};

/// A node that accepts tokens of a provider.
struct Site {
    issuer: TestIssuer,
    app: TestApp,
    chat: Chat,
    _context: TestContext,
}

impl Site {
    async fn start(issuer: TestIssuer, config: Config) -> Self {
        let context = TestContext::embedded(NEEDS, Layout::Plain).await;
        let chat = start(context.context(), config).await;
        let app = TestApp::start(context.context(), chat.routes()).await;
        Self { issuer, app, chat, _context: context }
    }

    fn token(&self, who: &str) -> String {
        self.issuer.token(&claims(who, json!({})))
    }

    /// The reply to a connection attempt, or the code with which it ends.
    async fn connect(&self, token: &str) -> Result<Client, u16> {
        let mut client = Client::open(&self.app).await;
        client.send(json!({"id": 1, "connect": {"token": token}}).to_string()).await;
        match client.first_or_end().await {
            None => Ok(client),
            Some(code) => Err(code),
        }
    }

    async fn code(&self, token: &str) -> Option<u16> {
        self.connect(token).await.err()
    }
}

fn claims(who: &str, more: Value) -> Value {
    let mut claims = json!({"sub": who, "exp": jiff::Timestamp::now().as_second() + 600});
    let Value::Object(more) = more else { panic!("not an object: {more}") };
    claims.as_object_mut().unwrap().extend(more);
    claims
}

fn fetching(issuer: &TestIssuer) -> Config {
    Config { token_jwks_url: Some(issuer.keys_url().try_into().unwrap()), ..config() }
}

fn lifetime(issuer: &TestIssuer, refresh: Duration, max_age: Duration) -> Config {
    let (refresh, max_age) = (Period::from_millis(refresh.as_millis() as u64), max_age.as_millis() as u64);
    Config {
        token_jwks_refresh: refresh,
        token_jwks_max_age: Period::from_millis(max_age),
        ..fetching(issuer)
    }
}

#[tokio::test]
async fn published_keys_verify_both_algorithms() {
    for algorithm in [KeyAlgorithm::Es256, KeyAlgorithm::Rs256] {
        let issuer = TestIssuer::start_with(algorithm).await;
        let settings = fetching(&issuer);
        let site = Site::start(issuer, settings).await;
        for who in ["anna", "ben"] {
            assert_eq!(site.code(&site.token(who)).await, None);
        }
        assert_eq!(site.issuer.key_requests(), 1, "the keys are cached");
        assert!(site.chat.issue_token(&crate::harness::user("anna"), LIMIT).is_none(), "no secret");

        for signature in [TokenSignature::Missing, TokenSignature::PublicKeyAsSecret] {
            site.issuer.set_signature(signature);
            assert_eq!(site.code(&site.token("anna")).await, Some(3500), "{signature:?}");
        }
        site.issuer.set_signature(TokenSignature::Genuine);
        let token = site.token("anna");
        let (head, signature) = token.rsplit_once('.').unwrap();
        let changed = if signature.starts_with('A') { "B" } else { "A" };
        assert_eq!(site.code(&format!("{head}.{changed}{}", &signature[1..])).await, Some(3500));
        assert_eq!(site.issuer.key_requests(), 1, "known keys are not fetched again");
    }
}

#[tokio::test]
async fn replaced_key_is_fetched_and_unknown_keys_are_not_fetched_each_time() {
    let issuer = TestIssuer::start().await;
    let settings = fetching(&issuer);
    let site = Site::start(issuer, settings).await;
    let old = site.token("anna");
    assert_eq!(site.code(&old).await, None);
    site.issuer.rotate_key();
    let new = site.token("anna");
    let codes = futures_util::future::join_all((0..8).map(|_| site.code(&new))).await;
    assert_eq!(codes, [None; 8], "connections at the same time share a request");
    assert_eq!(site.issuer.key_requests(), 2);

    site.issuer.set_signature(TokenSignature::UnknownKey);
    for token in [&site.token("anna"), &old] {
        // The client tries again: this may be a key that was just published.
        assert_eq!(site.code(token).await, Some(3004));
    }
    assert_eq!(site.issuer.key_requests(), 2, "not each time");
    assert_eq!(site.code(&new).await, None);
}

#[tokio::test]
async fn unknown_key_is_invalid_after_the_keys_were_fetched() {
    let issuer = TestIssuer::start().await;
    let settings = fetching(&issuer);
    let site = Site::start(issuer, settings).await;
    assert_eq!(site.code(&site.token("anna")).await, None);
    site.issuer.set_signature(TokenSignature::UnknownKey);
    assert_eq!(site.code(&site.token("anna")).await, Some(3500));
    assert_eq!(site.issuer.key_requests(), 2);
}

#[tokio::test]
async fn withdrawn_key_is_refused_after_the_refresh_interval() {
    let issuer = TestIssuer::start().await;
    let settings = lifetime(&issuer, Duration::from_secs(1), LIMIT);
    let site = Site::start(issuer, settings).await;
    let old = site.token("anna");
    assert_eq!(site.code(&old).await, None);
    site.issuer.rotate_key();
    wait_for("the old key to be refused", LIMIT, async || site.code(&old).await.is_some()).await;
    assert_eq!(site.code(&site.token("anna")).await, None);
}

#[tokio::test]
async fn tokens_are_refused_until_keys_can_be_fetched() {
    let issuer = TestIssuer::start().await;
    issuer.set_key_status(StatusCode::SERVICE_UNAVAILABLE);
    let settings = fetching(&issuer);
    let site = Site::start(issuer, settings).await;
    let token = site.token("anna");
    for _ in 0..5 {
        assert_eq!(site.code(&token).await, Some(3004), "the client tries again");
    }
    assert!(site.issuer.key_requests() <= 2, "the URL is not requested for each connection");
    site.issuer.set_key_status(StatusCode::OK);
    wait_for("the keys", LIMIT, async || site.code(&token).await.is_none()).await;
}

#[tokio::test]
async fn keys_stay_valid_while_the_url_is_down_up_to_their_maximum_age() {
    let issuer = TestIssuer::start().await;
    let max_age = Duration::from_secs(6);
    let settings = lifetime(&issuer, Duration::from_secs(1), max_age);
    let mut site = Site::start(issuer, settings).await;
    let token = site.token("anna");
    let before_fetch = std::time::Instant::now();
    assert_eq!(site.code(&token).await, None);
    let stopped = std::mem::replace(&mut site.issuer, TestIssuer::start().await);
    let _closed = stopped.stop().await;
    // Only connections that certainly began before the keys were too old.
    let mut accepted_late = false;
    while before_fetch.elapsed() < max_age {
        let code = site.code(&token).await;
        let age = before_fetch.elapsed();
        if age < max_age {
            assert_eq!(code, None, "{age:?}");
            accepted_late |= age > Duration::from_secs(2);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(accepted_late, "keys were used after they could not be fetched again");
    wait_for("the keys to be too old", LIMIT, async || site.code(&token).await == Some(3004)).await;
    assert_eq!(site.code(&token).await, Some(3004));
}

#[tokio::test]
async fn audience_and_issuer_are_required_if_they_are_set() {
    let issuer = TestIssuer::start().await;
    let settings =
        Config { token_audience: "chat".to_owned(), token_issuer: issuer.url(), ..fetching(&issuer) };
    let site = Site::start(issuer, settings).await;
    let url = site.issuer.url();
    for (more, code) in [
        (json!({"aud": "chat", "iss": url}), None),
        (json!({"aud": ["shop", "chat"], "iss": url}), None),
        (json!({"aud": "shop", "iss": url}), Some(3500)),
        (json!({"aud": "chat", "iss": "https://other.example"}), Some(3500)),
        (json!({"aud": "chat"}), Some(3500)),
        (json!({}), Some(3500)),
    ] {
        let token = site.issuer.token(&claims("anna", more.clone()));
        assert_eq!(site.code(&token).await, code, "{more}");
    }
}

#[tokio::test]
async fn published_keys_verify_subscription_tokens() {
    let issuer = TestIssuer::start().await;
    let namespaces = [("private".to_owned(), hob_chat::Namespace::default())].into();
    let settings = Config { namespaces, ..fetching(&issuer) };
    let site = Site::start(issuer, settings).await;
    let mut client = site.connect(&site.token("anna")).await.unwrap();
    let subscription =
        |who: &str, channel: &str| site.issuer.token(&claims(who, json!({"channel": channel})));
    for (token, error) in [
        (subscription("ben", "private:a"), json!(103)),
        (subscription("anna", "private:b"), json!(103)),
        (site.token("anna"), json!(103)),
        (subscription("anna", "private:a"), Value::Null),
    ] {
        let request = json!({"subscribe": {"channel": "private:a", "token": token}});
        let reply = client.call(request).await;
        assert_eq!(reply["error"]["code"], error, "{reply}");
    }
    assert_eq!(site.code(&subscription("anna", "private:a")).await, Some(3500), "not for connections");
}
