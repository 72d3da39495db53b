//! Live updates.

use axum::extract::State;
use axum::response::Response;
use futures_util::FutureExt;
use hob_database::outbox::{Relay, Retention, Topic};
use hob_fixtures::{Layout, TestApp, TestContext, every_service};
use hob_service::{Live, Period, ServiceContext};
use hob_testkit::{LIMIT, wait_for};
use hob_web::live::Client;
use hob_web::{Access, Config, Problem, Routes, Web};
use http::header::HeaderName;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::garden::{Garden, routes};
use crate::protected::{ADMIN, NEEDS, ProtectedApp, token};

/// A stream of server-sent events.
pub(crate) struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    pub(crate) async fn open(app: &TestApp, path: &str) -> Self {
        Self::of(app.open(path).await)
    }

    pub(crate) fn of(response: http::Response<Incoming>) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new() }
    }

    /// Reads until the received text contains `expected`, and returns it; `None` if the stream ends before.
    pub(crate) async fn until(&mut self, expected: &str) -> Option<String> {
        let read = async {
            while !self.text.contains(expected) {
                let frame = self.body.frame().await?.ok()?;
                self.text.push_str(&String::from_utf8_lossy(frame.data_ref()?));
            }
            Some(std::mem::take(&mut self.text))
        };
        tokio::time::timeout(LIMIT, read).await.expect("the event arrives in time")
    }
}

#[tokio::test]
async fn listener_receives_changes_of_its_topic_only() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let web = Web::open(&context, Live::fixed(Config::default())).unwrap();
    web.start();
    let mut garden = web.changes().listen("garden");
    for topic in ["pond", "garden", "orchard"] {
        web.changes().notify(topic);
    }
    assert_eq!(tokio::time::timeout(LIMIT, garden.changed()).await, Ok(Some(())));
    let mut last = web.changes().listen("shed");
    web.changes().notify("shed");
    assert_eq!(tokio::time::timeout(LIMIT, last.changed()).await, Ok(Some(())));
    assert_eq!(garden.changed().now_or_never(), None, "only other topics have changed");
}

/// The id of the last event in the text.
fn last_id(text: &str) -> &str {
    text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().expect("an id")
}

every_service! {
    NEEDS;

    async fn change_on_one_node_reaches_the_pages_of_another(context: TestContext) {
        let other = context.another_node().await;
        let here = TestApp::start(&context, routes(Garden::default())).await;
        let there = TestApp::start(&other, routes(Garden::default())).await;
        let mut events = Events::open(&there, "/live?topics=garden,pond").await;
        events.until("retry:").await.unwrap();
        // Repeated, because the other node may not have subscribed yet.
        wait_for("the change on the other node", LIMIT, async || {
            here.web().changes().notify("garden");
            let received = events.until("event: changed\ndata: garden\n\n");
            tokio::time::timeout(std::time::Duration::from_millis(500), received).await.ok().flatten()
        })
        .await;
        other.tasks.stop(LIMIT).await;
    }
}

#[tokio::test]
async fn client_receives_its_topics_only_and_changes_are_combined() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let app = TestApp::start(&context, routes(Garden::default())).await;
    let mut events = Events::open(&app, "/live?topics=garden").await;
    for _ in 0..1_000 {
        app.web().changes().notify("pond");
        app.web().changes().notify("garden");
    }
    let first = events.until("data: garden\n\n").await.unwrap();
    assert!(!first.contains("pond"));
    assert_eq!(first.matches("event: changed").count(), 1, "{first}");
}

#[tokio::test]
async fn client_that_reconnects_receives_missed_events() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut app = TestApp::start(&context, routes(Garden::default())).await;
    let mut events = Events::open(&app, "/live?topics=garden,pond").await;
    app.web().changes().notify("garden");
    let first = events.until("data: garden\n\n").await.unwrap();
    let id = last_id(&first).to_owned();
    drop(events);
    app.web().changes().notify("pond");
    app.use_header(HeaderName::from_static("last-event-id"), &id);
    let mut reconnected = Events::open(&app, "/live?topics=garden,pond").await;
    reconnected.until("data: pond\n\n").await.unwrap();

    app.use_header(HeaderName::from_static("last-event-id"), "0-17");
    let mut unknown = Events::open(&app, "/live?topics=garden").await;
    unknown.until("event: reset\n").await.unwrap();
}

