//! The pages of the console, the public status page and the badges.

mod badge;
pub(crate) mod channels;
mod detail;
mod form;
mod incidents;
mod list;
mod maintenance;
mod status;
mod status_pages;

pub(crate) use status::{StatusCache, start as start_status_pages};

use hob_web::chart::{Beat, Heartbeat, Pulse};
use hob_web::components::{Badge, Markup, Quantity, Tone, Unit};
use hob_web::{Access, Audited, Routes, Scope};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::incident::Alerting;
use crate::keys::MonitorId;
use crate::schedule::snapshot::{MonitorRow, RecentResult};
use crate::schedule::state::MonitorState;
use crate::uptime::Uptime;

const READ: Access = Access::read("uptime");
const WRITE: Access = Access::write("uptime");
pub(crate) const MAY_WRITE: Scope = Scope::write("uptime");

pub(crate) fn routes() -> Routes<Uptime> {
    Routes::new()
        .page(READ, "/uptime", list::show)
        .page(WRITE, "/uptime/new", form::blank)
        .action(WRITE, Audited::As("uptime.monitor.add"), "/uptime/new", form::add)
        .page(READ, "/uptime/monitors/{id}", detail::show)
        .page(WRITE, "/uptime/monitors/{id}/edit", form::filled)
        .action(WRITE, Audited::As("uptime.monitor.edit"), "/uptime/monitors/{id}/edit", form::edit)
        .action(WRITE, Audited::As("uptime.monitor.check"), "/uptime/monitors/{id}/check", detail::check)
        .action(WRITE, Audited::As("uptime.monitor.pause"), "/uptime/monitors/{id}/pause", detail::pause)
        .action(WRITE, Audited::As("uptime.monitor.resume"), "/uptime/monitors/{id}/resume", detail::resume)
        .action(WRITE, Audited::As("uptime.monitor.delete"), "/uptime/monitors/{id}/delete", detail::delete)
        .page(READ, "/uptime/incidents", incidents::list)
        .page(READ, "/uptime/incidents/{id}", incidents::show)
        .action(
            WRITE,
            Audited::As("uptime.incident.acknowledge"),
            "/uptime/incidents/{id}/acknowledge",
            incidents::acknowledge,
        )
        .action(
            WRITE,
            Audited::As("uptime.incident.note"),
            "/uptime/incidents/{id}/notes",
            incidents::annotate,
        )
        .page(READ, "/uptime/maintenance", maintenance::list)
        .action(WRITE, Audited::As("uptime.maintenance.add"), "/uptime/maintenance", maintenance::add)
        .action(
            WRITE,
            Audited::As("uptime.maintenance.delete"),
            "/uptime/maintenance/{id}/delete",
            maintenance::remove,
        )
        .action(
            WRITE,
            Audited::As("uptime.incident.update"),
            "/uptime/incidents/{id}/updates",
            incidents::publish,
        )
        .page(READ, "/uptime/pages", status_pages::list)
        .action(WRITE, Audited::As("uptime.page.put"), "/uptime/pages", status_pages::add)
        .page(READ, "/uptime/pages/{slug}", status_pages::show)
        .action(WRITE, Audited::As("uptime.page.put"), "/uptime/pages/{slug}", status_pages::edit)
        .action(WRITE, Audited::As("uptime.page.delete"), "/uptime/pages/{slug}/delete", status_pages::remove)
        .merge(status::routes())
        .merge(badge::routes())
}

pub(crate) fn tone(state: MonitorState) -> Tone {
    match state {
        MonitorState::Up => Tone::Good,
        MonitorState::Pending | MonitorState::Recovering => Tone::Busy,
        MonitorState::Suspect | MonitorState::Stale => Tone::Warn,
        MonitorState::Down => Tone::Bad,
        MonitorState::Paused => Tone::Idle,
    }
}

/// The state of a monitor as the status page and the badges show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PublicState {
    Checked(MonitorState),
    /// It fails in a maintenance window.
    Maintenance,
}

impl PublicState {
    fn new(state: MonitorState, alerting: Alerting) -> Self {
        match (state, alerting) {
            (MonitorState::Down | MonitorState::Recovering | MonitorState::Suspect, Alerting::Suppressed) => {
                Self::Maintenance
            }
            (state, _) => Self::Checked(state),
        }
    }
}

fn badge(state: MonitorState) -> Badge {
    tone(state).badge(state.label())
}

/// The path of a monitor's page.
pub(crate) fn path(id: &MonitorId) -> String {
    format!("/uptime/monitors/{}", encoded(id))
}

fn encoded(id: &MonitorId) -> String {
    utf8_percent_encode(id.as_str(), NON_ALPHANUMERIC).to_string()
}

/// The newest results as a row of bars.
fn recent_results(row: &MonitorRow) -> Markup {
    let beat = |beat: &RecentResult| Beat {
        at_ms: beat.at_s * 1000,
        pulse: match beat.state {
            MonitorState::Up => Pulse::Up,
            MonitorState::Down => Pulse::Down,
            MonitorState::Suspect | MonitorState::Recovering => Pulse::Slow,
            MonitorState::Pending | MonitorState::Paused | MonitorState::Stale => Pulse::Silent,
        },
        latency_ms: Some(beat.ms as f64),
        note: beat.state.label().to_owned(),
    };
    Heartbeat::new(row.monitor.spec.name.as_str(), row.status.recent.iter().map(beat)).render()
}

/// Percentage with up to three decimals. 100 % is shown only if there was no downtime.
pub(crate) fn format_percent(percent: f64) -> String {
    let shown = if percent < 100.0 { percent.min(99.999) } else { 100.0 };
    match shown {
        100.0 => "100 %".to_owned(),
        shown if shown > 99.0 => format!("{shown:.3} %"),
        shown => format!("{shown:.2} %"),
    }
}

fn millis(ms: f64) -> Quantity {
    Unit::Millis.of(ms)
}
