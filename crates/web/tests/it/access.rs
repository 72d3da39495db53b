//! Who may do what.

use hob_database::UnixMs;
use hob_fixtures::{Layout, TestContext, every_service};
use hob_service::{Live, Period};
use hob_testkit::{LIMIT, wait_for};
use hob_web::{Access, App, Config, DataKind, Error, Web};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::door::{ADMIN, Locked, NEEDS, cookie, token, token_until};
use crate::garden::{Garden, routes};

const GNOMES: &str = "/api/v1/garden/gnomes";

every_service! {
    NEEDS;

    async fn token_grants_its_scopes_until_it_is_revoked(context: TestContext) {
        let mut door = Locked::start(&context).await;
        let request = json!({"name": "ada", "scopes": ["garden:read"], "expires_in_days": 30});
        let made: Value = door.with_token(ADMIN).post("/api/v1/tokens", &request).await.json();
        let (secret, id) = (made["secret"].as_str().unwrap(), made["token"]["id"].as_str().unwrap());
        assert!(secret.starts_with("hob_"), "{made}");

        assert_eq!(door.with_token(secret).get(GNOMES).await.status, 200);
        let gnome = json!({"name": "robin", "height_cm": 30});
        assert_eq!(door.with_token(secret).post(GNOMES, &gnome).await.status, 403);
        assert_eq!(door.with_token(secret).get("/api/v1/tokens").await.status, 403);
        assert_eq!(door.as_nobody().get(GNOMES).await.status, 401);
        assert_eq!(door.with_token("hob_nonsense").get(GNOMES).await.status, 401);

        door.app.web().tidy().await.unwrap();
        let list = door.with_token(ADMIN).get("/api/v1/tokens").await;
        assert!(!list.text().contains(secret), "a token is shown once");
        let listed: Value = list.json();
        assert_eq!(listed["items"][0]["name"], "ada");
        assert!(listed["items"][0]["used_at"].is_string(), "{listed}");

        let path = format!("/api/v1/tokens/{id}");
        assert_eq!(door.with_token(ADMIN).delete(&path).await.status, 204);
        assert_eq!(door.with_token(secret).get(GNOMES).await.status, 401, "at once on the node that revoked it");
        assert_eq!(door.with_token(ADMIN).delete(&path).await.status, 404);

        let trail: Value = door.with_token(ADMIN).get("/api/v1/audit").await.json();
        let deeds: Vec<_> = trail["items"].as_array().unwrap().iter().map(|deed| &deed["what"]).collect();
        assert_eq!(deeds, ["token.revoke", "token.create"]);
        assert_eq!(trail["items"][0]["who"], "admin");
    }

    async fn changes_of_a_service_are_in_the_audit_log(context: TestContext) {
        let mut door = Locked::start(&context).await;
        let (secret, _) = token(&context, "garden:write").await;
        let gnome = json!({"name": "robin", "height_cm": 30});
        assert_eq!(door.with_token(&secret).post(GNOMES, &gnome).await.status, 201);
        assert_eq!(door.with_token(&secret).post(GNOMES, &gnome).await.status, 409, "a refusal changes nothing");
        let form = [("name", "wren"), ("height_cm", "20")];
        assert_eq!(door.with_token(&secret).submit("/garden", &form).await.status, 303);
        let log: Value = door.with_token(ADMIN).get("/api/v1/audit").await.json();
        let entries = log["items"].as_array().unwrap().iter();
        let entries: Vec<_> = entries.map(|entry| (&entry["who"], &entry["what"])).collect();
        let name = log["items"][0]["who"].clone();
        assert_ne!(name, "admin");
        assert_eq!(entries[..2], [(&name, &json!("garden.gnome.plant")), (&name, &json!("garden.gnome.add"))]);
    }

    async fn session_lasts_until_it_is_ended(context: TestContext) {
        let mut door = Locked::start(&context).await;
        let page = door.as_nobody().get("/garden").await;
        assert_eq!((page.status.as_u16(), page.header("location")), (303, "/sign-in?to=%2Fgarden"));
        assert!(door.as_nobody().get("/sign-in?to=/garden").await.text().contains("<form"));

        let (secret, _) = token(&context, "garden:read").await;
        let cookie = door.sign_in(&secret).await;
        assert_eq!(door.with_cookie(&cookie).get("/garden").await.status, 200);
        assert_eq!(door.with_cookie(&cookie).submit("/garden", &[]).await.status, 403, "only to read");
        let lost = door.with_cookie(&cookie).get("/garden/nowhere").await;
        assert_eq!(lost.status, 404);
        assert!(lost.text().contains("href=\"/garden\""), "who is inside is shown the way on: {}", lost.text());
        let lost = door.as_nobody().get("/garden/nowhere").await.text();
        assert!(!lost.contains("href=\"/garden\""), "who is outside is not: {lost}");

        let out = door.with_cookie(&cookie).submit("/sign-out", &[]).await;
        assert_eq!((out.status.as_u16(), out.header("location")), (303, "/sign-in"));
        assert!(out.header("set-cookie").contains("Max-Age=0"));
        assert_eq!(door.with_cookie(&cookie).get("/garden").await.status, 303, "the cookie opens nothing any more");
    }

    async fn sign_in_attempts_are_limited(context: TestContext) {
        let mut door = Locked::start(&context).await;
        for _ in 0..10 {
            let refused = door.as_nobody().submit("/sign-in", &[("token", "guess")]).await;
            assert_eq!(refused.status, 403);
            assert!(refused.text().contains("not valid"));
            assert_eq!(refused.header("set-cookie"), "");
        }
        let limited = door.as_nobody().submit("/sign-in", &[("token", ADMIN)]).await;
        assert_eq!(limited.status, 429);
        assert!((1..=60).contains(&limited.header("retry-after").parse::<u32>().unwrap()));
        assert_eq!(door.with_token(ADMIN).get(GNOMES).await.status, 200, "who has a token need not sign in");
        let trail: Value = door.with_token(ADMIN).get("/api/v1/audit?limit=1").await.json();
        assert_eq!(trail["items"][0]["what"], "session.refuse");
    }
}

