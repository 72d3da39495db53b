//! Authentication, scopes, sessions and the audit log.

use hob_database::UnixMs;
use hob_fixtures::{Layout, TestContext, every_service};
use hob_service::{Live, Period};
use hob_testkit::{LIMIT, wait_for};
use hob_web::{Access, App, Config, DataKind, Error, Web};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::garden::{Garden, routes};
use crate::protected::{ADMIN, NEEDS, ProtectedApp, cookie, token, token_until};

const GNOMES: &str = "/api/v1/garden/gnomes";

every_service! {
    NEEDS;

    async fn token_grants_its_scopes_until_it_is_revoked(context: TestContext) {
        let mut protected = ProtectedApp::start(&context).await;
        let request = json!({"name": "ada", "scopes": ["garden:read"], "expires_in_days": 30});
        let created: Value = protected.with_token(ADMIN).post("/api/v1/tokens", &request).await.json();
        let (secret, id) = (created["secret"].as_str().unwrap(), created["token"]["id"].as_str().unwrap());
        assert!(secret.starts_with("hob_"), "{created}");

        assert_eq!(protected.with_token(secret).get(GNOMES).await.status, 200);
        let gnome = json!({"name": "robin", "height_cm": 30});
        assert_eq!(protected.with_token(secret).post(GNOMES, &gnome).await.status, 403);
        assert_eq!(protected.with_token(secret).get("/api/v1/tokens").await.status, 403);
        assert_eq!(protected.anonymous().get(GNOMES).await.status, 401);
        assert_eq!(protected.with_token("hob_nonsense").get(GNOMES).await.status, 401);

        protected.app.web().tidy().await.unwrap();
        let list = protected.with_token(ADMIN).get("/api/v1/tokens").await;
        assert!(!list.text().contains(secret), "a token is shown once");
        let listed: Value = list.json();
        assert_eq!(listed["items"][0]["name"], "ada");
        assert!(listed["items"][0]["used_at"].is_string(), "{listed}");

        let path = format!("/api/v1/tokens/{id}");
        assert_eq!(protected.with_token(ADMIN).delete(&path).await.status, 204);
        assert_eq!(protected.with_token(secret).get(GNOMES).await.status, 401, "the node that revoked the token rejects it at once");
        assert_eq!(protected.with_token(ADMIN).delete(&path).await.status, 404);

        let log: Value = protected.with_token(ADMIN).get("/api/v1/audit").await.json();
        let actions: Vec<_> = log["items"].as_array().unwrap().iter().map(|entry| &entry["what"]).collect();
        assert_eq!(actions, ["token.revoke", "token.create"]);
        assert_eq!(log["items"][0]["who"], "admin");
    }

    async fn changes_of_a_service_are_in_the_audit_log(context: TestContext) {
        let mut protected = ProtectedApp::start(&context).await;
        let (secret, _) = token(&context, "garden:write").await;
        let gnome = json!({"name": "robin", "height_cm": 30});
        assert_eq!(protected.with_token(&secret).post(GNOMES, &gnome).await.status, 201);
        assert_eq!(protected.with_token(&secret).post(GNOMES, &gnome).await.status, 409, "a rejected request is not logged");
        let form = [("name", "wren"), ("height_cm", "20")];
        assert_eq!(protected.with_token(&secret).submit("/garden", &form).await.status, 303);
        let log: Value = protected.with_token(ADMIN).get("/api/v1/audit").await.json();
        let entries = log["items"].as_array().unwrap().iter();
        let entries: Vec<_> = entries.map(|entry| (&entry["who"], &entry["what"])).collect();
        let name = log["items"][0]["who"].clone();
        assert_ne!(name, "admin");
        assert_eq!(entries[..2], [(&name, &json!("garden.gnome.plant")), (&name, &json!("garden.gnome.add"))]);
    }

    async fn session_lasts_until_it_is_ended(context: TestContext) {
        let mut protected = ProtectedApp::start(&context).await;
        let page = protected.anonymous().get("/garden").await;
        assert_eq!((page.status.as_u16(), page.header("location")), (303, "/sign-in?to=%2Fgarden"));
        assert!(protected.anonymous().get("/sign-in?to=/garden").await.text().contains("<form"));
        for (accepted, status) in [("*/*", 401), ("text/plain;version=0.0.4", 401), ("text/html,*/*;q=0.8", 303)] {
            assert_eq!(protected.accepting(accepted).get("/garden").await.status, status, "{accepted}");
        }

        let (secret, _) = token(&context, "garden:read").await;
        let cookie = protected.sign_in(&secret).await;
        assert_eq!(protected.with_cookie(&cookie).get("/garden").await.status, 200);
        assert_eq!(protected.with_cookie(&cookie).submit("/garden", &[]).await.status, 403, "the token may only read");
        let missing = protected.with_cookie(&cookie).get("/garden/nowhere").await;
        assert_eq!(missing.status, 404);
        assert!(missing.text().contains("href=\"/garden\""), "a signed-in user sees the navigation: {}", missing.text());
        let missing = protected.anonymous().get("/garden/nowhere").await.text();
        assert!(!missing.contains("href=\"/garden\""), "an anonymous user does not see the navigation: {missing}");

        let out = protected.with_cookie(&cookie).submit("/sign-out", &[]).await;
        assert_eq!((out.status.as_u16(), out.header("location")), (303, "/sign-in"));
        assert!(out.header("set-cookie").contains("Max-Age=0"));
        assert_eq!(protected.with_cookie(&cookie).get("/garden").await.status, 303, "the session has ended");
    }
}

