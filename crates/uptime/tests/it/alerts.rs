//! Delivery of alerts: success, failures, crashes and order (U9).

mod channels;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hob_database::outbox::{Event, Relay, Retention};
use hob_database::{Query, Read as _, sql};
use hob_fixtures::{Layout, TestApp, TestContext, TestStore};
use hob_service::config::{Live, Secret, Secrets, SecretsConfig};
use hob_service::{Period, SecretRef, ServiceContext};
use hob_testkit::{KillableNode, LIMIT, TestDatabase, every_database, wait_for};
use hob_uptime::database;
use hob_uptime::incident::alert::{Alerts, channel};
use hob_uptime::incident::{INCIDENTS, IncidentEvent, IncidentEventKind};
use hob_uptime::probe::{Limits, Probe};
use hob_uptime::{Config, Uptime};
use hob_web::Service as _;
use hob_web::Web;
use hob_web::webhook::signature;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::NEEDS;
use crate::identity::{Authority, Flaw};
use crate::mail::{MailServer, Security};
use crate::secrets::entry;
use crate::target::{Target, answer};

/// Only the receiver may see this value.
const SECRET: &str = "s3cret-that-stays-hidden";

/// A context with secrets, and a configuration with short pauses.
struct AlertHarness {
    context: ServiceContext,
    config: Config,
    folder: tempfile::TempDir,
    secrets: Vec<(String, SecretRef)>,
    test: TestContext,
}