#[tokio::test]
async fn every_route_requires_its_declared_access() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut door = Locked::start(&context).await;
    let (reads, writes) = (token(&context, "garden:read").await.0, token(&context, "garden:write").await.0);
    let strange = token(&context, "pond:write").await.0;
    let web = Web::open(&context, Live::fixed(Config::default())).unwrap();
    let entries = App::new(&web, routes(Garden::default()), DataKind::Real).entries().to_vec();
    assert!(entries.iter().any(|entry| entry.access == Access::admin()));
    // Public like others, and one waits for a bell, the other has a great deal to say.
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
            other => panic!("{other} is new: say who passes"),
        };
        let callers = [None, Some(&strange), Some(&reads), Some(&writes), Some(&ADMIN.to_owned())];
        for (caller, passes) in callers.into_iter().zip(passes) {
            let app = match caller {
                Some(text) => door.with_token(text),
                None => door.as_nobody(),
            };
            let answer = app.request(method.clone(), &path, None).await;
            let signs_in = answer.header("location").starts_with("/sign-in?to=");
            let lacks_scope = answer.text().contains("This requires the scope");
            let refused = answer.status == StatusCode::UNAUTHORIZED || lacks_scope || signs_in;
            assert_eq!(refused, !passes, "{} {} as {caller:?}: {}", entry.method, entry.path, answer.status);
        }
    }
}

