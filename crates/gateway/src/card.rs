//! The card of the gateway on the Overview.

use hob_web::components::{Quantity, Tone, Unit};
use hob_web::{Card, CardProblem, Figure, Service as _};

use crate::Error;
use crate::gateway::Gateway;
use crate::traffic::histogram::percentile;
use crate::traffic::statistics::merge_minutes;

pub(crate) async fn card(gateway: &Gateway) -> Card {
    try_card(gateway).await.unwrap_or_else(|error| Card {
        title: Gateway::TITLE,
        href: Gateway::HREF,
        tone: Tone::Warn,
        status: "unavailable".to_owned(),
        figures: Vec::new(),
        spark: Vec::new(),
        problems: vec![CardProblem {
            tone: Tone::Warn,
            text: format!("Gateway statistics are unavailable: {error}"),
            href: Gateway::HREF.to_owned(),
            since_ms: None,
        }],
    })
}

async fn try_card(gateway: &Gateway) -> Result<Card, Error> {
    let statistics = gateway.statistics();
    let (summary, minutes) = tokio::try_join!(statistics.summary(), statistics.latency(None, 60))?;
    let figure = |label, value| Figure { label, value };
    let p99 = percentile(&merge_minutes(&minutes), 99.0).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0);
    // The last minute has not ended.
    let ended = minutes.len().saturating_sub(1);
    let serving = gateway.address().is_some();
    Ok(Card {
        title: Gateway::TITLE,
        href: Gateway::HREF,
        tone: if serving { Tone::Good } else { Tone::Idle },
        status: if serving { "serving" } else { "no upstream" }.to_owned(),
        figures: vec![
            figure("requests", Unit::PerSecond.of(summary.per_second as f64)),
            figure("p99", Unit::Millis.of(p99)),
            figure("limited", Quantity::share(summary.limited, summary.total)),
            figure("server errors", Quantity::share(summary.server_errors, summary.accepted)),
        ],
        spark: minutes
            .iter()
            .take(ended)
            .map(|minute| Some(minute.histogram.count() as f64 / 60.0))
            .collect(),
        problems: Vec::new(),
    })
}
