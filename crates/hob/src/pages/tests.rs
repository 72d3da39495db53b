//! The console's own pages, over the wire.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use hob_database::outbox::Event;
use hob_fixtures::{Layout, Needs, TestApp, TestContext, every_service};
use hob_service::keys::Keys;
use hob_service::{Live, Samples, SecretRef};
use hob_store::cmd;
use hob_testkit::{LIMIT, wait_for};
use hob_web::components::{Quantity, Tone};
use hob_web::{
    AnyService, Card, CardProblem, Changes, Config, Figure, MemoryUsage, NewToken, Routes, Scope, Scopes,
    SearchHit, ServiceError, TokenCreation, Tokens,
};

use super::routes;
use crate::schema;
use crate::serve::http::Endpoints;
use crate::services::Services;

const NEEDS: Needs = Needs { schemas: &[], migrations: &[] };

fn endpoints() -> Endpoints {
    Endpoints {
        listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
        scheme: "http",
        embedded: None,
        store: String::new(),
        database: String::new(),
        services: Vec::new(),
    }
}

/// A service that shows a card, and may have measured what it takes.
#[derive(Clone)]
struct Showing {
    /// `None`: it never answers.
    card: Option<Card>,
    title: &'static str,
    href: &'static str,
    memory_usage: Option<MemoryUsage>,
}

impl AnyService for Showing {
    fn name(&self) -> &'static str {
        self.title
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn href(&self) -> &'static str {
        self.href
    }

    fn start(&self, _: &Changes) {}

    fn routes(&self) -> Routes {
        Routes::new()
    }

    fn card(&self) -> Pin<Box<dyn Future<Output = Card> + Send + '_>> {
        Box::pin(async {
            match &self.card {
                Some(card) => card.clone(),
                None => std::future::pending().await,
            }
        })
    }

    fn demo(&self) -> Pin<Box<dyn Future<Output = Result<(), ServiceError>> + Send + '_>> {
        Box::pin(async { Ok(()) })
    }

    fn relay<'a>(
        &'a self,
        _: &'a [Event],
    ) -> Pin<Box<dyn Future<Output = Result<(), ServiceError>> + Send + 'a>> {
        Box::pin(async { Ok(()) })
    }

    fn url(&self) -> Option<String> {
        None
    }

    fn search<'a>(
        &'a self,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<SearchHit>, ServiceError>> + Send + 'a>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn memory_usage(&self) -> Option<MemoryUsage> {
        self.memory_usage
    }

    fn samples<'a>(
        &'a self,
        _: &'a mut Samples,
    ) -> Pin<Box<dyn Future<Output = Result<(), ServiceError>> + Send + 'a>> {
        Box::pin(async { Ok(()) })
    }
}

/// Services with these cards. The first has measured what it takes.
fn services(cards: impl IntoIterator<Item = Card>) -> Services {
    let garden = MemoryUsage { service: "Garden", objects: "gnomes", count: 40, bytes: 40 * 1_500 };
    let well = Card { title: "Garden", href: "/garden", ..card(Vec::new()) };
    let measured = Showing { card: Some(well), title: "Garden", href: "/garden", memory_usage: Some(garden) };
    let showing = cards.into_iter().map(|card| Showing {
        title: card.title,
        href: card.href,
        card: Some(card),
        memory_usage: None,
    });
    Services::of(
        [measured].into_iter().chain(showing).map(|one| Arc::new(one) as Arc<dyn AnyService>).collect(),
    )
}

fn card(problems: Vec<CardProblem>) -> Card {
    Card {
        title: "Chat",
        href: "/chat",
        tone: Tone::Good,
        status: "well".to_owned(),
        figures: vec![Figure { label: "Online", value: Quantity::count(1_234) }],
        spark: vec![Some(1.0), None, Some(3.0)],
        problems,
    }
}

async fn app(context: &TestContext, services: Services) -> TestApp {
    configured(context, Config::default(), services).await
}

async fn configured(context: &TestContext, config: Config, services: Services) -> TestApp {
    let keys = Keys::from_env(context.layout, &|_| None).unwrap();
    TestApp::start_with_config(context, Live::fixed(config), |web| {
        routes(&services, web, &keys, &endpoints()).unwrap()
    })
    .await
}

every_service! {
    NEEDS;

    async fn health_page_shows_all_parts(context: TestContext) {
        let app = app(&context, services([])).await;
        let page = app.get("/health").await;
        assert_eq!(page.status, 200, "{}", page.text());
        for part in ["connected", "Latency", "audit of the keys", context.node.as_str(), "waiting", "gnomes", "1.5"] {
            assert!(page.text().contains(part), "{part} is missing in {}", page.text());
        }
        app.stop().await;
    }

    async fn audit_starts_when_the_page_is_opened(context: TestContext) {
        let app = app(&context, services([])).await;
        app.get("/keys").await;
        wait_for("an audit", LIMIT, async || app.get("/keys").await.text().contains("as declared")).await;
        app.stop().await;
    }
}

#[tokio::test]
async fn key_that_no_schema_declares_is_found() {
    let context = TestContext::redis(NEEDS).await;
    let app = app(&context, services([])).await;
    context.store.run::<()>(cmd("SET").arg("stray:1").arg("x").clone()).await.unwrap();
    app.get("/keys").await;
    wait_for("the stray", LIMIT, async || app.get("/keys").await.text().contains("stray:")).await;
}

