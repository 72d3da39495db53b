//! The console's pages, and the public status page.

mod badge;
pub(crate) mod channels;
mod detail;
mod form;
mod incidents;
mod list;
mod maintenance;
mod status;

pub(crate) use status::StatusCache;

use hob_web::chart::{Beat as Drawn, Heartbeat, Pulse};
use hob_web::look::{Badge, Markup, Quantity, Tone, Unit};
use hob_web::{Access, Routes, Scope};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::keys::MonitorId;
use crate::schedule::snapshot::{Beat, Row};
use crate::schedule::state::State;
use crate::uptime::Uptime;

const READ: Access = Access::read("uptime");
const WRITE: Access = Access::write("uptime");
const MAY_WRITE: Scope = Scope::write("uptime");

pub(crate) fn routes() -> Routes<Uptime> {
    Routes::new()
        .page(READ, "/uptime", list::show)
        .page(WRITE, "/uptime/new", form::blank)
        .action(WRITE, "/uptime/new", form::add)
        .page(READ, "/uptime/monitors/{id}", detail::show)
        .page(WRITE, "/uptime/monitors/{id}/edit", form::filled)
        .action(WRITE, "/uptime/monitors/{id}/edit", form::edit)
        .action(WRITE, "/uptime/monitors/{id}/check", detail::check)
        .action(WRITE, "/uptime/monitors/{id}/pause", detail::pause)
        .action(WRITE, "/uptime/monitors/{id}/resume", detail::resume)
        .action(WRITE, "/uptime/monitors/{id}/delete", detail::delete)
        .page(READ, "/uptime/incidents", incidents::list)
        .page(READ, "/uptime/incidents/{id}", incidents::show)
        .action(WRITE, "/uptime/incidents/{id}/acknowledge", incidents::acknowledge)
        .action(WRITE, "/uptime/incidents/{id}/notes", incidents::annotate)
        .page(READ, "/uptime/maintenance", maintenance::list)
        .action(WRITE, "/uptime/maintenance", maintenance::add)
        .action(WRITE, "/uptime/maintenance/{id}/delete", maintenance::remove)
        .page(Access::Public, "/status", status::page)
        .page(Access::Public, "/status.rss", status::rss)
        .merge(badge::routes())
}

pub(crate) fn tone(state: State) -> Tone {
    match state {
        State::Up => Tone::Good,
        State::Pending | State::Recovering => Tone::Busy,
        State::Suspect | State::Stale => Tone::Warn,
        State::Down => Tone::Bad,
        State::Paused => Tone::Idle,
    }
}

pub(crate) fn word(state: State) -> &'static str {
    match state {
        State::Up => "up",
        State::Pending => "pending",
        State::Recovering => "recovering",
        State::Suspect => "suspect",
        State::Stale => "stale",
        State::Down => "down",
        State::Paused => "paused",
    }
}

fn badge(state: State) -> Badge {
    tone(state).badge(word(state))
}

/// Where a monitor's page is.
pub(crate) fn path(id: &MonitorId) -> String {
    format!("/uptime/monitors/{}", encoded(id))
}

fn encoded(id: &MonitorId) -> String {
    utf8_percent_encode(id.as_str(), NON_ALPHANUMERIC).to_string()
}

/// The newest results as a row of bars.
fn beats(row: &Row) -> Markup {
    let beat = |beat: &Beat| Drawn {
        at_ms: beat.at_s * 1000,
        pulse: match beat.state {
            State::Up => Pulse::Up,
            State::Down => Pulse::Down,
            State::Suspect | State::Recovering => Pulse::Slow,
            State::Pending | State::Paused | State::Stale => Pulse::Silent,
        },
        latency_ms: Some(beat.ms as f64),
        note: word(beat.state).to_owned(),
    };
    Heartbeat::new(row.monitor.spec.name.as_str(), row.status.recent.iter().map(beat)).render()
}

/// Per cent, as uptime is read: a hundred is only what never failed.
fn share(per_cent: f64) -> String {
    let shown = if per_cent < 100.0 { per_cent.min(99.999) } else { 100.0 };
    match shown {
        100.0 => "100 %".to_owned(),
        shown if shown > 99.0 => format!("{shown:.3} %"),
        shown => format!("{shown:.2} %"),
    }
}

fn millis(ms: f64) -> Quantity {
    Unit::Millis.of(ms)
}
