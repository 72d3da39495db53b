//! The systems that this process runs, as the rest of the program sees them.

use std::fmt;

use anyhow::{Context, Result};
use clap::ValueEnum;
use hob_chat::Chat;
use hob_gateway::Gateway;
use hob_web::{Routes, Stage, Web};

use crate::config::LiveConfig;
use crate::outbox::Readers;
use crate::pages::Overview;

/// The systems, by the names that `--only` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    Gateway,
    Chat,
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
        let mut readers = Readers::default();
        if asked_for(System::Chat) {
            let chat = Chat::open(house, config.chat.clone()).context("chat")?;
            systems.add_chat(&chat, web, stage);
            readers.chat = Some(chat);
        }
        readers.start(house);
        Ok(systems)
    }

    fn add_chat(&mut self, chat: &Chat, web: &Web, stage: Stage) {
        chat.show_changes(web.changes());
        chat.start();
        if stage == Stage::Demo {
            chat.start_demo();
        }
        let told = chat.clone();
        self.overview = self.overview.clone().system("Chat", "/chat", move || {
            let chat = told.clone();
            async move { chat.card().await }
        });
        self.routes = std::mem::take(&mut self.routes).merge(chat.routes());
        self.running.push(System::Chat);
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