#[tokio::test]
async fn families_are_searched_and_shown_with_their_keys() {
    let context = TestContext::redis(NEEDS).await;
    let app = app(&context, services([])).await;
    let all = app.get("/keys").await.text();
    let family =
        schema::own().unwrap().into_iter().find(|schema| schema.name == "chat").unwrap().families.remove(0);
    assert!(all.contains(&format!(r#"href="/keys/chat/{}""#, family.name)), "{all}");
    let none = app.get("/keys?q=no+such+family").await.text();
    assert!(none.contains("No declared family contains “no such family”."), "{none}");
    let some = app.get(&format!("/keys?q={}", family.name)).await.text();
    assert!(some.contains(&family.name) && some.len() < all.len());
    let page = app.get(&format!("/keys/chat/{}", family.name)).await;
    assert!(page.text().contains("Declaration"), "{}", page.text());
    assert_eq!(app.get("/keys/chat/nothing").await.status, 404);
}

#[tokio::test]
async fn problems_are_listed_worst_first() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let trouble = |tone, text: &str| CardProblem {
        tone,
        text: text.to_owned(),
        href: "/chat".to_owned(),
        since_ms: None,
    };
    let problems = vec![trouble(Tone::Warn, "somewhat <late>"), trouble(Tone::Bad, "very much down")];
    let page = app(&context, services([card(problems)])).await.get("/").await.text();
    let (worst, other) =
        (page.find("very much down").unwrap(), page.find("somewhat &#60;late&#62;").unwrap());
    assert!(worst < other && other < page.find(r#"class="card""#).unwrap(), "{page}");
    assert!(page.contains("1.2\u{a0}k"), "{page}");
}

#[tokio::test]
async fn without_problems_the_overview_says_so() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let page = app(&context, services([card(Vec::new())])).await.get("/").await.text();
    assert!(page.contains("All systems operational."), "{page}");
}

#[tokio::test]
async fn service_that_hangs_does_not_delay_the_others() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let hanging = Showing { card: None, title: "Uptime", href: "/uptime", memory_usage: None };
    let mut all = services([card(Vec::new())]).all().to_vec();
    all.push(Arc::new(hanging));
    let page = app(&context, Services::of(all)).await.get("/").await.text();
    assert!(page.contains("Uptime does not answer") && page.contains("1.2\u{a0}k"), "{page}");
}

#[tokio::test]
async fn pages_without_access_are_not_mentioned() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admin");
    std::fs::write(&file, "an unguessable admin token").unwrap();
    let config = Config { admin_token: Some(SecretRef::File(file)), ..Config::default() };
    let new = NewToken {
        name: "ada".to_owned(),
        scopes: Scopes::new(vec![Scope::read("chat")]).unwrap(),
        expires_at: None,
    };
    let TokenCreation::Created { text, .. } =
        Tokens::new(&context.database).create(&new, "a test").await.unwrap()
    else {
        panic!("no token");
    };
    let mut app = configured(&context, config, services([])).await;
    let links = ["href=\"/health\"", "href=\"/keys\"", "href=\"/access\""];
    app.use_token("an unguessable admin token");
    let page = app.get("/").await.text();
    assert!(links.iter().all(|link| page.contains(link)), "{page}");
    app.use_token(&text);
    let page = app.get("/").await.text();
    assert!(page.contains("ada") && !links.iter().any(|link| page.contains(link)), "{page}");
    assert_eq!(app.get("/health").await.status, 403);
}

mod browser {
    use hob_testkit::Browser;
    use hob_testkit::page::check_pages;
    use hob_web::components::Unit;

    use super::*;

    fn busy() -> Services {
        let figure = |label, value| Figure { label, value };
        let course = |seed: u64| (0..60_u64).map(|step| Some(((step * seed) % 17 + 20) as f64)).collect();
        let gateway = Card {
            title: "Gateway",
            href: "/gateway",
            tone: Tone::Good,
            status: "2 instances".to_owned(),
            figures: vec![
                figure("Requests", Unit::PerSecond.of(1_820.0)),
                figure("p99", Unit::Millis.of(118.0)),
                figure("Errors", Unit::Ratio.of(0.0021)),
            ],
            spark: course(7),
            problems: Vec::new(),
        };
        let down = CardProblem {
            tone: Tone::Bad,
            text: "api.example.org is down: connection refused".to_owned(),
            href: "/uptime".to_owned(),
            since_ms: Some(hob_units::unix_ms() - 240_000),
        };
        let uptime = Card {
            title: "Uptime",
            href: "/uptime",
            tone: Tone::Bad,
            status: "1 of 40 down".to_owned(),
            figures: vec![figure("Up", Unit::Ratio.of(0.975)), figure("Checks", Unit::PerSecond.of(12.0))],
            spark: course(5),
            problems: vec![down],
        };
        let late = CardProblem {
            tone: Tone::Warn,
            text: "The nightly run waits for its quota".to_owned(),
            href: "/pipelines".to_owned(),
            since_ms: None,
        };
        let pipelines = Card {
            title: "Pipelines",
            href: "/pipelines",
            tone: Tone::Busy,
            status: "3 running".to_owned(),
            figures: vec![figure("Items today", Quantity::count(48_211))],
            spark: Vec::new(),
            problems: vec![late],
        };
        services([gateway, uptime, card(Vec::new()), pipelines])
    }

    #[tokio::test]
    async fn overview_of_a_busy_node_is_readable() {
        let context = TestContext::embedded(NEEDS, Layout::Plain).await;
        let app = app(&context, busy()).await;
        check_pages(&Browser::start(), &[("busy-overview", app.url("/"))]).await;
    }
}
