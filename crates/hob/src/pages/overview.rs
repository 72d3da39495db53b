//! `/`: a card per system, and what is wrong now.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use hob_service::ServiceContext;
use hob_web::look::{Empty, Tone, When};
use hob_web::{AnyService, Card, Console, Page, Problem, Trouble};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::health::Checkup;
use crate::services::Services;

/// A system that takes longer to tell how it is gets no card this time: the others are shown in time.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is wrong, at most; the rest is on the systems' own pages.
const MOST_TROUBLES: usize = 12;

/// The services that have a card.
#[derive(Clone)]
pub(crate) struct Overview {
    context: ServiceContext,
    services: Vec<Arc<dyn AnyService>>,
}

impl Overview {
    pub(crate) fn new(context: &ServiceContext, services: &Services) -> Self {
        Self { context: context.clone(), services: services.all().to_vec() }
    }

    /// The cards of the systems that who is looking may look at, in their order, asked for at once.
    async fn cards(&self, console: &Console) -> Vec<Card> {
        let mut asked = JoinSet::new();
        let seen = self.services.iter().filter(|service| console.may_open(service.href()));
        for (index, service) in seen.cloned().enumerate() {
            asked.spawn(async move {
                let card = timeout(PATIENCE, service.card()).await;
                (index, card.unwrap_or_else(|_| silent(&*service)))
            });
        }
        let mut cards = Vec::with_capacity(self.services.len());
        while let Some(told) = asked.join_next().await {
            // A card that panicked was logged; the others are shown.
            cards.extend(told.ok());
        }
        cards.sort_by_key(|(index, _)| *index);
        cards.into_iter().map(|(_, card)| card).collect()
    }
}

fn silent(service: &dyn AnyService) -> Card {
    let trouble = Trouble {
        tone: Tone::Warn,
        text: format!("{} does not answer", service.title()),
        href: service.href().to_owned(),
        since_ms: None,
    };
    Card {
        title: service.title(),
        href: service.href(),
        tone: Tone::Warn,
        word: "no answer".to_owned(),
        figures: Vec::new(),
        spark: Vec::new(),
        troubles: vec![trouble],
    }
}

impl fmt::Debug for Overview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.services.iter().map(|service| service.title())).finish()
    }
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    cards: Vec<Card>,
    troubles: Vec<Trouble>,
    /// Troubles that are not listed.
    more: usize,
}

impl OverviewPage {
    fn well(&self) -> hob_web::look::Icon {
        Tone::Good.icon()
    }

    fn nothing(&self) -> Empty {
        Empty::new("No system runs here", "This node was started without any of the five systems.")
            .command("hob serve")
    }
}

pub(crate) async fn page(console: Console, State(overview): State<Overview>) -> Result<Page, Problem> {
    let (cards, checkup) = tokio::join!(overview.cards(&console), Checkup::of(&overview.context));
    let mut troubles = if console.may_open("/health") { checkup.troubles() } else { Vec::new() };
    troubles.extend(cards.iter().flat_map(|card| card.troubles.iter().cloned()));
    troubles.sort_by_key(|trouble| Reverse(trouble.tone));
    let more = troubles.len().saturating_sub(MOST_TROUBLES);
    troubles.truncate(MOST_TROUBLES);
    console.page("Overview", &OverviewPage { cards, troubles, more })
}
