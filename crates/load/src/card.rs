//! The card of load on the Overview.

use hob_database::PageRequest;
use hob_web::components::{Quantity, Tone};
use hob_web::{Card, CardProblem, Figure, Service as _};

use crate::Error;
use crate::database::runs;
use crate::load::Load;
use crate::pages;
use crate::run::{Run, RunState};

/// The length of the sparkline.
const SPARK_SECONDS: u32 = 120;

pub(crate) async fn card(load: &Load) -> Card {
    let card = Card {
        title: Load::TITLE,
        href: Load::HREF,
        tone: Tone::Idle,
        status: "idle".into(),
        figures: Vec::new(),
        spark: Vec::new(),
        problems: Vec::new(),
    };
    match fill(load, card.clone()).await {
        Ok(card) => card,
        Err(error) => Card { tone: Tone::Bad, status: format!("unavailable: {error}"), ..card },
    }
}

async fn fill(load: &Load, mut card: Card) -> Result<Card, Error> {
    let active = runs::active(&load.inner.context.database).await?;
    let pending = load.pending().await?;
    if let Some(run) = active.first() {
        (card.tone, card.status) = (Tone::Busy, format!("{} running", active.len()));
        let requests = load.newest_requests(run, SPARK_SECONDS).await?;
        card.spark = requests.into_iter().map(|requests| Some(requests as f64)).collect();
    }
    let rate = match active.first() {
        Some(run) => load.views().current(&run.id).await?.map_or(0.0, |current| current.tps),
        None => 0.0,
    };
    card.figures = vec![
        Figure { label: "requests", value: hob_web::chart::Unit::PerSecond.of(rate) },
        Figure { label: "running", value: Quantity::count(active.len()) },
        Figure { label: "pending", value: Quantity::count(pending.len()) },
    ];
    let recent = load.runs(None, &PageRequest::first(5)).await?.rows;
    let failed = |run: &&Run| matches!(run.state, RunState::Failed | RunState::Lost);
    // Checks only the newest run, because a later success resolves a failure.
    card.problems = recent.iter().take(1).filter(failed).map(trouble).collect();
    Ok(card)
}

fn trouble(run: &Run) -> CardProblem {
    CardProblem {
        tone: Tone::Warn,
        text: format!("Load run {} failed: {}", run.id, run.message),
        href: pages::run_path(&run.id),
        since_ms: run.ended_at.and_then(|at| u64::try_from(at.0).ok()),
    }
}
