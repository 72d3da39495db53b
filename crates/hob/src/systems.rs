//! The systems that this process runs, as the rest of the program sees them.

use std::fmt;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::ValueEnum;
use hob_chat::Chat;
use hob_gateway::Gateway;
use hob_loadtest::LoadTests;
use hob_pipeline::Pipelines;
use hob_records::outbox::Event;
use hob_uptime::Uptime;
use hob_web::{Card, Changes, Routes, Stage, Web};

use crate::config::LiveConfig;
use crate::pages::{Footprints, Overview};

/// The systems, by the names that `--only` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    Gateway,
    Uptime,
    Chat,
    Load,
    Pipelines,
}

/// The systems that were asked for.
pub(crate) struct Systems {
    running: Vec<System>,
    /// Where the gateway's clients come in.
    pub(crate) gateway: Option<SocketAddr>,
    pub(crate) routes: Routes,
    pub(crate) overview: Overview,
    pub(crate) footprints: Footprints,
    pub(crate) outlets: Outlets,
}

/// What becomes of the outbox's events beside being numbered. Every node has it, since any may run the relay, whichever
/// systems it runs.
pub(crate) struct Outlets {
    chat: Chat,
    changes: Changes,
}

impl Outlets {
    pub(crate) async fn publish(&self, events: &[Event]) -> Result<()> {
        self.chat.relay(events).await?;
        // All of one topic: whoever waits for it, on whatever node, looks at once.
        if let Some(event) = events.first() {
            self.changes.tell(&event.topic);
        }
        Ok(())
    }
}

impl Systems {
    /// Opens the systems that are asked for, all where none is named, and starts what they do in the background.
    pub(crate) async fn open(
        web: &Web,
        config: &LiveConfig,
        only: &[System],
        stage: Stage,
    ) -> Result<Systems> {
        let house = web.house();
        let chat = Chat::open(house, config.chat.clone()).context("chat")?;
        let mut systems = Systems {
            running: Vec::new(),
            gateway: None,
            routes: Routes::new(),
            overview: Overview::new(house),
            footprints: Footprints::default(),
            outlets: Outlets { chat: chat.clone(), changes: web.changes().clone() },
        };
        let asked_for = |system| only.is_empty() || only.contains(&system);
        if asked_for(System::Gateway) {
            systems.add_gateway(web, config, stage).await.context("gateway")?;
        }
        if asked_for(System::Uptime) {
            systems.add_uptime(web, config, stage).await.context("uptime")?;
        }
        if asked_for(System::Chat) {
            systems.add_chat(chat, web, stage);
        }
        if asked_for(System::Load) {
            systems.add_load_tests(web, config, stage).context("load tests")?;
        }
        if asked_for(System::Pipelines) {
            systems.add_pipelines(web, config, stage).await.context("pipelines")?;
        }
        Ok(systems)
    }

    async fn add_gateway(&mut self, web: &Web, config: &LiveConfig, stage: Stage) -> Result<()> {
        let gateway = match stage {
            Stage::Real => Gateway::open(web.house(), config.gateway.clone()).await?,
            Stage::Demo => Gateway::open_demo(web.house(), &config.gateway.now()).await?,
        };
        self.gateway = gateway.address();
        gateway.start();
        gateway.keep_pages_current(web.changes());
        self.show(System::Gateway, "Gateway", "/gateway", gateway.routes(), move || {
            let gateway = gateway.clone();
            async move { gateway.card().await }
        });
        Ok(())
    }

    async fn add_uptime(&mut self, web: &Web, config: &LiveConfig, stage: Stage) -> Result<()> {
        let uptime = Uptime::open(web.house(), config.uptime.clone()).await?;
        uptime.start(web.changes());
        if stage == Stage::Demo {
            uptime.start_demo().await.context("the demo")?;
        }
        let measured = uptime.clone();
        self.footprints.add(move || measured.footprint());
        self.show(System::Uptime, "Uptime", "/uptime", uptime.routes(), move || {
            let uptime = uptime.clone();
            async move { uptime.card().await }
        });
        Ok(())
    }

    fn add_chat(&mut self, chat: Chat, web: &Web, stage: Stage) {
        chat.show_changes(web.changes());
        chat.start();
        if stage == Stage::Demo {
            chat.start_demo();
        }
        self.show(System::Chat, "Chat", "/chat", chat.routes(), move || {
            let chat = chat.clone();
            async move { chat.card().await }
        });
    }

    fn add_load_tests(&mut self, web: &Web, config: &LiveConfig, stage: Stage) -> Result<()> {
        let tests = LoadTests::open(web.house(), config.loadtest.clone())?;
        tests.start(web.changes());
        if stage == Stage::Demo {
            tests.show_off();
        }
        self.show(System::Load, "Load tests", "/load", tests.routes(), move || {
            let tests = tests.clone();
            async move { tests.card().await }
        });
        Ok(())
    }

    async fn add_pipelines(&mut self, web: &Web, config: &LiveConfig, stage: Stage) -> Result<()> {
        let pipelines = Pipelines::open(web.house(), config.pipeline.clone())?;
        pipelines.start();
        if stage == Stage::Demo {
            pipelines.start_demo().await.context("the demo")?;
        }
        let routes = pipelines.routes(web.changes());
        self.show(System::Pipelines, "Pipelines", "/pipelines", routes, move || {
            let pipelines = pipelines.clone();
            async move { pipelines.card().await }
        });
        Ok(())
    }

    /// Shows a system that runs: its routes, and its card on the Overview.
    fn show<F>(
        &mut self,
        system: System,
        title: &'static str,
        href: &'static str,
        routes: Routes,
        card: impl Fn() -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Card> + Send + 'static,
    {
        self.running.push(system);
        self.routes = std::mem::take(&mut self.routes).merge(routes);
        self.overview = self.overview.clone().system(title, href, card);
    }

    /// What this node does, for the Health page.
    pub(crate) fn roles(&self) -> Vec<String> {
        self.running.iter().map(ToString::to_string).collect()
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
