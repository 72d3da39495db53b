//! The services: which there are, and those that this process runs.

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

/// All services, in the order of the navigation. One more is one more line here.
pub(crate) const ALL: &[Registration] = &[
    Registration::of::<Gateway>(),
    Registration::of::<Uptime>(),
    Registration::of::<Chat>(),
    Registration::of::<Load>(),
    Registration::of::<Pipelines>(),
];

/// The tables of all services, whichever of them run here: there is one database.
pub(crate) fn migrations() -> Vec<Migrations> {
    ALL.iter().map(|service| service.migrations).collect()
}

/// The services that run here.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    running: Vec<Arc<dyn AnyService>>,
}

impl Services {
    /// Opens and starts the services that `only` names, or all if it is empty.
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

    /// Services that were opened elsewhere.
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

    /// What this node does, for the Health page.
    pub(crate) fn names(&self) -> Vec<String> {
        self.running.iter().map(|service| service.name().to_owned()).collect()
    }

    /// Where clients of the services come in besides the API, by name.
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
        opened.demo().await.map_err(|error| anyhow!(error)).context("the demo")?;
    }
    Ok(opened)
}

/// What becomes of the outbox's events beside being numbered. Every node has it, since any may run the relay, whichever
/// services it runs.
pub(crate) struct Outlets {
    context: ServiceContext,
    changes: Changes,
    config: Arc<LiveServices>,
    services: Vec<Outlet>,
}

/// A service that handles events. One that does not run here is opened when its first event comes: until then, a
/// mistake in its configuration concerns nobody on this node.
struct Outlet {
    service: &'static Registration,
    opened: OnceCell<Arc<dyn AnyService>>,
}

impl Outlets {
    pub(crate) fn new(web: &Web, services: &Services, config: Arc<LiveServices>) -> Outlets {
        let outlet = |service: &'static Registration| {
            let running = services.all().iter().find(|running| running.name() == service.name());
            Outlet { service, opened: OnceCell::new_with(running.cloned()) }
        };
        let handling = ALL.iter().filter(|service| !service.topics.is_empty());
        Outlets {
            context: web.context().clone(),
            changes: web.changes().clone(),
            config,
            services: handling.map(outlet).collect(),
        }
    }

    /// Hands on events, all of one topic.
    pub(crate) async fn publish(&self, events: &[Event]) -> Result<()> {
        let Some(event) = events.first() else { return Ok(()) };
        for outlet in &self.services {
            if outlet.service.topics.contains(&event.topic.as_str()) {
                let service = outlet.opened.get_or_try_init(|| self.open(outlet.service)).await?;
                service
                    .relay(events)
                    .await
                    .map_err(|error| anyhow!(error))
                    .with_context(|| service.name())?;
            }
        }
        // Subscribers of the topic look at once, on whatever node they are.
        self.changes.tell(&event.topic);
        Ok(())
    }

    async fn open(&self, service: &Registration) -> Result<Arc<dyn AnyService>> {
        let opened = service.open(&self.context, self.config.section(service)).await;
        Ok(opened.map_err(|error| anyhow!(error)).with_context(|| service.name())?.into())
    }
}
