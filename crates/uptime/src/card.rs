//! The card on the Overview page.

use std::time::Duration;

use hob_database::UnixMs;
use hob_web::components::{Quantity, Tone};
use hob_web::{Card, CardProblem, Figure, Service as _};

use crate::database::summaries;
use crate::pages::{path, tone};
use crate::schedule::state::MonitorState;
use crate::uptime::Uptime;

/// The length of the sparkline.
const SPARK_LENGTH: Duration = Duration::from_secs(86_400);

pub(crate) async fn card(uptime: &Uptime) -> Card {
    let monitors = uptime.monitors();
    let mut card = Card {
        title: Uptime::TITLE,
        href: Uptime::HREF,
        tone: Tone::Idle,
        status: "no monitors".to_owned(),
        figures: Vec::new(),
        spark: Vec::new(),
        problems: Vec::new(),
    };
    let Ok(snapshot) = uptime.snapshot().await else {
        (card.tone, card.status) = (Tone::Bad, "Redis does not respond".to_owned());
        return card;
    };
    let counts = snapshot.state_counts(&monitors);
    let (down, failing) =
        (counts.of(MonitorState::Down) + counts.of(MonitorState::Recovering), counts.failing());
    (card.tone, card.status) = match (monitors.len(), down, failing) {
        (0, ..) => (card.tone, card.status),
        (all, 0, 0) => (Tone::Good, format!("all {all} up")),
        (_, 0, failing) => (Tone::Warn, format!("{failing} failing")),
        (all, down, _) => (Tone::Bad, format!("{down} of {all} down")),
    };
    let figure = |label, count: usize| Figure { label, value: Quantity::count(count) };
    // The card is still useful without its history.
    let from = UnixMs::now().minus(SPARK_LENGTH);
    let hours = summaries::hourly_checks(uptime.database(), from).await.unwrap_or_default();
    let (good, bad) =
        hours.iter().fold((0, 0), |(all_good, all_bad), (_, good, bad)| (all_good + good, all_bad + bad));
    let share = |good: u64, bad: u64| bad as f64 / (good + bad).max(1) as f64;
    card.spark = hours.iter().map(|(_, good, bad)| Some(share(*good, *bad))).collect();
    card.figures = vec![
        Figure { label: "failed, 24 h", value: Quantity::share(bad, good + bad) },
        figure("up", counts.of(MonitorState::Up)),
        figure("down", down),
        figure("monitors", monitors.len()),
    ];
    let failing = monitors.iter().filter(|monitor| snapshot.state(monitor).is_failing());
    card.problems = failing
        .take(12)
        .map(|monitor| CardProblem {
            tone: tone(snapshot.state(monitor)),
            text: format!("{} is {}", monitor.spec.name, snapshot.state(monitor).label()),
            href: path(&monitor.id),
            since_ms: Some(snapshot.health(&monitor.id).first_failure_ms).filter(|since| *since > 0),
        })
        .collect();
    card
}