impl AlertHarness {
    async fn new(test_database: TestDatabase) -> Self {
        let test = TestContext::start_on(NEEDS, TestStore::embedded(Layout::Plain), test_database).await;
        let config = Config {
            alert_backoff: Period::from_millis(10),
            alert_timeout: Period::from_secs(20),
            grace: Period::from_millis(100),
            ..Config::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let mut harness = Self { context: test.context().clone(), config, folder, secrets: Vec::new(), test };
        harness.add_secret("hook", SECRET);
        harness
    }

    /// Adds a secret to the configuration.
    fn add_secret(&mut self, name: &str, secret: &str) {
        let path = self.folder.path().join(name);
        std::fs::write(&path, secret).unwrap();
        self.secrets.push((name.to_owned(), SecretRef::File(path)));
        let bound = |place: &SecretRef| entry(place.clone(), &["uptime"], &["127.0.0.1"]);
        let listed = self.secrets.iter().map(|(name, place)| (name.parse().unwrap(), bound(place)));
        self.context.secrets = Secrets::new(Live::fixed(SecretsConfig::from_iter(listed)));
    }

    /// Sends e-mail through this server.
    fn use_mail_server(&mut self, address: &str) {
        let path = self.folder.path().join("smtp");
        std::fs::write(&path, address).unwrap();
        self.config.smtp = Some(SecretRef::File(path));
    }

    fn alerts(&self) -> Alerts {
        self.alerts_in(&self.context)
    }

    fn alerts_in(&self, context: &ServiceContext) -> Alerts {
        let probe = Probe::new(Limits::default(), self.context.secrets.clone());
        Alerts::new(context, &probe, Live::fixed(self.config.clone()))
    }

    /// Starts the consumer and the sender.
    fn start(&self) {
        let web = Web::open(&self.context, Live::fixed(hob_web::Config::default())).unwrap();
        self.alerts().start(web.changes());
    }

    /// Adds a channel and returns its id.
    async fn channel(&self, spec: Value) -> String {
        let spec = serde_json::from_value(spec).unwrap();
        match channel::add(&self.context, &spec).await.unwrap() {
            channel::SaveOutcome::Saved(channel) => channel.id.to_string(),
            refused => panic!("{refused:?}"),
        }
    }

    async fn webhook(&self, name: &str, target: &Target) -> String {
        self.channel(json!({"name": name, "kind": "webhook", "url": target.url("/hook"), "secret": "hook"}))
            .await
    }

    /// Emits the event of an opened incident and runs the relay.
    async fn open(&self, incident: &str, channels: &[&str]) {
        self.emit(&event(incident, channels)).await;
    }

    async fn emit(&self, event: &IncidentEvent) {
        let payload = &serde_json::to_string(event).unwrap();
        let incident = event.incident.as_str();
        let emit =
            |tx: hob_database::Transaction| async move { tx.emit(INCIDENTS, incident, payload.as_str()) };
        self.context.database.write(emit).await.unwrap();
        let mut relay = Relay::new(&self.context.database, Retention::default());
        relay.run_round(async |_: Vec<Event>| Ok::<(), String>(())).await.unwrap();
        relay.release().await.unwrap();
    }

    /// State and attempts of all deliveries, by id.
    async fn deliveries(&self) -> Vec<(String, String, u32)> {
        let all: Query<(String, String, u32)> =
            sql("SELECT id, state, attempts FROM uptime_delivery ORDER BY id");
        self.context.database.all(all).await.unwrap()
    }

    /// Waits until the only delivery has this state and number of attempts.
    async fn wait_until_delivery_is(&self, state: &str, attempts: u32) {
        wait_for(format!("a delivery in the state {state} after {attempts} attempts"), LIMIT, async || {
            let all = self.deliveries().await;
            match all.as_slice() {
                [(_, found, tries)] if found == state && *tries == attempts => Ok(()),
                _ => Err(all),
            }
        })
        .await;
    }
}

fn event(incident: &str, channels: &[&str]) -> IncidentEvent {
    IncidentEvent {
        incident: incident.to_owned(),
        number: 1,
        kind: IncidentEventKind::Opened,
        monitor: "m1".to_owned(),
        name: "Shop".to_owned(),
        target: "https://shop.example/".to_owned(),
        channels: channels.iter().map(|&channel| channel.to_owned()).collect(),
        at_ms: 1_700_000_030_000,
        opened_at_ms: 1_700_000_000_000,
        class: "timeout".to_owned(),
        message: "no response after 10s".to_owned(),
        resolution: None,
    }
}

fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    let head = request.split("\r\n\r\n").next()?;
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn body(request: &str) -> &str {
    request.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// Accepts connections and never responds.
async fn unresponsive_target() -> Target {
    Target::raw(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await
}

every_database! {
    /// U9
    async fn repeated_event_is_delivered_once_and_signed(test_database: TestDatabase) {
        let harness = AlertHarness::new(test_database).await;
        let target = Target::responding(|_| answer(200, "", "")).await;
        let id = harness.webhook("Operations", &target).await;
        // Its id and its name refer to the same channel.
        harness.open("i1", &[&id, "Operations", "unknown"]).await;
        harness.open("i1", &[&id]).await;
        harness.start();
        harness.wait_until_delivery_is("delivered", 1).await;

        let requests = target.requests();
        assert_eq!(requests.len(), 1);
        assert_eq!(header(&requests[0], "idempotency-key"), Some(format!("i1.{id}.opened.1").as_str()));
        let signed = header(&requests[0], "x-hob-signature").unwrap();
        let time = signed.strip_prefix("t=").unwrap().split(',').next().unwrap().parse().unwrap();
        assert_eq!(signature::sign(&Secret::from(SECRET.to_owned()), time, body(&requests[0]).as_bytes()), signed);
        let sent: Value = serde_json::from_str(body(&requests[0])).unwrap();
        assert_eq!((&sent["kind"], &sent["incident"]["monitor"]["name"]), (&json!("opened"), &json!("Shop")));
        assert_eq!(sent["incident"]["opened_at"], "2023-11-14T22:13:20Z");
    }

    /// U9
    async fn failed_delivery_is_retried_and_every_attempt_is_recorded(test_database: TestDatabase) {
        let harness = AlertHarness::new(test_database).await;
        let tries = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&tries);
        let target = Target::responding(move |_| match count.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => answer(500, "", "oops"),
            _ => answer(204, "", ""),
        })
        .await;
        let id = harness.webhook("Operations", &target).await;
        harness.open("i1", &[&id]).await;
        harness.start();
        harness.wait_until_delivery_is("delivered", 3).await;
        let tries: Query<(u32, bool, String)> =
            sql("SELECT number, delivered, message FROM uptime_attempt ORDER BY number");
        let expected = [(1, false, "status 500"), (2, false, "status 500"), (3, true, "status 204")];
        let expected = expected.map(|(number, delivered, message)| (number, delivered, message.to_owned()));
        assert_eq!(harness.context.database.all(tries).await.unwrap(), expected);
        let keys: Vec<_> = target.requests().iter().map(|request| header(request, "idempotency-key").unwrap().to_owned()).collect();
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }

    /// U9
    async fn notices_of_an_incident_keep_their_order(test_database: TestDatabase) {
        let harness = AlertHarness::new(test_database).await;
        let tries = Arc::new(AtomicUsize::new(0));
        let target = Target::responding(move |_| match tries.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => answer(500, "", ""),
            _ => answer(200, "", ""),
        })
        .await;
        let id = harness.webhook("Operations", &target).await;
        let opened = event("i1", &[&id]);
        harness.emit(&opened).await;
        harness.emit(&IncidentEvent { kind: IncidentEventKind::Reminded, ..opened.clone() }).await;
        harness.emit(&IncidentEvent { kind: IncidentEventKind::Resolved, ..opened }).await;
        harness.start();
        wait_for("all deliveries", LIMIT, async || {
            let all = harness.deliveries().await;
            if all.len() == 3 && all.iter().all(|(_, state, _)| state == "delivered") { Ok(()) } else { Err(all) }
        })
        .await;
        let events: Vec<_> = target.requests().iter().map(|request| header(request, "x-hob-event").unwrap().to_owned()).collect();
        assert_eq!(events, ["opened", "opened", "opened", "reminded", "resolved"]);
    }

