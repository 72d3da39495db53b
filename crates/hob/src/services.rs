//! All services, and those that this process runs.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use hob_chat::Chat;
use hob_database::Migrations;
use hob_database::outbox::Event;
use hob_gateway::Gateway;
use hob_load::Load;
use hob_pipeline::Pipelines;
use hob_service::ServiceContext;
use hob_uptime::Uptime;
use hob_web::{AnyService, Changes, Registration, Routes, Web};
use tokio::sync::OnceCell;

use crate::config::LiveServices;

/// All services, in the order of the navigation.
pub(crate) const ALL: &[Registration] = &[
    Registration::of::<Gateway>(),
    Registration::of::<Uptime>(),
    Registration::of::<Chat>(),
    Registration::of::<Load>(),
    Registration::of::<Pipelines>(),
];

/// The migrations of all services. All nodes share one database.
pub(crate) fn migrations() -> Vec<Migrations> {
    ALL.iter().map(|service| service.migrations).collect()
}

/// The services that run on this node.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    running: Vec<Arc<dyn AnyService>>,
}

impl Services {
    /// Opens and starts the services in `only`, or all if it is empty.
    pub(crate) async fn open(
        web: &Web,
        config: &LiveServices,
        only: &[String],
        demo: Option<&Path>,
    ) -> Result<Services> {
        let mut running = Vec::new();
        for service in
            ALL.iter().filter(|service| only.is_empty() || only.iter().any(|name| name == service.name()))
        {
            running.push(open(service, web, config, demo).await.with_context(|| service.name())?);
        }
        Ok(Services { running })
    }

    /// For tests.
    #[cfg(test)]
    pub(crate) fn of(running: Vec<Arc<dyn AnyService>>) -> Services {
        Services { running }
    }

    pub(crate) fn all(&self) -> &[Arc<dyn AnyService>] {
        &self.running
    }

    pub(crate) fn routes(&self) -> Routes {
        self.running.iter().fold(Routes::new(), |routes, service| routes.merge(service.routes()))
    }

    /// The names of the services, for the Health page.
    pub(crate) fn names(&self) -> Vec<String> {
        self.running.iter().map(|service| service.name().to_owned()).collect()
    }

    /// The listeners of services, by name.
    pub(crate) fn urls(&self) -> Vec<(&'static str, String)> {
        self.running.iter().filter_map(|service| Some((service.name(), service.url()?))).collect()
    }
}

async fn open(
    service: &Registration,
    web: &Web,
    config: &LiveServices,
    demo: Option<&Path>,
) -> Result<Arc<dyn AnyService>> {
    let (context, section) = (web.context(), config.section(service));
    let opened = match demo {
        Some(folder) => service.open_demo(context, section, folder).await,
        None => service.open(context, section).await,
    };
    let opened: Arc<dyn AnyService> = opened.map_err(|error| anyhow!(error))?.into();
    opened.start(web.changes());
    if demo.is_some() {
        opened.demo().await.map_err(|error| anyhow!(error)).context("cannot create demo data")?;
    }
    Ok(opened)
}

/// Handles outbox events. Every node has all handlers, since any node may run the relay.
pub(crate) struct EventHandlers {
    context: ServiceContext,
    changes: Changes,
    config: Arc<LiveServices>,
    services: Vec<EventHandler>,
}

/// A service that handles events. A service that does not run here is opened at its first event, so that a mistake in
/// its configuration does not affect this node before.
struct EventHandler {
    service: &'static Registration,
    opened: OnceCell<Arc<dyn AnyService>>,
}

impl EventHandlers {
    pub(crate) fn new(web: &Web, services: &Services, config: Arc<LiveServices>) -> EventHandlers {
        let handler = |service: &'static Registration| {
            let running = services.all().iter().find(|running| running.name() == service.name());
            EventHandler { service, opened: OnceCell::new_with(running.cloned()) }
        };
        let handling = ALL.iter().filter(|service| !service.topics.is_empty());
        EventHandlers {
            context: web.context().clone(),
            changes: web.changes().clone(),
            config,
            services: handling.map(handler).collect(),
        }
    }

    /// Handles events of one topic.
    pub(crate) async fn publish(&self, events: &[Event]) -> Result<()> {
        let Some(event) = events.first() else { return Ok(()) };
        for handler in &self.services {
            if handler.service.topics.contains(&event.topic.as_str()) {
                let service = handler.opened.get_or_try_init(|| self.open(handler.service)).await?;
                service
                    .relay(events)
                    .await
                    .map_err(|error| anyhow!(error))
                    .with_context(|| service.name())?;
            }
        }
        // Subscribers on all nodes read the topic at once.
        self.changes.notify(&event.topic);
        Ok(())
    }

    async fn open(&self, service: &Registration) -> Result<Arc<dyn AnyService>> {
        let opened = service.open(&self.context, self.config.section(service)).await;
        Ok(opened.map_err(|error| anyhow!(error)).with_context(|| service.name())?.into())
    }
}
