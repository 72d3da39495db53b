//! The chat's card on the Overview.

use hob_web::components::{Tone, Unit};
use hob_web::{Card, Figure, Service as _};

use crate::chat::Chat;
use crate::pages::total;

pub(crate) async fn card(chat: &Chat) -> Card {
    let nodes = chat.nodes().await;
    let load = nodes.as_ref().map_or_else(|_| chat.inner.hub.load(), |nodes| total(nodes));
    let (tone, word) = match &nodes {
        Ok(nodes) if nodes.is_empty() => (Tone::Warn, "no live node".to_owned()),
        Ok(_) => (Tone::Good, format!("{} online", load.users)),
        Err(_) => (Tone::Bad, "Redis does not respond".to_owned()),
    };
    let figure = |label, value, unit: Unit| Figure { label, value: unit.of(value) };
    Card {
        title: Chat::TITLE,
        href: Chat::HREF,
        tone,
        status: word,
        figures: vec![
            figure("messages", load.messages_per_s(), Unit::PerSecond),
            figure("deliveries", load.deliveries_per_s(), Unit::PerSecond),
            figure("connections", load.connections as f64, Unit::Count),
        ],
        spark: chat.inner.hub.node.history.lock().steps(),
        problems: Vec::new(),
    }
}