    /// U9
    async fn retries_are_bounded(test_database: TestDatabase) {
        let mut harness = AlertHarness::new(test_database).await;
        harness.config.alert_attempts = 3;
        let target = Target::responding(|_| answer(503, "", "")).await;
        let id = harness.webhook("Operations", &target).await;
        harness.open("i1", &[&id]).await;
        harness.start();
        harness.wait_until_delivery_is("failed", 3).await;
        assert_eq!(target.connections(), 3);
    }

    /// U9
    async fn delivery_of_a_dead_node_is_sent_by_another_with_the_same_key(test_database: TestDatabase) {
        let mut harness = AlertHarness::new(test_database).await;
        harness.config.alert_timeout = Period::from_millis(500);
        let connections = Arc::new(AtomicUsize::new(0));
        let keys: Arc<Mutex<Vec<String>>> = Arc::default();
        let (count, noted) = (Arc::clone(&connections), Arc::clone(&keys));
        let target = Target::raw(move |mut stream| {
            let (count, noted) = (Arc::clone(&count), Arc::clone(&noted));
            async move {
                let request = crate::target::read_head(&mut stream).await;
                // On a busy machine a node may time out before it has sent its request.
                let Some(key) = header(&request, "idempotency-key") else { return };
                noted.lock().unwrap().push(key.to_owned());
                if count.fetch_add(1, Ordering::SeqCst) == 0 {
                    // The first request gets no response.
                    std::future::pending::<()>().await;
                }
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer(200, "", "").as_bytes()).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        })
        .await;
        let id = harness.webhook("Operations", &target).await;
        harness.open("i1", &[&id]).await;

        let first = harness.test.another_node().await;
        let first = ServiceContext { secrets: harness.context.secrets.clone(), ..first };
        let alerts = harness.alerts_in(&first);
        let web = Web::open(&first, Live::fixed(hob_web::Config::default())).unwrap();
        let first = KillableNode::start(async move {
            alerts.start(web.changes());
            (alerts, web)
        })
        .await;
        wait_for("the first request", LIMIT, async || connections.load(Ordering::SeqCst) > 0).await;
        first.kill();

        harness.start();
        wait_for("the delivery", LIMIT, async || {
            let all = harness.deliveries().await;
            if all[0].1 == "delivered" { Ok(()) } else { Err(all) }
        })
        .await;
        let keys = keys.lock().unwrap().clone();
        assert!(keys.len() >= 2 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert_eq!(harness.deliveries().await.len(), 1);
    }

    async fn delivery_to_a_removed_channel_fails(test_database: TestDatabase) {
        let mut harness = AlertHarness::new(test_database).await;
        harness.config.alert_backoff = Period::from_secs(1000);
        let target = Target::responding(|_| answer(500, "", "")).await;
        let id = harness.webhook("Operations", &target).await;
        harness.open("i1", &[&id]).await;
        harness.start();
        harness.wait_until_delivery_is("waiting", 1).await;
        assert!(database::channels::remove(&harness.context.database, &id.as_str().into()).await.unwrap());
        harness.context.database.execute(sql("UPDATE uptime_delivery SET due_at = 0")).await.unwrap();
        harness.wait_until_delivery_is("failed", 2).await;
        assert_eq!(target.connections(), 1);
    }
}

/// U9
#[tokio::test(flavor = "multi_thread")]
async fn unresponsive_channel_does_not_delay_others() {
    const INCIDENTS: usize = 20;
    let mut harness = AlertHarness::new(TestDatabase::sqlite()).await;
    harness.config.alert_timeout = Period::from_secs(600);
    let unresponsive = unresponsive_target().await;
    let good = Target::responding(|_| answer(200, "", "")).await;
    let (unresponsive_id, good_id) =
        (harness.webhook("Unresponsive", &unresponsive).await, harness.webhook("Good", &good).await);
    for n in 0..INCIDENTS {
        harness.open(&format!("i{n:02}"), &[&unresponsive_id, &good_id]).await;
    }
    harness.start();
    wait_for("deliveries to the good channel", LIMIT, async || {
        let all = harness.deliveries().await;
        all.iter().filter(|(id, state, _)| id.contains(&good_id) && state == "delivered").count() == INCIDENTS
    })
    .await;
    // The limit of concurrent deliveries.
    wait_for("the maximum number of pending deliveries", LIMIT, async || unresponsive.connections() == 4)
        .await;
    assert_eq!(good.connections(), INCIDENTS);
}

/// U5 U6 U9
#[tokio::test(flavor = "multi_thread")]
async fn outage_and_recovery_of_a_target_are_alerted() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let status = Arc::new(AtomicUsize::new(503));
    let now = Arc::clone(&status);
    let target =
        Target::responding(move |_| answer(u16::try_from(now.load(Ordering::SeqCst)).unwrap(), "", "")).await;
    let hook = Target::responding(|_| answer(200, "", "")).await;

