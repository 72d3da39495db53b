//! The card of load tests on the Overview.

use hob_database::PageRequest;
use hob_web::look::{Quantity, Tone};
use hob_web::{Card, Figure, Service as _, Trouble};

use crate::Error;
use crate::database::runs;
use crate::load::Load;
use crate::run::{Run, State};

/// The seconds of a run that the line on the card shows.
const SPARK_SECONDS: u32 = 120;

pub(crate) async fn card(tests: &Load) -> Card {
    let card = Card {
        title: Load::TITLE,
        href: Load::HREF,
        tone: Tone::Idle,
        word: "quiet".into(),
        figures: Vec::new(),
        spark: Vec::new(),
        troubles: Vec::new(),
    };
    match fill(tests, card.clone()).await {
        Ok(card) => card,
        Err(error) => Card { tone: Tone::Bad, word: format!("cannot tell: {error}"), ..card },
    }
}

async fn fill(tests: &Load, mut card: Card) -> Result<Card, Error> {
    let held = runs::active(&tests.inner.context.database).await?;
    let waiting = tests.waiting().await?;
    if let Some(run) = held.first() {
        (card.tone, card.word) = (Tone::Busy, format!("{} running", held.len()));
        let requests = tests.newest_requests(run, SPARK_SECONDS).await?;
        card.spark = requests.into_iter().map(|requests| Some(requests as f64)).collect();
    }
    let rate = match held.first() {
        Some(run) => tests.views().current(&run.id).await?.map_or(0.0, |current| current.tps),
        None => 0.0,
    };
    card.figures = vec![
        Figure { label: "Requests per second", value: hob_web::chart::Unit::PerSecond.of(rate) },
        Figure { label: "Running", value: Quantity::count(held.len()) },
        Figure { label: "Waiting", value: Quantity::count(waiting.len()) },
    ];
    let recent = tests.runs(None, &PageRequest::first(5)).await?.rows;
    let failed = |run: &&Run| matches!(run.state, State::Failed | State::Lost);
    // Of the last run only: what was followed by a better one is no trouble any more.
    card.troubles = recent.iter().take(1).filter(failed).map(trouble).collect();
    Ok(card)
}

fn trouble(run: &Run) -> Trouble {
    Trouble {
        tone: Tone::Warn,
        text: format!("The load test {} ended: {}", run.id, run.message),
        href: format!("/load/runs/{}", run.id),
        since_ms: run.ended_at.and_then(|at| u64::try_from(at.0).ok()),
    }
}
