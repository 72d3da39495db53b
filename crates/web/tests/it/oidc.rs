//! Sign-in with OpenID Connect, against a provider on loopback.

mod site;

use hob_database::{Query, Read as _, sql};
use hob_fixtures::{KeyAlgorithm, Layout, TestContext, TestIssuer, TokenSignature, every_service};
use hob_net::{InternalAddresses, OutboundPolicy};
use hob_service::{Live, Period};
use hob_testkit::{LIMIT, wait_for};
use hob_web::{Config, Error, SignInConfig, Web};
use http::header::SET_COOKIE;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::protected::{ADMIN, NEEDS, ProtectedApp};
use site::{Site, assert_refused, begin, finish, session, settings};

const GNOMES: &str = "/api/v1/garden/gnomes";

every_service! {
    NEEDS;

    async fn group_decides_what_a_user_may_do(context: TestContext) {
        let mut site = Site::start(&context).await;
        let gnome = |name: &str| json!({"name": name, "height_cm": 30});
        for (group, reads, writes, admin) in [
            ("readers", 200, 403, 403),
            ("writers", 200, 201, 403),
            ("gardeners", 200, 201, 403),
            ("owners", 200, 201, 200),
        ] {
            let cookie = site.session_of(group).await;
            let app = site.app.with_cookie(&cookie);
            assert_eq!(app.get(GNOMES).await.status, reads, "{group}");
            assert_eq!(app.post(GNOMES, &gnome(group)).await.status, writes, "{group}");
            assert_eq!(app.get("/api/v1/tokens").await.status, admin, "{group}");
            let page = app.get("/garden").await.text();
            assert!(page.contains("ada@example.com"), "{page}");
            assert_eq!(page.contains("</ul><form></form>"), writes == 201, "a button only for writers: {page}");
        }
    }

    async fn audit_log_names_the_user_and_is_filtered_by_user(context: TestContext) {
        let mut site = Site::start(&context).await;
        let gnome = |name: &str| json!({"name": name, "height_cm": 30});
        let grace = json!({"sub": "7", "email": "grace@example.com", "groups": ["writers"]});
        for (claims, name) in [
            (json!({"groups": ["writers"]}), "robin"),
            (json!({"email": "ada@new.example.com", "groups": ["writers"]}), "wren"),
            (grace, "finch"),
        ] {
            let cookie = session(&site.sign_in(claims).await).unwrap();
            assert_eq!(site.app.with_cookie(&cookie).post(GNOMES, &gnome(name)).await.status, 201);
            assert_eq!(site.app.with_cookie(&cookie).submit("/sign-out", &[]).await.status, 303);
            assert_eq!(site.app.with_cookie(&cookie).get(GNOMES).await.status, 401, "signed out");
        }
        assert_eq!(site.app.with_token(ADMIN).post(GNOMES, &gnome("owl")).await.status, 201);

        let ada = format!("{} 248289761001", site.issuer.url());
        let app = site.app.with_token(ADMIN);
        let log = async |actor: &str| {
            let query = serde_urlencoded::to_string([("actor", actor)]).unwrap();
            let log: Value = app.get(&format!("/api/v1/audit?{query}")).await.json();
            let of = |entry: &Value| (entry["who"].as_str().unwrap().to_owned(), entry["what"].as_str().unwrap().to_owned());
            log["items"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
        };
        let of = |who: &str, what: &str| (who.to_owned(), what.to_owned());
        let (old, new) = ("ada@example.com", "ada@new.example.com");
        assert_eq!(
            log(&ada).await,
            [
                of(new, "session.end"),
                of(new, "garden.gnome.add"),
                of(new, "session.begin"),
                of(old, "session.end"),
                of(old, "garden.gnome.add"),
                of(old, "session.begin"),
            ],
            "the subject finds all entries of a user"
        );
        assert_eq!(log(new).await.len(), 3, "a name finds the entries under that name");
        assert_eq!(log("admin").await, [of("admin", "garden.gnome.add")]);
        assert_eq!(log("nemo").await, []);
        let all: Value = app.get("/api/v1/audit").await.json();
        assert_eq!(all["items"].as_array().unwrap().len(), 10);
        assert_eq!(all["items"][0]["subject"], Value::Null);
        assert_eq!(all["items"][1]["subject"], format!("{} 7", site.issuer.url()));

        let page = app.get("/access/audit?actor=grace%40example.com&limit=2").await.text();
        assert!(page.contains("grace@example.com") && !page.contains("ada@example.com"), "{page}");
        let next = page.split("rel=\"next\" href=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let next = app.get(&next.replace("&amp;", "&")).await.text();
        assert!(next.contains("session.begin") && !next.contains("ada@example.com"), "{next}");
        assert!(app.get("/access/audit?actor=nemo").await.text().contains("No entries of this actor"));
    }
}

#[tokio::test]
async fn user_without_a_listed_group_is_refused() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut site = Site::start(&context).await;
    for claims in [
        json!({"groups": ["guests"]}),
        json!({"groups": null}),
        json!({"groups": "Readers"}),
        json!({"groups": null, "roles": ["owners"]}),
    ] {
        let answer = site.sign_in(claims).await;
        assert_refused(
            &answer,
            403,
            "You have signed in as ada@example.com, but none of your groups has access",
        );
        assert!(answer.header("content-type").starts_with("text/html"));
    }
    let log: Value = site.app.with_token(ADMIN).get("/api/v1/audit?limit=1").await.json();
    assert_eq!(
        (&log["items"][0]["who"], &log["items"][0]["what"]),
        (&json!("ada@example.com"), &json!("session.refuse"))
    );
}

#[tokio::test]
async fn invalid_id_token_is_rejected() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut site = Site::start(&context).await;
    for (claims, reason) in [
        (json!({"nonce": "another"}), "nonce"),
        (json!({"nonce": null}), "nonce"),
        (json!({"aud": "another"}), "for another client"),
        (json!({"aud": ["hob", "another"]}), "for another client"),
        (json!({"azp": "another"}), "for another client"),
        (json!({"iss": "http://127.0.0.1:1"}), "issued by another issuer"),
        (json!({"exp": 1_700_000_000}), "expired"),
        (json!({"nbf": 9_999_999_999_u64}), "not valid yet"),
    ] {
        let mut claims = claims;
        claims["groups"] = json!(["owners"]);
        let answer = site.sign_in(claims.clone()).await;
        assert_refused(&answer, 403, "response was not accepted");
        let log: Value = site.app.with_token(ADMIN).get("/api/v1/audit?limit=1").await.json();
        assert!(log["items"][0]["detail"].as_str().unwrap().contains(reason), "{claims}: {log}");
    }
}

