//! The interface between a service and the program that runs it. Every service implements [`Service`]; the program uses
//! only the [`Registration`] of a service.

pub(crate) mod card;
pub(crate) mod memory_usage;
pub(crate) mod search;

use std::fmt;
use std::future::{self, Future};
use std::path::Path;
use std::pin::Pin;

use hob_database::Migrations;
use hob_database::outbox::Event;
use hob_service::config::{LiveSection, SectionType};
use hob_service::{Live, Metric, Samples, Section, ServiceContext};

use crate::{Card, Changes, MemoryUsage, Routes, SearchHit};

/// A service. Clones share the same handle.
///
/// A service is opened, then started, and then runs until its background tasks are stopped.
pub trait Service: Clone + Send + Sync + Sized + 'static {
    /// Its section of `hob.toml`. The section's name is the name of the service: `--only` takes it, and its tables and
    /// metrics begin with it.
    type Config: Section;
    type Error: std::error::Error + Send + Sync + 'static;

    /// The title in the console.
    const TITLE: &'static str;
    /// The path of its first page.
    const HREF: &'static str;
    /// Its icon in the navigation: the path of an SVG in a box of 20 by 20.
    const ICON: &'static str;
    /// The name and the text of its schema file.
    const SCHEMA: (&'static str, &'static str);
    const MIGRATIONS: Migrations;
    const METRICS: &'static [Metric];
    /// Whether it sends secrets of `[secrets]` to other hosts.
    const USES_SECRETS: bool = false;
    /// The topics of the outbox that [`relay`](Self::relay) handles.
    const TOPICS: &'static [&'static str] = &[];

    /// Prepares the service. Nothing runs before [`start`](Self::start).
    fn open(
        context: &ServiceContext,
        config: Live<Self::Config>,
    ) -> impl Future<Output = Result<Self, Self::Error>> + Send;

    /// Starts the background tasks. `changes` notifies open pages.
    fn start(&self, changes: &Changes);

    /// The API and the pages.
    fn routes(&self) -> Routes;

    /// The card on the Overview page.
    fn card(&self) -> impl Future<Output = Card> + Send;

    /// The configuration for `--demo`. Files go to `folder`.
    fn demo_config(
        config: Self::Config,
        folder: &Path,
    ) -> impl Future<Output = Result<Self::Config, Self::Error>> + Send {
        let _ = folder;
        future::ready(Ok(config))
    }

    /// Creates demo data in a started service.
    fn demo(&self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Handles outbox events. Any node may run the relay, including one that does not run the service: the service is
    /// opened there, but not started. An event may be delivered more than once.
    fn relay(&self, events: &[Event]) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = events;
        future::ready(Ok(()))
    }

    /// The address of its own listener: `https://127.0.0.1:7080`.
    fn url(&self) -> Option<String> {
        None
    }

    /// Its memory usage in the store, if it has been measured.
    fn memory_usage(&self) -> Option<MemoryUsage> {
        None
    }

    /// Objects whose name or id contains the query, which is in lower case; at most
    /// [`MAX_SEARCH_HITS`](crate::MAX_SEARCH_HITS) of each kind.
    fn search(&self, query: &str) -> impl Future<Output = Result<Vec<SearchHit>, Self::Error>> + Send {
        let _ = query;
        future::ready(Ok(Vec::new()))
    }

    /// Adds the metrics that are read from the store or the database when `/metrics` is requested.
    fn samples(&self, samples: &mut Samples) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = samples;
        future::ready(Ok(()))
    }
}

/// An error of a service.
pub type ServiceError = Box<dyn std::error::Error + Send + Sync>;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
type Opening<'a> = BoxFuture<'a, Result<Box<dyn AnyService>, ServiceError>>;

/// A service before it is opened, without its type.
#[derive(Clone, Copy)]
pub struct Registration {
    pub title: &'static str,
    pub href: &'static str,
    pub schema: (&'static str, &'static str),
    pub migrations: Migrations,
    pub metrics: &'static [Metric],
    pub topics: &'static [&'static str],
    pub uses_secrets: bool,
    pub section: SectionType,
    open: for<'a> fn(&'a ServiceContext, &'a LiveSection) -> Opening<'a>,
    open_demo: for<'a> fn(&'a ServiceContext, &'a LiveSection, &'a Path) -> Opening<'a>,
}

