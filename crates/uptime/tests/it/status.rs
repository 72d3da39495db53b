//! Status pages: their content, passwords, languages and time zones, feeds, embedded parts and subscribers.

use hob_database::outbox::{Event, Relay, Retention};
use hob_fixtures::{Layout, TestContext};
use hob_service::{Period, SecretRef};
use hob_store::cmd;
use hob_testkit::{LIMIT, TestDatabase, repeat_until_ok, wait_for};
use hob_uptime::Config;
use hob_uptime::keys::{Client, Keys};
use http::header;
use serde_json::{Value, json};

use crate::NEEDS;
use crate::mail::{Email, MailServer, Security};
use crate::service::{Service, StatusTarget};

async fn service(config: Config) -> (TestContext, Service) {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let service = Service::configured(&context, config).await;
    (context, service)
}

fn config() -> Config {
    Config { grace: Period::from_secs(1), alert_backoff: Period::from_millis(50), ..Config::default() }
}

/// An incident of a published monitor that is down. Returns its id.
async fn incident(service: &Service, target: &StatusTarget) -> String {
    target.respond_with(500);
    service
        .add_monitor(target, json!({"name": "Website", "published": true, "retries": 0, "group": "Web"}))
        .await;
    wait_for("an incident", LIMIT, async || service.incidents().await.len() == 1).await;
    service.incidents().await[0].id.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_are_shown_by_day_and_in_feeds() {
    let (_context, service) = service(config()).await;
    let target = StatusTarget::start().await;
    let id = incident(&service, &target).await;
    let path = format!("/api/v1/uptime/incidents/{id}/updates");
    for (status, text) in [("investigating", "We <look> into it."), ("identified", "A disk is full.")] {
        let update = json!({"status": status, "text": text});
        assert_eq!(service.app.post(&path, &update).await.status, 201);
    }
    let form = [("status", "monitoring"), ("text", "Deleted old files.")];
    let sent = service.app.submit(&format!("/uptime/incidents/{id}/updates"), &form).await;
    assert_eq!(sent.status, 303, "{}", sent.text());
    for bad in [json!({"status": "fixed", "text": "x"}), json!({"status": "resolved", "text": " "})] {
        assert_eq!(service.app.post(&path, &bad).await.status, 422, "{bad}");
    }
    let shown: Value = service.app.get(&format!("/api/v1/uptime/incidents/{id}")).await.json();
    assert_eq!(shown["updates"][0]["status"], "monitoring");
    let page = service.app.get("/status").await.text();
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is missing in {page}"));
    assert!(
        at("monitoring") < at("identified") && at("identified") < at("investigating"),
        "the newest first"
    );
    assert!(
        page.contains("We &#60;look&#62; into it.") || page.contains("We &lt;look&gt; into it."),
        "{page}"
    );
    assert!(page.contains("Deleted old files.") && page.contains("ongoing"), "{page}");
    for (feed, link) in [("/status.rss", "<link>"), ("/status/default/feed.atom", "<link href=\"")] {
        let xml = service.app.get(feed).await.text();
        let absolute = format!("{link}{}", service.app.url(&format!("/status#{id}")));
        assert!(xml.contains(&absolute) && xml.contains("Website: down"), "{feed}: {xml}");
        assert!(xml.contains("identified: A disk is full.") && !xml.contains("found 500"), "{feed}: {xml}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_has_the_language_and_zone_of_the_reader() {
    let (_context, mut service) = service(config()).await;
    let target = StatusTarget::start().await;
    incident(&service, &target).await;
    service.app.use_header(header::ACCEPT_LANGUAGE, "de-DE,de;q=0.9,en;q=0.5");
    let page = wait_for("the state in German", LIMIT, async || {
        let page = service.app.get("/status").await;
        if page.text().contains("Alle Systeme sind gestört") { Ok(page) } else { Err(page.text()) }
    })
    .await;
    assert_eq!(page.header("vary").split(", ").next(), Some("accept-language"));
    assert!(page.text().contains(r#"<html lang="de" data-zone="UTC">"#), "{}", page.text());
    let chosen = service.app.get("/status?zone=Asia/Tokyo").await;
    assert!(chosen.header("set-cookie").starts_with("hob_zone=Asia/Tokyo;"), "{:?}", chosen.headers);
    assert!(chosen.text().contains(r#"data-zone="Asia/Tokyo""#));
    service.app.use_header(header::COOKIE, "hob_zone=Asia/Tokyo");
    assert!(service.app.get("/status").await.text().contains(r#"data-zone="Asia/Tokyo""#));
    for zone in ["Nowhere/City", "../etc/passwd", "%00", "\"><script>"] {
        let page = service.app.get(&format!("/status?zone={}", zone.replace(['"', '<', '>'], "%22"))).await;
        assert_eq!(
            (page.status.as_u16(), page.text().contains("data-zone=\"Asia/Tokyo\"")),
            (200, true),
            "{zone}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_their_own_monitors_and_settings() {
    let (_context, service) = service(Config { status_accent: "#ffcc00".to_owned(), ..config() }).await;
    let target = StatusTarget::start().await;
    service.add_monitor(&target, json!({"name": "Website", "published": true})).await;
    service.add_monitor(&target, json!({"name": "Intranet", "tags": ["inside"]})).await;
    let logo = "https://cdn.example/logo.svg";
    let page = json!({"title": "Inside <1>", "logo": logo, "accent": "#0a5cc2", "monitors": ["inside"]});
    let saved = service.app.put("/api/v1/uptime/pages/inside", &page).await;
    assert_eq!(saved.status, 200, "{}", saved.text());
    let saved: Value = saved.json();
    assert_eq!((&saved["path"], &saved["has_password"]), (&json!("/status/inside"), &json!(false)));
    let inside = service.app.get("/status/inside").await;
    let policy = inside.header("content-security-policy").to_owned();
    assert!(policy.contains("img-src 'self' data: https://cdn.example;"), "{policy}");
    let text = inside.text();
    assert!(text.contains("Intranet") && !text.contains("Website") && text.contains(logo), "{text}");
    assert!(!text.contains("<1>"), "{text}");
    let default = service.app.get("/status").await.text();
    assert!(default.contains("Website") && !default.contains("Intranet"), "{default}");
    let css = service.app.get("/status/inside/accent.css?v=0a5cc2").await.text();
    assert!(css.contains("--accent: light-dark(#0a5cc2, "), "{css}");
    assert!(!service.app.get("/status/default/accent.css").await.text().contains("light-dark(#ffcc00"));
    let list: Value = service.app.get("/api/v1/uptime/pages").await.json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
    for (slug, page) in [
        ("default", json!({"title": "x"})),
        ("Bad", json!({"title": "x"})),
        ("a", json!({"title": ""})),
        ("a", json!({"title": "x", "accent": "red"})),
        ("a", json!({"title": "x", "logo": "javascript:alert(1)"})),
        ("a", json!({"title": "x", "password": "short"})),
        ("a", json!({"title": "x", "monitors": [""]})),
    ] {
        let refused = service.app.put(&format!("/api/v1/uptime/pages/{slug}"), &page).await;
        assert_eq!(refused.status, 422, "{slug}: {page}");
    }
    assert_eq!(service.app.delete("/api/v1/uptime/pages/inside").await.status, 204);
    assert_eq!(service.app.get("/status/inside").await.status, 404);
    assert_eq!(service.app.get("/status/nowhere").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn password_protects_everything_of_a_page() {
    let (_context, mut service) = service(config()).await;
    let target = StatusTarget::start().await;
    service.add_monitor(&target, json!({"name": "Intranet", "tags": ["inside"]})).await;
    let page = json!({"title": "Inside", "monitors": ["inside"], "password": "correct horse"});
    let saved = service.app.put("/api/v1/uptime/pages/inside", &page).await;
    assert!(!saved.text().contains("correct horse") && saved.json::<Value>()["has_password"] == true);
    let locked = service.app.get("/status/inside").await;
    assert_eq!((locked.status.as_u16(), locked.header("cache-control")), (401, "private, no-store"));
    assert!(!locked.text().contains("Intranet"), "{}", locked.text());
    for path in ["feed.rss", "feed.atom", "badge.svg", "widget"] {
        assert_eq!(service.app.get(&format!("/status/inside/{path}")).await.status, 404, "{path}");
    }
    let wrong = service.app.submit("/status/inside/unlock", &[("password", "correct hors")]).await;
    assert_eq!(wrong.status, 403);
    assert!(wrong.text().contains("This password is not correct."));
    let right = service.app.submit("/status/inside/unlock", &[("password", "correct horse")]).await;
    assert_eq!((right.status.as_u16(), right.header("location")), (303, "/status/inside"));
    let cookie = right.header("set-cookie").to_owned();
    assert!(cookie.contains("HttpOnly; SameSite=Lax") && cookie.contains("Path=/status"), "{cookie}");
    service.app.use_header(header::COOKIE, cookie.split(';').next().unwrap());
    assert!(service.app.get("/status/inside").await.text().contains("Intranet"));
    assert_eq!(service.app.get("/status/inside/feed.rss").await.status, 200);
    // The password stays if it is not given, and a new one ends all visits.
    let page = json!({"title": "Inside", "monitors": ["inside"]});
    service.app.put("/api/v1/uptime/pages/inside", &page).await;
    assert_eq!(service.app.get("/status/inside").await.status, 200);
    let page = json!({"title": "Inside", "monitors": ["inside"], "password": "battery staple"});
    service.app.put("/api/v1/uptime/pages/inside", &page).await;
    assert_eq!(service.app.get("/status/inside").await.status, 401);
    let refused = wait_for("guesses to be limited", LIMIT, async || {
        let guess = format!("guess {}", rand_text());
        let answer = service.app.submit("/status/inside/unlock", &[("password", &guess)]).await;
        if answer.status == 429 { Ok(answer) } else { Err(answer.status) }
    })
    .await;
    assert!(!refused.header("retry-after").is_empty());
}

/// A list in the place of the count would switch the limit off, or refuse the reader.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_value_in_the_limit_of_passwords_is_replaced() {
    let (context, service) = service(config()).await;
    let page = json!({"title": "Inside", "monitors": [], "password": "correct horse"});
    service.app.put("/api/v1/uptime/pages/inside", &page).await;
    context.test_store().disable_guard();
    let key = Keys::new(context.layout).passwords(&Client::new("127.0.0.1").unwrap());
    context.test_store().as_outsider(cmd("RPUSH").arg(&key).arg("x").take()).await;
    for _ in 0..2 {
        let wrong = service.app.submit("/status/inside/unlock", &[("password", "wrong")]).await;
        assert_eq!(wrong.status, 403, "{}", wrong.text());
    }
    let kind: String = context.store.run(cmd("TYPE").arg(&key).take()).await.unwrap();
    assert_eq!(kind, "string");
}

/// A client that guesses on one node is refused by the others, too.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_are_limited_across_nodes() {
    let (context, one) = service(config()).await;
    let other = Service::configured(&context, config()).await;
    let page = json!({"title": "Inside", "monitors": ["inside"], "password": "correct horse"});
    one.app.put("/api/v1/uptime/pages/inside", &page).await;
    for _ in 0..10 {
        let guess = format!("guess {}", rand_text());
        let answer = one.app.submit("/status/inside/unlock", &[("password", &guess)]).await;
        assert_eq!(answer.status, 403);
    }
    let refused = other.app.submit("/status/inside/unlock", &[("password", "correct horse")]).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(!refused.header("retry-after").is_empty());
}

fn rand_text() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn badge_and_widget_can_be_embedded() {
    let (_context, service) = service(config()).await;
    let target = StatusTarget::start().await;
    incident(&service, &target).await;
    let badge = wait_for("the state on the badge", LIMIT, async || {
        let badge = service.app.get("/status/default/badge.svg").await;
        if badge.text().contains("status: All systems are down") { Ok(badge) } else { Err(badge.text()) }
    })
    .await;
    assert_eq!(badge.header("cross-origin-resource-policy"), "cross-origin");
    let widget = service.app.get("/status/default/widget").await;
    assert!(widget.header("content-security-policy").contains("frame-ancestors *"));
    let html = widget.text();
    assert!(
        html.contains("Website") && !html.contains("<script") && html.contains(&service.app.url("/status"))
    );
    let page = service.app.get("/status").await;
    assert!(page.header("content-security-policy").contains("frame-ancestors 'none'"));
}

/// Requests that arrive while a page is read again do not show the earlier state: the badge and the widget of a site agree.
#[tokio::test(flavor = "multi_thread")]
async fn readers_at_the_same_moment_see_the_same_state() {
    let (_context, service) = service(config()).await;
    let target = StatusTarget::start().await;
    let id = incident(&service, &target).await;
    let mut round = 0;
    repeat_until_ok(async || {
        round += 1;
        let text = format!("Update {round}.");
        let update = json!({"status": "identified", "text": text});
        service.app.post(&format!("/api/v1/uptime/incidents/{id}/updates"), &update).await;
        let read = async || service.app.get("/status").await.text();
        let (one, two, three) = tokio::join!(read(), read(), read());
        match [one, two, three].iter().filter(|page| !page.contains(&text)).count() {
            0 => Ok(()),
            old => Err(format!("{old} of 3 pages are without {text:?}")),
        }
    })
    .await;
}

/// A configuration with a mail server, and the folder of its secret.
fn with_mail(server: &MailServer) -> (tempfile::TempDir, Config) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("smtp");
    std::fs::write(&file, format!("smtp://{}", server.address)).unwrap();
    (folder, Config { smtp: Some(SecretRef::File(file)), ..config() })
}

async fn wait_for_email(server: &MailServer, words: &str) -> Email {
    wait_for(format!("an e-mail with {words:?}"), LIMIT, async || {
        let emails = server.emails();
        emails.iter().find(|email| plain(&email.text).contains(words)).cloned().ok_or(emails)
    })
    .await
}

/// The text without the soft line breaks of quoted-printable.
fn plain(text: &str) -> String {
    text.replace("=\n", "").replace("=3D", "=")
}

/// Whether the e-mail has a `Message-ID` as RFC 5322 allows it: two lists of words with dots in between.
fn has_valid_message_id(email: &Email) -> bool {
    let id = email.text.lines().find_map(|line| line.strip_prefix("Message-ID: <")?.strip_suffix('>'));
    let is_valid = |part: &str| {
        part.split('.').all(|word| {
            !word.is_empty()
                && word.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c))
        })
    };
    id.and_then(|id| id.split_once('@')).is_some_and(|(local, domain)| is_valid(local) && is_valid(domain))
}

/// The path and query of the first link with this action.
fn link(email: &Email, action: &str) -> String {
    let text = plain(&email.text);
    let at = text.find(&format!("/status/default/{action}?")).unwrap_or_else(|| panic!("{action} in {text}"));
    text[at..].split([' ', '\n', '>']).next().unwrap().to_owned()
}

async fn subscribers_receive_email(context: TestContext) {
    let relay = Relay::new(&context.database, Retention::default());
    tokio::spawn(relay.run(async |_: Vec<Event>| Ok::<(), String>(()), std::future::pending()));
    let server = MailServer::start(Security::None).await;
    let (_folder, config) = with_mail(&server);
    let service = Service::configured(&context, config).await;
    let asked = service.app.submit("/status/default/subscribe", &[("email", "ann@shop.example")]).await;
    assert_eq!((asked.status.as_u16(), asked.header("location")), (303, "/status?notice=subscribed"));
    let email = wait_for_email(&server, "confirm your subscription").await;
    assert_eq!(email.recipients, ["RCPT TO:<ann@shop.example>"]);
    let confirm = link(&email, "confirm");
    // A program that opens the link does not confirm.
    assert_eq!(service.app.get(&confirm).await.status, 200);
    let count = async || {
        service.app.get("/api/v1/uptime/pages/default").await.json::<Value>()["subscribers"].as_u64()
    };
    assert_eq!(count().await, Some(0));
    assert!(service.app.submit(&confirm, &[]).await.text().contains("Your subscription is confirmed."));
    assert_eq!(count().await, Some(1));
    assert!(
        service.app.submit(&confirm.replace("token=", "token=x"), &[]).await.text().contains("not valid")
    );
    // The answer does not reveal that the address is known, and no second e-mail is sent.
    let again = service.app.submit("/status/default/subscribe", &[("email", "ann@shop.example")]).await;
    assert_eq!(again.header("location"), "/status?notice=subscribed");

    let target = StatusTarget::start().await;
    let id = incident(&service, &target).await;
    let down = wait_for_email(&server, "Website is down").await;
    let unsubscribe = link(&down, "unsubscribe");
    let text = plain(&down.text);
    assert!(text.contains(&format!("List-Unsubscribe: <{}>", service.app.url(&unsubscribe))), "{text}");
    assert!(text.contains("List-Unsubscribe-Post: List-Unsubscribe=One-Click"), "{text}");
    let update = json!({"status": "identified", "text": "A disk is full."});
    service.app.post(&format!("/api/v1/uptime/incidents/{id}/updates"), &update).await;
    wait_for_email(&server, "A disk is full.").await;
    target.respond_with(200);
    wait_for_email(&server, "Website is up again").await;

    assert_eq!(service.app.get(&unsubscribe).await.status, 200);
    assert_eq!(count().await, Some(1));
    let body = ("application/x-www-form-urlencoded", b"List-Unsubscribe=One-Click".to_vec());
    let ended = service.app.request(http::Method::POST, &unsubscribe, Some(body)).await;
    assert_eq!(ended.status, 200);
    assert_eq!(count().await, Some(0));
    let now_ms = i64::try_from(hob_units::unix_ms()).unwrap();
    let window = json!({"title": "Move", "starts_at_ms": now_ms + 60_000, "ends_at_ms": now_ms + 120_000});
    service.app.post("/api/v1/uptime/maintenance", &window).await;
    assert_eq!(server.emails().len(), 4, "{:?}", server.emails());
    assert!(server.emails().iter().all(has_valid_message_id), "{:?}", server.emails());
    assert!(service.app.get("/status").await.text().contains("Move"));
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_receive_email_sqlite() {
    subscribers_receive_email(TestContext::embedded(NEEDS, Layout::Plain).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_receive_email_postgres() {
    subscribers_receive_email(TestContext::redis(NEEDS).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_are_limited() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let server = MailServer::start(Security::None).await;
    let (_folder, config) = with_mail(&server);
    let service = Service::configured(&context, config).await;
    let subscribe =
        async |email: &str| service.app.submit("/status/default/subscribe", &[("email", email)]).await;
    assert!(subscribe("not an address").await.header("location").contains("notice=email"));
    for number in 0..10 {
        assert_eq!(subscribe(&format!("ann{number}@shop.example")).await.status, 303);
    }
    assert_eq!(subscribe("one.more@shop.example").await.status, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn page_without_a_mail_server_offers_no_subscription() {
    let (_context, service) = service(config()).await;
    assert!(!service.app.get("/status").await.text().contains("id=\"subscribe\""));
    assert_eq!(
        service.app.submit("/status/default/subscribe", &[("email", "a@b.example")]).await.status,
        404
    );
}

/// The page stays while the database is away, and says how old it is.
#[tokio::test(flavor = "multi_thread")]
async fn page_stays_while_the_database_is_away() {
    let context = TestContext::redis(NEEDS).await;
    let TestDatabase::Postgres(postgres) = context.test_database() else { unreachable!() };
    let service = Service::configured(&context, config()).await;
    let target = StatusTarget::start().await;
    service.add_monitor(&target, json!({"name": "Website", "published": true})).await;
    let page = json!({"title": "Second", "password": "correct horse"});
    assert_eq!(service.app.put("/api/v1/uptime/pages/second", &page).await.status, 200);
    assert_eq!(service.app.get("/status/second").await.status, 401);
    wait_for("the system on the page", LIMIT, async || {
        service.app.get("/status").await.text().contains("Website")
    })
    .await;
    postgres.stop();
    wait_for("the age of the page", 2 * LIMIT, async || {
        let page = service.app.get("/status").await;
        let text = page.text();
        assert_eq!(page.status, 200, "{text}");
        assert!(text.contains("Website"), "{text}");
        if text.contains("This page is 1 min old.") { Ok(()) } else { Err(text) }
    })
    .await;
    let widget = service.app.get("/status/default/widget").await.text();
    assert!(widget.contains("This page is 1 min old."), "{widget}");
    assert_eq!(service.app.get("/status/second").await.status, 401, "the password stays, too");
    postgres.restart();
    wait_for("a new page", LIMIT, async || !service.app.get("/status").await.text().contains("This page is"))
        .await;
}