#[tokio::test]
async fn forged_id_token_is_rejected() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut site = Site::start(&context).await;
    for (signature, reason) in [
        (TokenSignature::Missing, "an algorithm other than"),
        (TokenSignature::PublicKeyAsSecret, "an algorithm other than"),
        (TokenSignature::UnknownKey, "unknown key"),
    ] {
        site.issuer.set_signature(signature);
        let answer = site.sign_in(json!({"groups": ["owners"]})).await;
        assert_refused(&answer, 403, "response was not accepted");
        let log: Value = site.app.with_token(ADMIN).get("/api/v1/audit?limit=1").await.json();
        assert!(log["items"][0]["detail"].as_str().unwrap().contains(reason), "{signature:?}: {log}");
    }
    site.issuer.set_signature(TokenSignature::Genuine);
    site.session_of("owners").await;
}

#[tokio::test]
async fn sign_in_belongs_to_the_browser_that_started_it() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut site = Site::start(&context).await;
    site.issuer.set_claims(json!({"groups": ["readers"]}));
    let (mine, other) = (begin(&mut site.app, "/").await, begin(&mut site.app, "/").await);
    let back = site.issuer.sign_in(&mine.url);
    let says = "This sign-in has expired, or it was started in another window";
    assert_refused(&finish(&mut site.app, &back, &other.cookie).await, 400, says);
    assert_refused(&finish(&mut site.app, &back, "hob_sign_in=a.9999999999.Lw").await, 400, says);
    assert_refused(&finish(&mut site.app, &back, "other=1").await, 400, says);
    assert_refused(&finish(&mut site.app, &back.replace("state=", "state=x"), &mine.cookie).await, 400, says);
    assert_refused(&finish(&mut site.app, &back.replace("&state=", "&stat="), &mine.cookie).await, 400, says);
    let mixed = back.replace("iss=http", "iss=https");
    assert_refused(
        &finish(&mut site.app, &mixed, &mine.cookie).await,
        400,
        "not from the configured identity provider",
    );
    // A cookie for another page does not match the state.
    let (secret, expires, _) = {
        let mut parts = mine.cookie.splitn(3, '.');
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap())
    };
    assert_refused(&finish(&mut site.app, &back, &format!("{secret}.{expires}.L2FjY2Vzcw")).await, 400, says);
    let both = format!("{}; {}", other.cookie, mine.cookie);
    let answer = finish(&mut site.app, &back, &both).await;
    assert!(session(&answer).is_some(), "{}", answer.text());
    let cookies: Vec<_> =
        answer.headers.get_all(SET_COOKIE).iter().map(|value| value.to_str().unwrap()).collect();
    assert!(
        cookies.iter().any(|cookie| cookie.starts_with("hob_sign_in=;") && cookie.contains("Max-Age=0")),
        "{cookies:?}"
    );
}

