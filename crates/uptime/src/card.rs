//! The card on the Overview page.

use hob_web::components::{Quantity, Tone};
use hob_web::{Card, CardProblem, Figure, Service as _};

use crate::pages::{path, tone};
use crate::schedule::state::MonitorState;
use crate::uptime::Uptime;

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
        (card.tone, card.status) = (Tone::Bad, "store unavailable".to_owned());
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
    card.figures = vec![
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
