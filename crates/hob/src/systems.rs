//! The systems that this process runs, as the rest of the program sees them.

use std::fmt;

use anyhow::{Context, Result};
use clap::ValueEnum;
use hob_gateway::Gateway;
use hob_pipeline::Pipelines;
use hob_uptime::Uptime;
use hob_web::{Routes, Stage, Web};

use crate::config::LiveConfig;
use crate::pages::Overview;

/// The systems, by the names that `--only` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    Gateway,
    Uptime,
    Pipelines,
}

/// The systems that were asked for.
pub(crate) struct Systems {
    running: Vec<System>,
    pub(crate) routes: Routes,
    pub(crate) overview: Overview,
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
        let mut systems =
            Systems { running: Vec::new(), routes: Routes::new(), overview: Overview::new(house) };
        let asked_for = |system| only.is_empty() || only.contains(&system);
        if asked_for(System::Gateway) {
            let gateway = Gateway::open(house, config.gateway.clone()).await.context("gateway")?;
            gateway.start();
            systems.running.push(System::Gateway);
        }
        if asked_for(System::Uptime) {
            let uptime = Uptime::open(house, config.uptime.clone()).await.context("uptime")?;
            uptime.start(web.changes());
            systems.routes = systems.routes.merge(uptime.routes());
            systems.running.push(System::Uptime);
        }
        if asked_for(System::Pipelines) {
            let pipelines = Pipelines::open(house, config.pipeline.clone()).context("pipelines")?;
            pipelines.start();
            if stage == Stage::Demo {
                pipelines.start_demo().await.context("the pipelines' demo")?;
            }
            systems.routes = systems.routes.merge(pipelines.routes(web.changes()));
            let card = move || {
                let pipelines = pipelines.clone();
                async move { pipelines.card().await }
            };
            systems.overview = systems.overview.system("Pipelines", "/pipelines", card);
            systems.running.push(System::Pipelines);
        }
        Ok(systems)
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
