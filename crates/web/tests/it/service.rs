//! A minimal service, defined only here: the `Service` trait and a registration are sufficient to run it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hob_database::Migrations;
use hob_fixtures::{Layout, Needs, TestApp, TestContext};
use hob_service::config::{Layers, SectionType};
use hob_service::{Live, Metric, ServiceContext, section};
use hob_web::components::{Quantity, Tone};
use hob_web::{Access, Card, Changes, Config as WebConfig, Figure, Registration, Routes, Service, Web};

section! {
    /// Counts gnomes.
    pub struct Config("toy") {
        /// Number of gnomes.
        pub gnomes: u32 = 7,
    }
}

#[derive(Clone)]
struct Toy {
    config: Live<Config>,
    started: Arc<AtomicBool>,
}

#[derive(Debug, thiserror::Error)]
#[error("no gnomes")]
struct NoGnomes;

impl Service for Toy {
    type Config = Config;
    type Error = NoGnomes;

    const TITLE: &'static str = "Toy";
    const HREF: &'static str = "/toy";
    const ICON: &'static str = "M4 4h12v12H4z";
    const SCHEMA: (&'static str, &'static str) = ("schemas/toy.toml", "");
    const MIGRATIONS: Migrations = hob_web::MIGRATIONS;
    const METRICS: &'static [Metric] = &[Metric::gauge("hob_toy_gnomes", "Number of gnomes.")];

    async fn open(_: &ServiceContext, config: Live<Config>) -> Result<Self, NoGnomes> {
        if config.current().gnomes == 0 {
            Err(NoGnomes)
        } else {
            Ok(Self { config, started: Arc::default() })
        }
    }

    fn start(&self, _: &Changes) {
        self.started.store(true, Ordering::SeqCst);
    }

    fn routes(&self) -> Routes {
        let gnomes = self.config.clone();
        Routes::new()
            .page(Access::Public, "/toy", async move || format!("{} gnomes", gnomes.current().gnomes))
    }

    async fn card(&self) -> Card {
        let started = self.started.load(Ordering::SeqCst);
        Card {
            title: Self::TITLE,
            href: Self::HREF,
            tone: if started { Tone::Good } else { Tone::Idle },
            status: "well".to_owned(),
            figures: vec![Figure {
                label: "Gnomes",
                value: Quantity::count(self.config.current().gnomes as usize),
            }],
            spark: Vec::new(),
            problems: Vec::new(),
        }
    }

    async fn demo(&self) -> Result<(), NoGnomes> {
        Ok(())
    }
}

const TOY: Registration = Registration::of::<Toy>();

#[tokio::test]
async fn service_is_run_through_its_registration_alone() {
    let context = TestContext::embedded(Needs::default(), Layout::Plain).await;
    let web = Web::open(&context, Live::fixed(WebConfig::default())).unwrap();
    let section = TOY.section.live(&Layers::default()).unwrap();
    let service = TOY.open(&context, &section).await.unwrap();
    assert_eq!((service.name(), service.title(), TOY.metrics.len()), ("toy", "Toy", 1));
    service.start(web.changes());
    assert_eq!(service.card().await.tone, Tone::Good);
    service.demo().await.unwrap();
    service.relay(&[]).await.unwrap();

    let app = TestApp::start_with(web, service.routes()).await;
    assert_eq!(app.get("/toy").await.text(), "7 gnomes");
    let page = app.get("/access").await.text();
    assert!(
        page.contains(r#"href="/toy""#) && page.contains(Toy::ICON),
        "the navigation has a link to the service: {page}"
    );
}

#[tokio::test]
async fn section_is_read_and_replaced_without_its_type() {
    let context = TestContext::embedded(Needs::default(), Layout::Plain).await;
    let layers = |gnomes: &str| Layers::new(None, [("HOB_TOY_GNOMES".to_owned(), gnomes.to_owned())]);
    let section = TOY.section.live(&layers("8")).unwrap();
    let live = section.of::<Config>().unwrap();
    assert_eq!(live.current().gnomes, 8);
    section.replace(&layers("9")).unwrap();
    assert_eq!(live.current().gnomes, 9);
    assert!(section.replace(&layers("many")).is_err());
    assert_eq!(live.current().gnomes, 9, "an invalid value changes nothing");
    section.replace(&layers("0")).unwrap();
    assert_eq!(TOY.open(&context, &section).await.unwrap_err().to_string(), "no gnomes");

    let other = SectionType::of::<WebConfig>().live(&Layers::default()).unwrap();
    let error = TOY.open(&context, &other).await.unwrap_err().to_string();
    assert_eq!(error, "the given configuration is not the section [toy]");
}
