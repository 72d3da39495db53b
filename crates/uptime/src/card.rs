//! The card of uptime on the Overview.

use hob_web::look::{Quantity, Tone};
use hob_web::{Card, Figure, Service as _, Trouble};

use crate::pages::{path, tone, word};
use crate::schedule::state::State;
use crate::uptime::Uptime;

pub(crate) async fn card(uptime: &Uptime) -> Card {
    let monitors = uptime.monitors();
    let mut card = Card {
        title: Uptime::TITLE,
        href: Uptime::HREF,
        tone: Tone::Idle,
        word: "no monitors".to_owned(),
        figures: Vec::new(),
        spark: Vec::new(),
        troubles: Vec::new(),
    };
    let Ok(board) = uptime.board().await else {
        (card.tone, card.word) = (Tone::Bad, "the store is away".to_owned());
        return card;
    };
    let tally = board.tally(&monitors);
    let (down, failing) = (tally.of(State::Down) + tally.of(State::Recovering), tally.failing());
    (card.tone, card.word) = match (monitors.len(), down, failing) {
        (0, ..) => (card.tone, card.word),
        (all, 0, 0) => (Tone::Good, format!("all {all} up")),
        (_, 0, failing) => (Tone::Warn, format!("{failing} to look at")),
        (all, down, _) => (Tone::Bad, format!("{down} of {all} down")),
    };
    let figure = |label, count: usize| Figure { label, value: Quantity::count(count) };
    card.figures =
        vec![figure("up", tally.of(State::Up)), figure("down", down), figure("monitors", monitors.len())];
    let failing = monitors.iter().filter(|monitor| board.state(monitor).is_failing());
    card.troubles = failing
        .take(12)
        .map(|monitor| Trouble {
            tone: tone(board.state(monitor)),
            text: format!("{} is {}", monitor.spec.name, word(board.state(monitor))),
            href: path(&monitor.id),
            since_ms: Some(board.standing(&monitor.id).first_failure_ms).filter(|since| *since > 0),
        })
        .collect();
    card
}
