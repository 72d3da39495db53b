//! `/`: a card per service, and current problems.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use hob_service::ServiceContext;
use hob_web::components::{Empty, RelativeTime, Tone};
use hob_web::{AnyService, Card, CardProblem, Console, Page, Problem};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::health::{HealthCheck, degraded_problem};
use crate::services::Services;

/// A service that takes longer than this is shown without its numbers.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of problems on the page.
const MAX_PROBLEMS: usize = 12;

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

    /// The cards of the services that the caller may open, requested concurrently.
    async fn cards(&self, console: &Console) -> Vec<(Arc<dyn AnyService>, Card)> {
        let mut pending = JoinSet::new();
        let seen = self.services.iter().filter(|service| console.may_open(service.href()));
        for (index, service) in seen.cloned().enumerate() {
            pending.spawn(async move {
                let card = timeout(TIMEOUT, service.card()).await;
                let card = card.unwrap_or_else(|_| unanswered_card(&*service));
                (index, (service, card))
            });
        }
        let mut cards = Vec::with_capacity(self.services.len());
        while let Some(card) = pending.join_next().await {
            // A panic was logged; show the other cards.
            cards.extend(card.ok());
        }
        cards.sort_by_key(|(index, _)| *index);
        cards.into_iter().map(|(_, card)| card).collect()
    }
}

/// Adds that the store refuses calls of the service, which the service's own figures need not show.
fn with_degradation(mut card: Card, service: &dyn AnyService, health_check: &HealthCheck) -> Card {
    if let Some(degradation) = health_check.degradation(service.name()) {
        let problem =
            CardProblem { href: service.href().to_owned(), ..degraded_problem(service.title(), degradation) };
        card.problems.insert(0, problem);
        if card.tone < Tone::Warn {
            (card.tone, card.status) = (Tone::Warn, "degraded".to_owned());
        }
    }
    card
}

fn unanswered_card(service: &dyn AnyService) -> Card {
    let trouble = CardProblem {
        tone: Tone::Warn,
        text: format!("{} does not answer", service.title()),
        href: service.href().to_owned(),
        since_ms: None,
    };
    Card {
        title: service.title(),
        href: service.href(),
        tone: Tone::Warn,
        status: "no answer".to_owned(),
        figures: Vec::new(),
        spark: Vec::new(),
        problems: vec![trouble],
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
    problems: Vec<CardProblem>,
    /// The number of problems that are not listed.
    more: usize,
}

impl OverviewPage {
    fn well(&self) -> hob_web::components::Icon {
        Tone::Good.icon()
    }

    fn nothing(&self) -> Empty {
        Empty::new("No services", "You may not view any service, or this node does not run any.")
            .command("hob serve")
    }
}

pub(crate) async fn page(console: Console, State(overview): State<Overview>) -> Result<Page, Problem> {
    let (cards, health_check) = tokio::join!(overview.cards(&console), HealthCheck::of(&overview.context));
    let cards: Vec<Card> =
        cards.into_iter().map(|(service, card)| with_degradation(card, &*service, &health_check)).collect();
    let mut problems = if console.may_open("/health") { health_check.problems() } else { Vec::new() };
    problems.extend(cards.iter().flat_map(|card| card.problems.iter().cloned()));
    problems.sort_by_key(|trouble| Reverse(trouble.tone));
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    console.page("Overview", &OverviewPage { cards, problems, more })
}