#[tokio::test]
async fn code_is_accepted_once() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut site = Site::start(&context).await;
    site.issuer.set_claims(json!({"groups": ["readers"]}));
    let login = begin(&mut site.app, "/").await;
    let back = site.issuer.sign_in(&login.url);
    assert!(session(&finish(&mut site.app, &back, &login.cookie).await).is_some());
    assert_refused(&finish(&mut site.app, &back, &login.cookie).await, 403, "could not be completed");
    let login = begin(&mut site.app, "/").await;
    let stolen = site.issuer.sign_in(&begin(&mut site.app, "/").await.url);
    let code = |url: &str| url.split("code=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    let back = site.issuer.sign_in(&login.url);
    let injected = back.replace(&code(&back), &code(&stolen));
    assert_refused(&finish(&mut site.app, &injected, &login.cookie).await, 403, "could not be completed");
    let refused = back.replace(&format!("code={}", code(&back)), "error=access_denied");
    assert_refused(&finish(&mut site.app, &refused, &login.cookie).await, 403, "has refused the sign-in");
}

#[tokio::test]
async fn refused_sign_ins_are_limited() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut site = Site::start(&context).await;
    for _ in 0..10 {
        assert_refused(&site.sign_in(json!({})).await, 403, "none of your groups");
    }
    let limited = site.sign_in(json!({})).await;
    assert_refused(&limited, 429, "Too many wrong credentials");
    assert!((1..=60).contains(&limited.header("retry-after").parse::<u32>().unwrap()));
    // From the database, since the address may not send the admin token now.
    let refusals: Query<(i64,)> = sql("SELECT COUNT(*) FROM web_audit WHERE what = 'session.refuse'");
    assert_eq!(context.database.one(refusals).await.unwrap(), (10,), "entries are limited, too");
    site.session_of("readers").await;
}

