//! The systems that this process runs, as the rest of the program sees them.

use std::fmt;

use anyhow::{Context, Result};
use clap::ValueEnum;
use hob_gateway::Gateway;
use hob_uptime::Uptime;
use hob_web::{Routes, Stage, Web};

use crate::config::LiveConfig;
use crate::pages::Overview;

/// The systems, by the names that `--only` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    Gateway,
    Uptime,
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
            systems.add_uptime(&uptime, web, stage).await?;
        }
        Ok(systems)
    }

    async fn add_uptime(&mut self, uptime: &Uptime, web: &Web, stage: Stage) -> Result<()> {
        uptime.start(web.changes());
        if stage == Stage::Demo {
            uptime.start_demo().await.context("the demo of uptime")?;
        }
        self.routes = std::mem::take(&mut self.routes).merge(uptime.routes());
        let told = uptime.clone();
        self.overview = self.overview.clone().system("Uptime", "/uptime", move || {
            let uptime = told.clone();
            async move { uptime.card().await }
        });
        self.running.push(System::Uptime);
        Ok(())
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
