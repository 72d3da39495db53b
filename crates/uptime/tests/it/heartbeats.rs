//! The URL of a heartbeat is shown only to callers that may change monitors.

use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::{Live, SecretRef};
use hob_uptime::monitor::MonitorSpec;
use hob_uptime::monitor::check::MonitorKind;
use hob_uptime::{AddOutcome, Config, Uptime};
use hob_web::{NewToken, Service as _, TokenCreation, Tokens};
use serde_json::{Value, json};

use crate::NEEDS;

/// A heartbeat monitor behind an app with an admin token.
struct Site {
    context: TestContext,
    app: TestApp,
    id: String,
    /// The token in the URL of the heartbeat.
    secret: String,
    _folder: tempfile::TempDir,
}

impl Site {
    async fn open() -> Self {
        let context = TestContext::embedded(NEEDS, Layout::Plain).await;
        let uptime = Uptime::open(&context, Live::fixed(Config::default())).await.unwrap();
        let spec = MonitorSpec { published: true, ..MonitorSpec::new("Backup", MonitorKind::Heartbeat, "") };
        let AddOutcome::Added(monitor) = uptime.add(None, &spec).await.unwrap() else { panic!("not added") };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin");
        std::fs::write(&path, "correct horse battery staple").unwrap();
        let config =
            hob_web::Config { admin_token: Some(SecretRef::File(path)), ..hob_web::Config::default() };
        let mut app = TestApp::start_with_config(&context, Live::fixed(config), |_| uptime.routes()).await;
        app.use_token("correct horse battery staple");
        let id = monitor.id.to_string();
        let shown: Value = app.get(&format!("/api/v1/uptime/monitors/{id}")).await.json();
        let secret = shown["heartbeat_path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        Self { context, app, id, secret, _folder: folder }
    }

    /// Sends a token with these scopes from now on.
    async fn sign_in(&mut self, scopes: &str) {
        let new = NewToken { name: scopes.to_owned(), scopes: scopes.parse().unwrap(), expires_at: None };
        let created = Tokens::new(&self.context.database).create(&new, "a test").await.unwrap();
        let TokenCreation::Created { text, .. } = created else { panic!("no token") };
        self.app.use_token(&text);
    }
}

#[tokio::test]
async fn heartbeat_url_is_shown_to_those_who_may_change_the_monitor() {
    let mut site = Site::open().await;
    let id = site.id.clone();
    let show = format!("/api/v1/uptime/monitors/{id}");
    let page = format!("/uptime/monitors/{id}");
    let all =
        ["/api/v1/uptime/monitors", &show, &page, "/uptime", "/status", "/status.rss", "/uptime/incidents"];
    site.sign_in("uptime:read").await;
    for path in all.into_iter().chain([&*format!("{show}/history"), &*format!("/badge/{id}/status.svg")]) {
        let shown = site.app.get(path).await;
        assert_eq!(shown.status, 200, "{path}");
        assert!(!shown.text().contains(&site.secret), "{path}: {}", shown.text());
    }
    let monitor: Value = site.app.get(&show).await.json();
    assert_eq!((&monitor["kind"], &monitor["heartbeat_path"]), (&json!("heartbeat"), &Value::Null));
    let text = site.app.get(&page).await.text();
    assert!(text.contains("Heartbeat URL"), "a viewer sees that there is one: {text}");

    site.sign_in("uptime:write").await;
    for path in ["/api/v1/uptime/monitors", &show, &page] {
        let shown = site.app.get(path).await.text();
        assert!(shown.contains(&format!("/heartbeat/{}", site.secret)), "{path}: {shown}");
    }
    let edited: Value = site.app.patch(&show, &json!({ "name": "Nightly backup" })).await.json();
    assert_eq!(edited["heartbeat_path"], format!("/heartbeat/{}", site.secret));
}

#[tokio::test]
async fn only_the_whole_token_is_accepted() {
    let mut site = Site::open().await;
    site.app.forget_headers();
    let secret = site.secret.clone();
    let ask = async |token: &str| site.app.get(&format!("/heartbeat/{token}")).await.status.as_u16();
    assert_eq!(ask(&secret).await, 200);
    let last = if secret.ends_with('0') { '1' } else { '0' };
    let first = if secret.starts_with('0') { '1' } else { '0' };
    for wrong in [
        secret[..secret.len() - 1].to_owned(),
        secret[..16].to_owned(),
        format!("{secret}0"),
        format!("{}{last}", &secret[..secret.len() - 1]),
        format!("{first}{}", &secret[1..]),
        secret.to_uppercase() + "x",
        format!("{}%25", &secret[..16]),
        "é".repeat(20),
        "0".repeat(64),
    ] {
        assert_eq!(ask(&wrong).await, 404, "{wrong}");
    }
}

#[tokio::test]
async fn heartbeat_token_is_not_shown_by_debug() {
    let spec = MonitorSpec::new("Backup", MonitorKind::Heartbeat, "");
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let uptime = Uptime::open(&context, Live::fixed(Config::default())).await.unwrap();
    let AddOutcome::Added(monitor) = uptime.add(None, &spec).await.unwrap() else { panic!("not added") };
    let token: (String,) =
        hob_database::Read::one(&context.database, hob_database::sql("SELECT token FROM uptime_monitor"))
            .await
            .unwrap();
    assert!(!format!("{monitor:?}").contains(&token.0), "{monitor:?}");
}