#[tokio::test]
async fn replaced_key_is_fetched_at_most_once_in_a_while() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut site = Site::start(&context).await;
    site.session_of("readers").await;
    site.session_of("readers").await;
    assert_eq!(site.issuer.key_requests(), 1, "the keys are cached");
    site.issuer.rotate_key();
    site.session_of("readers").await;
    assert_eq!(site.issuer.key_requests(), 2, "an unknown key is fetched");
    site.issuer.set_signature(TokenSignature::UnknownKey);
    for _ in 0..3 {
        assert_refused(&site.sign_in(json!({"groups": ["readers"]})).await, 403, "was not accepted");
    }
    assert_eq!(site.issuer.key_requests(), 2, "but not each time");
}

#[tokio::test]
async fn rsa_keys_and_client_secrets_work() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let secret = NamedTempFile::new().unwrap();
    std::fs::write(&secret, TestIssuer::SECRET).unwrap();
    let changes = json!({"client_secret": format!("file:{}", secret.path().display())});
    let issuer = TestIssuer::start_with(KeyAlgorithm::Rs256).await;
    let mut site = Site::with(&context, issuer, changes).await;
    site.session_of("readers").await;
    std::fs::write(&secret, "not the secret").unwrap();
    assert_refused(
        &site.sign_in(json!({"groups": ["readers"]})).await,
        502,
        "identity provider is unavailable",
    );
    std::fs::write(&secret, TestIssuer::SECRET).unwrap();
    site.session_of("readers").await;
}

#[tokio::test]
async fn token_sign_in_works_while_the_provider_is_down() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let Site { issuer, mut app, replace } = Site::start(&context).await;
    issuer.set_claims(json!({"groups": ["readers"]}));
    let login = begin(&mut app, "/").await;
    let back = issuer.sign_in(&login.url);
    let _closed = issuer.stop().await;
    let answer = finish(&mut app, &back, &login.cookie).await;
    assert_refused(
        &answer,
        502,
        "The identity provider is unavailable. Try again later, or sign in with a token.",
    );

    // Without cached metadata the sign-in does not start.
    let gone = TestIssuer::start().await;
    replace.replace(settings(&gone, json!({})));
    let _also_closed = gone.stop().await;
    let answer = app.anonymous().get("/sign-in/oidc").await;
    assert_refused(&answer, 502, "identity provider is unavailable");
    assert!(answer.header("content-type").starts_with("text/html"));
    let page = app.anonymous().get("/sign-in?to=/garden").await.text();
    assert!(
        page.contains("href=\"/sign-in/oidc?to=%2Fgarden\"") && page.contains("Sign in with 127.0.0.1"),
        "{page}"
    );
    app.sign_in(ADMIN).await;

    // Another provider is used as soon as the configuration is reloaded.
    let issuer = TestIssuer::start().await;
    replace.replace(settings(&issuer, json!({"name": "Second Login"})));
    assert!(app.anonymous().get("/sign-in").await.text().contains("Sign in with Second Login"));
    let mut site = Site { issuer, app, replace };
    site.session_of("readers").await;
}

#[tokio::test]
async fn sign_in_returns_to_a_page_of_this_server_only() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut site = Site::start(&context).await;
    site.issuer.set_claims(json!({"groups": ["readers"]}));
    for (to, lands) in [
        ("/garden?sort=height", "/garden?sort=height"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\r\nSet-Cookie: a=b", "/"),
        ("", "/"),
    ] {
        let login = begin(&mut site.app, to).await;
        let back = site.issuer.sign_in(&login.url);
        let answer = finish(&mut site.app, &back, &login.cookie).await;
        assert_eq!((answer.status.as_u16(), answer.header("location")), (303, lands), "{to:?}");
    }
}

#[tokio::test]
async fn another_node_finishes_a_sign_in() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let other = context.another_node().await;
    let mut here = Site::start(&context).await;
    let sign_in = Live::fixed(settings(&here.issuer, json!({})));
    let mut there = ProtectedApp::with_sign_in(&other, Config::default(), sign_in).await;
    here.issuer.set_claims(json!({"groups": ["readers"]}));
    let login = begin(&mut here.app, "/garden").await;
    let back = here.issuer.sign_in(&login.url);
    let cookie = session(&finish(&mut there, &back, &login.cookie).await).unwrap();
    assert_eq!(there.with_cookie(&cookie).get(GNOMES).await.status, 200);
    assert_eq!(here.app.with_cookie(&cookie).get(GNOMES).await.status, 200);
    other.tasks.stop(LIMIT).await;
}

