//! The card of pipelines on the Overview.

use hob_database::PageRequest;
use hob_web::components::{Quantity, Tone};
use hob_web::{Card, CardProblem, Figure, Service as _};

use crate::error::Result;
use crate::pages::{CHART_POINTS, CHART_RANGE, CHART_STEP, RUNS_SHOWN, chart_window, href, unix_ms};
use crate::pipeline::Pipelines;
use crate::quota::millis;
use crate::run::RunState;

pub(crate) async fn card(pipelines: &Pipelines) -> Card {
    try_card(pipelines).await.unwrap_or_else(|error| Card {
        title: Pipelines::TITLE,
        href: Pipelines::HREF,
        tone: Tone::Bad,
        status: "unknown".to_owned(),
        figures: Vec::new(),
        spark: Vec::new(),
        problems: vec![CardProblem {
            tone: Tone::Bad,
            text: format!("cannot read the state of pipelines: {error}"),
            href: Pipelines::HREF.to_owned(),
            since_ms: None,
        }],
    })
}

async fn try_card(pipelines: &Pipelines) -> Result<Card> {
    let runs = pipelines.runs(&PageRequest::first(RUNS_SHOWN)).await?.rows;
    let running = runs.iter().filter(|run| run.state == RunState::Running).count();
    let troubled = runs.iter().filter(|run| !run.trouble.is_empty());
    let problems: Vec<CardProblem> = troubled
        .map(|run| CardProblem {
            tone: Tone::Bad,
            text: format!("{}: {}", run.id, run.trouble),
            href: href(&run.id),
            since_ms: None,
        })
        .collect();
    let (mut spark, mut calls, mut refused) = (vec![0_u64; CHART_POINTS], 0, 0);
    for definition in pipelines.quotas().all().await? {
        let usage = pipelines.quotas().usage(&definition.name).await?;
        refused += usize::from(usage.blocked_until.is_some());
        let begin = chart_window(usage.now).start;
        for (at, count) in
            pipelines.quotas().history(&definition.name, usage.now.minus(CHART_RANGE), CHART_STEP).await?
        {
            // A call in flight counts at its deadline, which is in the future.
            let point = unix_ms(at).saturating_sub(begin) / millis(CHART_STEP);
            spark[usize::try_from(point).unwrap_or(CHART_POINTS).min(CHART_POINTS - 1)] += count;
            calls += count;
        }
    }
    let (tone, word) = match (problems.len(), refused, running) {
        (1.., _, _) => (Tone::Bad, format!("{} blocked", problems.len())),
        (_, 1.., _) => (Tone::Warn, "API refuses calls".to_owned()),
        (_, _, 0) => (Tone::Idle, "no run".to_owned()),
        (_, _, running) => (Tone::Good, format!("{running} running")),
    };
    let figures = vec![
        Figure { label: "calls in 30 min", value: Quantity::count(calls) },
        Figure { label: "running", value: Quantity::count(running) },
    ];
    let spark = spark.into_iter().map(|calls| Some(calls as f64)).collect();
    Ok(Card { title: Pipelines::TITLE, href: Pipelines::HREF, tone, status: word, figures, spark, problems })
}