#[tokio::test]
async fn client_receives_no_topics_it_may_not_read() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let mut protected = ProtectedApp::start(&context).await;
    let (secret, _) = token(&context, "garden:read").await;
    let mut gardener = Events::open(protected.with_token(&secret), "/live?topics=pond,garden").await;
    let mut admin = Events::open(protected.with_token(ADMIN), "/live?topics=pond").await;
    protected.app.web().changes().notify("pond");
    admin.until("data: pond\n\n").await.unwrap();
    protected.app.web().changes().notify("garden");
    let received = gardener.until("data: garden\n\n").await.unwrap();
    assert!(!received.contains("pond"), "{received}");
    assert_eq!(protected.with_token(&secret).open("/live?topics=garden.gnomes").await.status(), 200);
    assert_eq!(protected.with_token(ADMIN).get("/live?topics=a%20b").await.status, 422);
    assert_eq!(protected.with_token(ADMIN).get("/live").await.status, 422);
}

#[tokio::test]
async fn server_stops_with_open_streams() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    // If it waited for the stream, it would not stop in time.
    let config = Live::fixed(Config { drain_timeout: Period::from_secs(600), ..Config::default() });
    let app = TestApp::start_with_config(&context, config, |_| routes(Garden::default())).await;
    let mut events = Events::open(&app, "/live?topics=garden").await;
    events.until("retry:").await.unwrap();
    app.stop().await;
    assert_eq!(events.until("never").await, None, "the stream has ended");
}

const SOWN: Topic = Topic("garden.seed.sown");

async fn sown(client: Client, State(web): State<Web>) -> Result<Response, Problem> {
    client.stream_outbox(&web.context().database, SOWN, web.changes(), "garden").await
}

/// Emits an event and runs the relay, which numbers it.
async fn sow(context: &ServiceContext, seed: &str) {
    let sow = |tx: hob_database::Transaction| async move { tx.emit(SOWN, seed, seed) };
    context.database.write(sow).await.unwrap();
    let mut relay = Relay::new(&context.database, Retention::default());
    let publish = async |_| Ok::<_, hob_database::Error>(());
    relay.run_round(publish).await.unwrap();
    relay.run(publish, std::future::ready(())).await;
}

every_service! {
    NEEDS;

    async fn client_that_reconnects_to_an_outbox_misses_nothing(context: TestContext) {
        let mut app = TestApp::start_with_config(&context, Live::fixed(Config::default()), |web| {
            Routes::new().page(Access::Public, "/sown", sown).with_state(web.clone())
        })
        .await;
        sow(&context, "before the first client").await;
        let mut events = Events::open(&app, "/sown").await;
        events.until("retry:").await.unwrap();
        sow(&context, "carrot").await;
        app.web().changes().notify("garden");
        assert_eq!(events.until("data: carrot\n\n").await.unwrap(), "id: 2\nevent: event\ndata: carrot\n\n");
        drop(events);
        sow(&context, "leek").await;
        sow(&context, "kale").await;
        app.use_header(HeaderName::from_static("last-event-id"), "2");
        let mut reconnected = Events::open(&app, "/sown").await;
        let received = reconnected.until("data: kale\n\n").await.unwrap();
        assert!(received.ends_with("id: 3\nevent: event\ndata: leek\n\nid: 4\nevent: event\ndata: kale\n\n"), "{received}");

        app.use_header(HeaderName::from_static("last-event-id"), "99");
        Events::open(&app, "/sown").await.until("id: 4\nevent: reset\n").await.unwrap();
    }
}