#[tokio::test]
async fn every_route_requires_its_declared_access() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    let (reads, writes) = (token(&context, "garden:read").await.0, token(&context, "garden:write").await.0);
    let unrelated = token(&context, "pond:write").await.0;
    let web = Web::open(&context, Live::fixed(Config::default())).unwrap();
    let entries = App::new(&web, routes(Garden::default()), DataKind::Real).entries().to_vec();
    assert!(entries.iter().any(|entry| entry.access == Access::admin()));
    // Both are public: one responds only after `release_one`, the other has a very large response.
    let quick = |entry: &hob_web::RouteEntry| entry.path != "/garden/nap" && entry.path != "/garden/hay";
    for entry in entries.into_iter().filter(quick) {
        let path = entry
            .path
            .replace("{id}", "1")
            .replace("{name}", "1")
            .replace("{file}", "1")
            .replace("{*file}", "1");
        let method: Method = entry.method.parse().unwrap();
        let passes = match entry.access.to_string().as_str() {
            "public" => [true, true, true, true, true],
            "known" => [false, true, true, true, true],
            "garden:read" => [false, false, true, true, true],
            "garden:write" => [false, false, false, true, true],
            "admin" => [false, false, false, false, true],
            other => panic!("unknown access {other}: add its callers to this test"),
        };
        let callers = [None, Some(&unrelated), Some(&reads), Some(&writes), Some(&ADMIN.to_owned())];
        for (caller, passes) in callers.into_iter().zip(passes) {
            let app = match caller {
                Some(text) => protected.with_token(text),
                None => protected.anonymous(),
            };
            let answer = app.request(method.clone(), &path, None).await;
            let redirected = answer.header("location").starts_with("/sign-in?to=");
            let lacks_scope = answer.text().contains("This requires the scope");
            let refused = answer.status == StatusCode::UNAUTHORIZED || lacks_scope || redirected;
            assert_eq!(refused, !passes, "{} {} as {caller:?}: {}", entry.method, entry.path, answer.status);
        }
    }
}

#[tokio::test]
async fn expired_token_is_rejected() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    let (secret, _) = token_until(&context, "admin", Some(UnixMs(1))).await;
    assert_eq!(protected.with_token(&secret).get(GNOMES).await.status, 401);
    assert_eq!(protected.anonymous().submit("/sign-in", &[("token", &secret)]).await.status, 403);
    protected.app.web().tidy().await.unwrap();
    let listed: Value = protected.with_token(ADMIN).get("/api/v1/tokens").await.json();
    assert_eq!(listed["items"], json!([]), "an expired token is deleted");
}

#[tokio::test]
async fn revocation_reaches_other_nodes() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let other = context.another_node().await;
    let (mut here, mut there) = (ProtectedApp::start(&context).await, ProtectedApp::start(&other).await);
    let (secret, id) = token(&context, "garden:read").await;
    assert_eq!(there.with_token(&secret).get(GNOMES).await.status, 200);
    assert_eq!(here.with_token(ADMIN).delete(&format!("/api/v1/tokens/{id}")).await.status, 204);
    let there = there.with_token(&secret);
    wait_for("the other node to reject the token", LIMIT, async || there.get(GNOMES).await.status == 401)
        .await;
    other.tasks.stop(LIMIT).await;
}

