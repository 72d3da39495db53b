//! Badges: one fact about a monitor as a small SVG, for readmes and other dashboards.

use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hob_database::UnixMs;
use hob_web::{Access, Caller, Path, Problem, Routes, Scope};
use serde::Deserialize;

use super::PublicState;
use crate::monitor::Monitor;
use crate::monitor::history::{self, Period};
use crate::routes::monitor_id;
use crate::schedule::state::MonitorState;
use crate::uptime::Uptime;

/// Average width of a character, and the margin on both sides.
const CHARACTER_PX: usize = 7;
const MARGIN_PX: usize = 5;

pub(super) const GOOD: &str = "#2da44e";
pub(super) const FAIR: &str = "#9a6700";
pub(super) const BAD: &str = "#cf222e";
pub(super) const UNKNOWN: &str = "#656d76";

/// How long browsers and proxies may cache a badge.
const PUBLIC: &str = "public, max-age=30";
const PRIVATE: &str = "private, max-age=30";

/// What a badge shows.
#[derive(Clone, Copy, Debug, Deserialize)]
enum Fact {
    #[serde(rename = "status.svg")]
    Status,
    #[serde(rename = "uptime.svg")]
    Uptime,
    #[serde(rename = "latency.svg")]
    Latency,
}

pub(super) struct Badge {
    pub(super) label: &'static str,
    pub(super) text: String,
    pub(super) color: &'static str,
}

pub(super) fn routes() -> Routes<Uptime> {
    Routes::new().page(Access::Public, "/badge/{id}/{fact}", show)
}

/// A monitor that is not published is only shown to callers who may read monitors. For others it does not exist.
async fn show(
    State(uptime): State<Uptime>,
    caller: Option<Caller>,
    Path((id, fact)): Path<(String, Fact)>,
) -> Result<Response, Problem> {
    let monitor = uptime.monitor(&monitor_id(&id)?).await?.ok_or_else(|| Problem::not_found("monitor"))?;
    let may = caller.is_some_and(|caller| caller.may(&Scope::read("uptime")));
    if !monitor.spec.published && !may {
        return Err(Problem::not_found("monitor"));
    }
    let badge = match fact {
        Fact::Status => {
            let state = uptime.snapshot().await?.state(&monitor);
            status_badge(PublicState::new(state, uptime.inner.cache.alerting(&monitor, UnixMs::now())))
        }
        Fact::Latency => latency_badge(uptime.row(&monitor).await?.status.latency_ms),
        Fact::Uptime => availability(&uptime, &monitor).await?,
    };
    let cache = if monitor.spec.published { PUBLIC } else { PRIVATE };
    // Other sites may show the badges of published monitors.
    let sites = if monitor.spec.published { "cross-origin" } else { "same-origin" };
    let headers = [
        (CONTENT_TYPE, "image/svg+xml; charset=utf-8"),
        (CACHE_CONTROL, cache),
        (HeaderName::from_static("cross-origin-resource-policy"), sites),
    ];
    Ok((headers, badge.draw()).into_response())
}

fn status_badge(state: PublicState) -> Badge {
    use PublicState::{Checked, Maintenance};
    // Suspect still counts as up, recovering still counts as down.
    let (text, color) = match state {
        Checked(MonitorState::Up | MonitorState::Suspect) => ("up", GOOD),
        Checked(MonitorState::Down | MonitorState::Recovering) => ("down", BAD),
        Checked(MonitorState::Paused) => ("paused", UNKNOWN),
        Checked(MonitorState::Pending | MonitorState::Stale) => ("unknown", UNKNOWN),
        Maintenance => ("maintenance", UNKNOWN),
    };
    Badge { label: "status", text: text.to_owned(), color }
}

fn latency_badge(last_ms: Option<u64>) -> Badge {
    let (text, color) = match last_ms {
        Some(ms @ ..1000) => (format!("{ms} ms"), GOOD),
        Some(ms) => (format!("{:.1} s", ms as f64 / 1000.0), FAIR),
        None => ("unknown".to_owned(), UNKNOWN),
    };
    Badge { label: "latency", text, color }
}

async fn availability(uptime: &Uptime, monitor: &Monitor) -> Result<Badge, Problem> {
    let downtime =
        history::availability(uptime.database(), std::slice::from_ref(&monitor.id), UnixMs::now()).await?;
    Ok(uptime_badge(downtime.uptime(monitor, Period::Month)))
}

fn uptime_badge(percent: f64) -> Badge {
    // Truncated, not rounded: 100 % is shown only if there was no downtime.
    let text = format!("{:.2} %", (percent * 100.0).floor() / 100.0);
    let color = match percent {
        99.0.. => GOOD,
        95.0.. => FAIR,
        _ => BAD,
    };
    Badge { label: "uptime 30 d", text, color }
}

impl Badge {
    /// The text is generated here and contains no characters that XML must escape.
    pub(super) fn draw(&self) -> String {
        let Self { label, text, color } = self;
        let width = |text: &str| text.chars().count() * CHARACTER_PX + 2 * MARGIN_PX;
        let (left, right) = (width(label), width(text));
        let whole = left + right;
        let (label_at, text_at) = (left / 2, left + right / 2);
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img" aria-label="{label}: {text}"><title>{label}: {text}</title><clipPath id="r"><rect width="{whole}" height="20" rx="3"/></clipPath><g clip-path="url(#r)"><rect width="{left}" height="20" fill="#424a53"/><rect x="{left}" width="{right}" height="20" fill="{color}"/></g><g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"><text x="{label_at}" y="14">{label}</text><text x="{text_at}" y="14">{text}</text></g></svg>"##
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::Alerting;

    #[test]
    fn percentage_is_truncated() {
        assert_eq!(uptime_badge(100.0).text, "100.00 %");
        assert_eq!(uptime_badge(99.9999).text, "99.99 %");
        assert_eq!((uptime_badge(98.0).color, uptime_badge(50.0).color), (FAIR, BAD));
    }

    #[test]
    fn badge_is_up_only_for_up_and_suspect() {
        for state in MonitorState::ALL {
            let is_up = matches!(state, MonitorState::Up | MonitorState::Suspect);
            assert_eq!(status_badge(PublicState::Checked(state)).text == "up", is_up, "{state}");
        }
    }

    #[test]
    fn failure_in_a_maintenance_window_is_not_shown_as_down() {
        let badge = |state| status_badge(PublicState::new(state, Alerting::Suppressed)).text;
        assert_eq!((badge(MonitorState::Down), badge(MonitorState::Up)), ("maintenance".into(), "up".into()));
    }

    #[test]
    fn badge_is_as_wide_as_its_text() {
        let drawn = latency_badge(Some(12_345)).draw();
        assert!(drawn.contains("latency: 12.3 s") && drawn.contains(r#"width="111""#), "{drawn}");
    }
}