#[tokio::test]
async fn session_of_a_user_ends_with_its_ttl_or_its_rule() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut site = Site::start(&context).await;
    let cookie = site.session_of("writers").await;
    let gnome = json!({"name": "robin", "height_cm": 30});
    assert_eq!(site.app.with_cookie(&cookie).post(GNOMES, &gnome).await.status, 201);

    let fewer = json!({"roles": [{"group": "writers", "role": "viewer"}]});
    site.replace.replace(settings(&site.issuer, fewer));
    let app = site.app.with_cookie(&cookie);
    wait_for("the new role", LIMIT, async || app.post(GNOMES, &gnome).await.status == 403).await;
    assert_eq!(app.get(GNOMES).await.status, 200);
    site.replace.replace(settings(&site.issuer, json!({"roles": [{"group": "others", "role": "admin"}]})));
    wait_for("the session to end", LIMIT, async || app.get(GNOMES).await.status == 401).await;
    site.replace.replace(settings(&site.issuer, json!({})));
    wait_for("the session", LIMIT, async || app.get(GNOMES).await.status == 200).await;
    site.replace.replace(SignInConfig::default());
    wait_for("the session to end", LIMIT, async || app.get(GNOMES).await.status == 401).await;
    assert_eq!(site.app.anonymous().get("/sign-in/oidc").await.status, 404);
    assert!(!site.app.anonymous().get("/sign-in").await.text().contains("Sign in with"));

    let short = Config { session_ttl: Period::from_millis(1), ..Config::default() };
    let sign_in = Live::fixed(settings(&site.issuer, json!({})));
    site.app = ProtectedApp::with_sign_in(&context, short, sign_in).await;
    let cookie = site.session_of("readers").await;
    let app = site.app.with_cookie(&cookie);
    wait_for("the session to end", LIMIT, async || app.get(GNOMES).await.status == 401).await;
}

/// The operator chooses the issuer, but the issuer chooses other hosts.
#[tokio::test]
async fn private_issuer_cannot_name_other_private_hosts() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let policy = OutboundPolicy { internal: InternalAddresses::Denied, ..OutboundPolicy::default() };
    context.outbound.replace(policy);
    let mut site = Site::start(&context).await;
    site.session_of("readers").await;

    let issuer = TestIssuer::start().await;
    issuer.set_token_url(&format!("{}/token", issuer.url().replace("127.0.0.1", "localhost")));
    let mut site = Site::with(&context, issuer, json!({})).await;
    assert_refused(
        &site.sign_in(json!({"groups": ["readers"]})).await,
        502,
        "identity provider is unavailable",
    );
    context.outbound.replace(OutboundPolicy::default());
    site.session_of("readers").await;
}

#[tokio::test]
async fn oidc_requires_an_admin_token() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let issuer = TestIssuer::start().await;
    let open = |changes: Value| {
        let sign_in = Live::fixed(settings(&issuer, changes));
        Web::open_with(&context, Live::fixed(Config::default()), sign_in).unwrap_err()
    };
    assert!(matches!(open(json!({})), Error::OidcWithoutAdminToken));
    let app = ProtectedApp::start(&context).await;
    let check =
        |changes: Value| app.app.web().check_reload(&app.app.web().config(), &settings(&issuer, changes));
    check(json!({})).unwrap();
    let missing = check(json!({"client_secret": "file:/nowhere/secret"})).unwrap_err();
    assert!(missing.to_string().starts_with("[sign_in.oidc] client_secret: "), "{missing}");
    assert!(matches!(check(json!({"ca_file": "/nowhere/ca.pem"})).unwrap_err(), Error::Tls(_)));
}