#[tokio::test]
async fn expired_token_is_rejected() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut door = Locked::start(&context).await;
    let (secret, _) = token_until(&context, "admin", Some(UnixMs(1))).await;
    assert_eq!(door.with_token(&secret).get(GNOMES).await.status, 401);
    assert_eq!(door.as_nobody().submit("/sign-in", &[("token", &secret)]).await.status, 403);
    door.app.web().tidy().await.unwrap();
    let listed: Value = door.with_token(ADMIN).get("/api/v1/tokens").await.json();
    assert_eq!(listed["items"], json!([]), "what has expired long ago is forgotten");
}

#[tokio::test]
async fn revocation_reaches_other_nodes() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let other = context.another_node().await;
    let (mut here, mut there) = (Locked::start(&context).await, Locked::start(&other).await);
    let (secret, id) = token(&context, "garden:read").await;
    assert_eq!(there.with_token(&secret).get(GNOMES).await.status, 200);
    assert_eq!(here.with_token(ADMIN).delete(&format!("/api/v1/tokens/{id}")).await.status, 204);
    let there = there.with_token(&secret);
    wait_for("the other node", LIMIT, async || there.get(GNOMES).await.status == 401).await;
    other.tasks.stop(LIMIT).await;
}

#[tokio::test]
async fn session_ends_with_its_token_and_with_its_time() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut door = Locked::start(&context).await;
    let (secret, id) = token(&context, "garden:read").await;
    let cookie = door.sign_in(&secret).await;
    assert_eq!(door.with_cookie(&cookie).get("/garden").await.status, 200);
    door.with_token(ADMIN).delete(&format!("/api/v1/tokens/{id}")).await;
    assert_eq!(door.with_cookie(&cookie).get("/garden").await.status, 303);

    let brief = Config { session_ttl: Period::from_millis(1), ..Config::default() };
    let mut door = Locked::with(&context, brief).await;
    let cookie = door.sign_in(ADMIN).await;
    let door = door.with_cookie(&cookie);
    wait_for("the end of the session", LIMIT, async || door.get("/garden").await.status == 303).await;
}

#[tokio::test]
async fn session_of_the_admin_ends_when_the_token_is_replaced() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut door = Locked::start(&context).await;
    let cookie = door.sign_in(ADMIN).await;
    assert_eq!(door.with_cookie(&cookie).get("/garden").await.status, 200);
    door.replace_admin_token("another horse battery staple");
    let door = door.with_cookie(&cookie);
    wait_for("the end of the session", LIMIT, async || door.get("/garden").await.status == 303).await;
}

#[tokio::test]
async fn session_cookie_is_http_only_and_same_site() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut door = Locked::start(&context).await;
    let answer = door.as_nobody().submit("/sign-in", &[("token", ADMIN), ("to", "//evil.example/")]).await;
    assert_eq!(answer.header("location"), "/", "no redirect to another site");
    let set = answer.header("set-cookie");
    assert!(set.contains("; HttpOnly; SameSite=Lax; Max-Age=43200"), "{set}");
    assert!(cookie(&answer).len() > "hob_session=".len() + 40);
}

#[tokio::test]
async fn token_requests_are_validated() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut door = Locked::start(&context).await;
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
        let answer = door.with_token(ADMIN).post("/api/v1/tokens", &request).await;
        if field.is_empty() {
            assert_eq!(answer.status, 201, "the same scope many times is one: {}", answer.text());
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
    let mut door = Locked::with(&context, config).await;
    door.app.web().audit().record("ada", "garden.mow", "all of it").await.unwrap();
    let trail: Value = door.with_token(ADMIN).get("/api/v1/audit").await.json();
    assert_eq!(trail["items"][0]["detail"], "all of it");
    let door = door.with_token(ADMIN);
    wait_for("an empty trail", LIMIT, async || {
        door.web().tidy().await.unwrap();
        door.get("/api/v1/audit").await.json::<Value>()["items"] == json!([])
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
    assert!(matches!(refused, Error::ShortAdminToken { .. }), "{refused}");
    assert!(!refused.to_string().contains("short\""));
}