    let uptime = Uptime::open(&context, Live::fixed(Config::default())).await.unwrap();
    let app = TestApp::start(&context, uptime.routes()).await;
    uptime.start(app.web().changes());
    let relay = Relay::new(&context.database, Retention::default());
    tokio::spawn(relay.run(async |_: Vec<Event>| Ok::<(), String>(()), std::future::pending()));

    let channel = json!({"name": "Operations", "kind": "webhook", "url": hook.url("/")});
    assert_eq!(app.post("/api/v1/uptime/channels", &channel).await.status, 201);
    let monitor = json!({"name": "Shop", "kind": "http", "target": target.url("/"), "interval_s": 1, "retries": 0,
                         "channels": ["Operations"]});
    assert_eq!(app.post("/api/v1/uptime/monitors", &monitor).await.status, 201);
    let events = || {
        hook.requests()
            .iter()
            .map(|request| header(request, "x-hob-event").unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    wait_for("the alert of the outage", LIMIT, async || events() == ["opened"]).await;
    assert!(body(&hook.requests()[0]).contains("Shop is down"), "{:?}", hook.requests());

    status.store(200, Ordering::SeqCst);
    wait_for("the alert of the recovery", LIMIT, async || events() == ["opened", "resolved"]).await;
}

#[tokio::test]
async fn slack_and_discord_use_the_url_in_the_secret() {
    let mut harness = AlertHarness::new(TestDatabase::sqlite()).await;
    let target = Target::responding(|_| answer(200, "", "ok")).await;
    harness.add_secret("slack_url", &target.url("/slack/T0/s3cret"));
    harness.add_secret("discord_url", &target.url("/discord/s3cret"));
    harness.channel(json!({"name": "Slack", "kind": "slack", "secret": "slack_url"})).await;
    harness.channel(json!({"name": "Discord", "kind": "discord", "secret": "discord_url"})).await;
    harness.open("i1", &["Slack", "Discord"]).await;
    harness.start();
    wait_for("both deliveries", LIMIT, async || {
        harness.deliveries().await.iter().filter(|(_, state, _)| state == "delivered").count() == 2
    })
    .await;
    let requests = target.requests();
    let of = |path: &str| {
        requests.iter().find(|request| request.starts_with(path)).map(|request| body(request)).unwrap()
    };
    assert!(of("POST /slack/T0/s3cret ").starts_with(r#"{"text":"Shop is down\ntimeout: no response"#));
    assert!(of("POST /discord/s3cret ").starts_with(r#"{"content":"Shop is down\n"#));
}

#[tokio::test]
async fn email_reaches_all_recipients() {
    let mut harness = AlertHarness::new(TestDatabase::sqlite()).await;
    let server = MailServer::start(Security::None).await;
    harness.use_mail_server(&format!("smtp://{}", server.address));
    harness.config.mail_from = "Hob <hob@status.example>".to_owned();
    let to = ["Ann <ann@example.com>", "bob@example.com"];
    let id = harness.channel(json!({"name": "Mail", "kind": "email", "to": to})).await;
    harness.open("i1", &[&id]).await;
    harness.start();
    harness.wait_until_delivery_is("delivered", 1).await;
    let emails = server.emails();
    assert_eq!(emails.len(), 1);
    assert_eq!(emails[0].recipients, ["RCPT TO:<ann@example.com>", "RCPT TO:<bob@example.com>"]);
    for line in [
        "Subject: Shop is down",
        &format!("Message-ID: <i1.{id}.opened.1@status.example>"),
        "https://shop.example/",
    ] {
        assert!(emails[0].text.contains(line), "{line} in {}", emails[0].text);
    }
}

#[tokio::test]
async fn email_uses_starttls_or_implicit_tls() {
    let mut harness = AlertHarness::new(TestDatabase::sqlite()).await;
    let authority = Authority::new();
    let acceptor = || authority.acceptor(Flaw::None, &[]);
    let roots = harness.folder.path().join("roots.pem");
    std::fs::write(&roots, authority.pem()).unwrap();
    let id = harness.channel(json!({"name": "Mail", "kind": "email", "to": ["ann@example.com"]})).await;
    let id = &id.as_str().into();
    for (security, scheme, query) in [
        (Security::StartTls(acceptor()), "smtp", "?tls=required"),
        (Security::StartTls(acceptor()), "smtp", "?tls=opportunistic"),
        (Security::Implicit(acceptor()), "smtps", ""),
    ] {
        let server = MailServer::start(security).await;
        let url = format!("{scheme}://ann:{SECRET}@{}{query}", server.address);
        harness.use_mail_server(&url);
        harness.config.ca_file = None;
        let refused = harness.alerts().test(id).await.unwrap().unwrap();
        assert!(!refused.delivered && refused.message.contains("certificate"), "{url}: {refused:?}");
        assert!(server.emails().is_empty());

        harness.config.ca_file = Some(roots.clone());
        let attempt = harness.alerts().test(id).await.unwrap().unwrap();
        assert!(attempt.delivered, "{url}: {attempt:?}");
        let emails = server.emails();
        assert!(emails.len() == 1 && emails[0].secured, "{emails:?}");
    }

    let plain = MailServer::start(Security::None).await;
    harness.use_mail_server(&format!("smtp://{}?tls=required", plain.address));
    let refused = harness.alerts().test(id).await.unwrap().unwrap();
    assert!(!refused.delivered && plain.emails().is_empty(), "{refused:?}");
}

#[tokio::test]
async fn mail_server_error_does_not_contain_the_password() {
    let mut harness = AlertHarness::new(TestDatabase::sqlite()).await;
    for (address, message) in
        [(format!("smtp://ann:{SECRET}@127.0.0.1:1"), "onnect"), (SECRET.to_owned(), "is invalid")]
    {
        harness.use_mail_server(&address);
        let to = ["ann@example.com"];
        let name = message;
        let id = harness.channel(json!({"name": name, "kind": "email", "to": to})).await;
        let attempt = harness.alerts().test(&id.as_str().into()).await.unwrap().unwrap();
        assert!(!attempt.delivered && attempt.message.contains(message), "{attempt:?}");
        assert!(!attempt.message.contains(SECRET));
    }
}