impl Registration {
    #[must_use]
    pub const fn of<S: Service>() -> Self {
        Self {
            title: S::TITLE,
            href: S::HREF,
            schema: S::SCHEMA,
            migrations: S::MIGRATIONS,
            metrics: S::METRICS,
            topics: S::TOPICS,
            uses_secrets: S::USES_SECRETS,
            section: SectionType::of::<S::Config>(),
            open: |context, config| Box::pin(open::<S>(context, config)),
            open_demo: |context, config, folder| Box::pin(open_demo::<S>(context, config, folder)),
        }
    }

    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.section.name
    }

    pub async fn open(
        &self,
        context: &ServiceContext,
        config: &LiveSection,
    ) -> Result<Box<dyn AnyService>, ServiceError> {
        (self.open)(context, config).await
    }

    /// Opens the service for `--demo`. Files go to `folder`.
    pub async fn open_demo(
        &self,
        context: &ServiceContext,
        config: &LiveSection,
        folder: &Path,
    ) -> Result<Box<dyn AnyService>, ServiceError> {
        (self.open_demo)(context, config, folder).await
    }
}

fn section<S: Service>(config: &LiveSection) -> Result<Live<S::Config>, ServiceError> {
    config
        .of()
        .ok_or_else(|| format!("the given configuration is not the section [{}]", S::Config::NAME).into())
}

async fn open<S: Service>(
    context: &ServiceContext,
    config: &LiveSection,
) -> Result<Box<dyn AnyService>, ServiceError> {
    Ok(Box::new(Opened(S::open(&context.for_service(S::Config::NAME), section::<S>(config)?).await?)))
}

async fn open_demo<S: Service>(
    context: &ServiceContext,
    config: &LiveSection,
    folder: &Path,
) -> Result<Box<dyn AnyService>, ServiceError> {
    let config = section::<S>(config)?.current().as_ref().clone();
    let config = S::demo_config(config, folder).await?;
    Ok(Box::new(Opened(S::open(&context.for_service(S::Config::NAME), Live::fixed(config)).await?)))
}

/// An opened service, without its type. The methods are those of [`Service`].
pub trait AnyService: Send + Sync {
    fn name(&self) -> &'static str;
    fn title(&self) -> &'static str;
    fn href(&self) -> &'static str;
    fn start(&self, changes: &Changes);
    fn routes(&self) -> Routes;
    fn card(&self) -> BoxFuture<'_, Card>;
    fn demo(&self) -> BoxFuture<'_, Result<(), ServiceError>>;
    fn relay<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), ServiceError>>;
    fn url(&self) -> Option<String>;
    fn memory_usage(&self) -> Option<MemoryUsage>;
    fn search<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Result<Vec<SearchHit>, ServiceError>>;
    fn samples<'a>(&'a self, samples: &'a mut Samples) -> BoxFuture<'a, Result<(), ServiceError>>;
}

/// A wrapper, so that the methods of [`AnyService`] do not conflict with those of [`Service`].
struct Opened<S>(S);

impl<S: Service> AnyService for Opened<S> {
    fn name(&self) -> &'static str {
        S::Config::NAME
    }

    fn title(&self) -> &'static str {
        S::TITLE
    }

    fn href(&self) -> &'static str {
        S::HREF
    }

    fn start(&self, changes: &Changes) {
        self.0.start(changes);
    }

    /// The link in the navigation comes first.
    fn routes(&self) -> Routes {
        Routes::new().nav(S::TITLE, S::HREF, S::ICON).merge(self.0.routes())
    }

    fn card(&self) -> BoxFuture<'_, Card> {
        Box::pin(self.0.card())
    }

    fn demo(&self) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(async { Ok(self.0.demo().await?) })
    }

    fn relay<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async { Ok(self.0.relay(events).await?) })
    }

    fn url(&self) -> Option<String> {
        self.0.url()
    }

    fn memory_usage(&self) -> Option<MemoryUsage> {
        self.0.memory_usage()
    }

    fn search<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Result<Vec<SearchHit>, ServiceError>> {
        Box::pin(async { Ok(self.0.search(query).await?) })
    }

    fn samples<'a>(&'a self, samples: &'a mut Samples) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async { Ok(self.0.samples(samples).await?) })
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration").field(&self.name()).finish()
    }
}

impl fmt::Debug for dyn AnyService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Service").field(&self.name()).finish()
    }
}
