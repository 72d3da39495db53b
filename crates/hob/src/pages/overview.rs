//! `/`: a card per system, and what is wrong now.

use std::cmp::Reverse;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use hob_house::House;
use hob_web::look::{Empty, Tone, When};
use hob_web::{Card, Console, Page, Problem, Trouble};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::health::Checkup;

/// A system that takes longer to tell how it is gets no card this time: the others are shown in time.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is wrong, at most; the rest is on the systems' own pages.
const MOST_TROUBLES: usize = 12;

type CardOf = dyn Fn() -> Pin<Box<dyn Future<Output = Card> + Send>> + Send + Sync;

/// The systems that have a card.
#[derive(Clone)]
pub(crate) struct Overview {
    house: House,
    systems: Vec<System>,
}

#[derive(Clone)]
struct System {
    title: &'static str,
    href: &'static str,
    card: Arc<CardOf>,
}

impl Overview {
    pub(crate) fn new(house: &House) -> Self {
        Self { house: house.clone(), systems: Vec::new() }
    }

    /// Adds a system; `card` tells how it is at the moment.
    pub(crate) fn system<F>(
        mut self,
        title: &'static str,
        href: &'static str,
        card: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Card> + Send + 'static,
    {
        self.systems.push(System { title, href, card: Arc::new(move || Box::pin(card())) });
        self
    }

    /// The cards of the systems that who is looking may look at, in their order, asked for at once.
    async fn cards(&self, console: &Console) -> Vec<Card> {
        let mut asked = JoinSet::new();
        let seen = self.systems.iter().filter(|system| console.may_open(system.href));
        for (index, system) in seen.cloned().enumerate() {
            asked.spawn(async move {
                let told = timeout(PATIENCE, (system.card)()).await;
                (index, told.unwrap_or_else(|_| system.silent()))
            });
        }
        let mut cards = Vec::with_capacity(self.systems.len());
        while let Some(told) = asked.join_next().await {
            // A card that panicked was logged; the others are shown.
            cards.extend(told.ok());
        }
        cards.sort_by_key(|(index, _)| *index);
        cards.into_iter().map(|(_, card)| card).collect()
    }
}

impl System {
    fn silent(&self) -> Card {
        let trouble = Trouble {
            tone: Tone::Warn,
            text: format!("{} does not tell how it is", self.title),
            href: self.href.to_owned(),
            since_ms: None,
        };
        Card {
            title: self.title,
            href: self.href,
            tone: Tone::Warn,
            word: "no answer".to_owned(),
            figures: Vec::new(),
            spark: Vec::new(),
            troubles: vec![trouble],
        }
    }
}

impl fmt::Debug for Overview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.systems.iter().map(|system| system.title)).finish()
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
    let (cards, checkup) = tokio::join!(overview.cards(&console), Checkup::of(&overview.house));
    let mut troubles = if console.may_open("/health") { checkup.troubles() } else { Vec::new() };
    troubles.extend(cards.iter().flat_map(|card| card.troubles.iter().cloned()));
    troubles.sort_by_key(|trouble| Reverse(trouble.tone));
    let more = troubles.len().saturating_sub(MOST_TROUBLES);
    troubles.truncate(MOST_TROUBLES);
    console.page("Overview", &OverviewPage { cards, troubles, more })
}