#[tokio::test]
async fn session_ends_when_its_token_is_revoked_or_its_ttl_expires() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    let (secret, id) = token(&context, "garden:read").await;
    let cookie = protected.sign_in(&secret).await;
    assert_eq!(protected.with_cookie(&cookie).get("/garden").await.status, 200);
    protected.with_token(ADMIN).delete(&format!("/api/v1/tokens/{id}")).await;
    assert_eq!(protected.with_cookie(&cookie).get("/garden").await.status, 303);

    let short = Config { session_ttl: Period::from_millis(1), ..Config::default() };
    let mut protected = ProtectedApp::with(&context, short).await;
    let cookie = protected.sign_in(ADMIN).await;
    let protected = protected.with_cookie(&cookie);
    wait_for("the session to end", LIMIT, async || protected.get("/garden").await.status == 303).await;
}

#[tokio::test]
async fn session_of_the_admin_ends_when_the_token_is_replaced() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    let cookie = protected.sign_in(ADMIN).await;
    assert_eq!(protected.with_cookie(&cookie).get("/garden").await.status, 200);
    protected.replace_admin_token("another horse battery staple");
    let protected = protected.with_cookie(&cookie);
    wait_for("the session to end", LIMIT, async || protected.get("/garden").await.status == 303).await;
}

#[tokio::test]
async fn session_cookie_is_http_only_and_same_site() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    let answer =
        protected.anonymous().submit("/sign-in", &[("token", ADMIN), ("to", "//evil.example/")]).await;
    assert_eq!(answer.header("location"), "/", "no redirect to another site");
    let set = answer.header("set-cookie");
    assert!(set.contains("; HttpOnly; SameSite=Lax; Max-Age=43200"), "{set}");
    assert!(cookie(&answer).len() > "hob_session=".len() + 40);
}

#[tokio::test]
async fn token_requests_are_validated() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    for (request, field) in [
        (json!({"name": "", "scopes": ["admin"]}), "name"),
        (json!({"name": "a\u{0}b", "scopes": ["admin"]}), "name"),
        (json!({"name": "x".repeat(101), "scopes": ["admin"]}), "name"),
        (json!({"name": "a", "scopes": []}), "scopes"),
        (json!({"name": "a", "scopes": vec!["admin"; 33]}), ""),
        (json!({"name": "a", "scopes": ["garden:read", "garden:delete"]}), "scopes[1]"),
        (json!({"name": "a", "scopes": ["ocean:read"]}), "scopes[0]"),
        (json!({"name": "a", "scopes": ["admin"], "expires_in_days": 0}), "expires_in_days"),
        (json!({"name": "a", "scopes": ["admin"], "expires_in_days": 4_000_000_000_u32}), "expires_in_days"),
        (json!({"name": "a", "scopes": ["admin"], "forever": true}), "forever"),
    ] {
        let answer = protected.with_token(ADMIN).post("/api/v1/tokens", &request).await;
        if field.is_empty() {
            assert_eq!(answer.status, 201, "repeated scopes are merged: {}", answer.text());
            continue;
        }
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{request}: {}", answer.text());
        assert_eq!(answer.json::<Value>()["errors"][0]["field"], field, "{request}");
    }
}

#[tokio::test]
async fn audit_entries_are_deleted_after_their_retention() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let config = Config { keep_audit_log: Period::from_millis(1), ..Config::default() };
    let mut protected = ProtectedApp::with(&context, config).await;
    protected.app.web().audit().record("ada", "garden.mow", "all of it").await.unwrap();
    let log: Value = protected.with_token(ADMIN).get("/api/v1/audit").await.json();
    assert_eq!(log["items"][0]["detail"], "all of it");
    let protected = protected.with_token(ADMIN);
    wait_for("an empty audit log", LIMIT, async || {
        protected.web().tidy().await.unwrap();
        protected.get("/api/v1/audit").await.json::<Value>()["items"] == json!([])
    })
    .await;
}

#[tokio::test]
async fn admin_token_is_required_unless_on_loopback() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let anywhere = Config { listen: "0.0.0.0:0".parse().unwrap(), ..Config::default() };
    let refused = Web::open(&context, Live::fixed(anywhere)).unwrap_err();
    assert!(matches!(refused, Error::AdminTokenRequired(_)), "{refused}");
    assert!(refused.to_string().contains("[server] admin_token"));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin");
    std::fs::write(&path, "short").unwrap();
    let short = Config { admin_token: Some(hob_service::SecretRef::File(path)), ..Config::default() };
    let refused = Web::open(&context, Live::fixed(short)).unwrap_err();
    assert!(matches!(refused, Error::WeakAdminToken), "{refused}");
    assert!(!refused.to_string().contains("short\""));
}
