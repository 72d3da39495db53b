//! The HTML of a status page.

use std::collections::HashMap;

use askama::Template;
use axum::http::HeaderValue;
use hob_database::UnixMs;
use hob_web::components::{Badge, Field, Icon, Markup, Tone};
use hob_web::{CONTENT_SECURITY_POLICY, Problem};
use parking_lot::Mutex;
use url::Url;

use super::days::Days;
use super::public::PublicStatus;
use super::reader::Reader;
use crate::incident::{Incident, Resolution};
use crate::monitor::Monitor;
use crate::monitor::history::Period;
use crate::pages::PublicState;
use crate::schedule::state::MonitorState;
use crate::status::language::{Words, iso};
use crate::status::{Language, StatusPage};

/// A page says how old it is if it is older.
const OLD_MS: i64 = 15_000;
/// Pages that are kept after rendering: languages, time zones and page numbers of the readers.
const MAX_RENDERED: usize = 64;

/// Rendered pages by language, time zone, number and whether e-mail is offered.
pub(super) type RenderedPages = Mutex<HashMap<(Language, String, usize, bool), String>>;

/// What all pages of a status page have in common.
pub(super) struct Head {
    pub(super) lang: &'static str,
    pub(super) zone: String,
    pub(super) title: String,
    pub(super) logo: String,
    pub(super) href: String,
    /// The path of everything below the page.
    pub(super) base: String,
    /// The URL of the colours; empty without an accent colour.
    pub(super) colors: String,
}

#[derive(Template)]
#[template(path = "uptime/status.html")]
struct StatusHtml<'a> {
    head: Head,
    words: &'a Words,
    tone: Tone,
    banner: &'static str,
    uptime: String,
    notice: Option<(Tone, &'static str)>,
    old: Option<String>,
    windows: Vec<WindowView>,
    groups: Vec<GroupView>,
    days: Vec<DayView>,
    subscribe: Option<Field>,
    as_of: TimeView,
    page: usize,
    pages: usize,
}

pub(super) struct TimeView {
    iso: String,
    text: String,
}

struct WindowView {
    badge: Badge,
    title: String,
    from: TimeView,
    to: TimeView,
    names: String,
}

struct GroupView {
    name: String,
    systems: Vec<SystemView>,
}

struct SystemView {
    name: String,
    badge: Badge,
    days: Markup,
    outages: Vec<String>,
    uptime: String,
}

/// The incidents that began on one day.
struct DayView {
    date: String,
    incidents: Vec<IncidentView>,
}

struct IncidentView {
    id: String,
    badge: Badge,
    name: String,
    from: TimeView,
    to: Option<TimeView>,
    duration: String,
    updates: Vec<UpdateView>,
}

struct UpdateView {
    status: &'static str,
    at: TimeView,
    text: String,
}

impl Head {
    pub(super) fn new(page: &StatusPage, reader: &Reader) -> Self {
        let base = format!("/status/{}", page.slug);
        let accent = page.spec.accent.trim_start_matches('#');
        Self {
            lang: reader.language.as_str(),
            zone: reader.zone.name.clone(),
            title: page.spec.title.clone(),
            logo: page.spec.logo.clone(),
            href: page.path(),
            colors: if accent.is_empty() { String::new() } else { format!("{base}/accent.css?v={accent}") },
            base,
        }
    }

    fn busy_icon(&self) -> Icon {
        Tone::Busy.icon()
    }
}

/// The policy for a page with a logo of another site.
pub(super) fn logo_policy(logo: &str) -> Option<HeaderValue> {
    let url = Url::parse(logo).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let images = format!("img-src 'self' data: {}", url.origin().ascii_serialization());
    HeaderValue::from_str(&CONTENT_SECURITY_POLICY.replace("img-src 'self' data:", &images)).ok()
}

impl PublicState {
    pub(super) fn view(self, words: &Words) -> Badge {
        // Suspect still counts as up, recovering still counts as down.
        match self {
            Self::Checked(MonitorState::Up | MonitorState::Suspect) => Tone::Good.badge(words.up),
            Self::Checked(MonitorState::Down | MonitorState::Recovering) => Tone::Bad.badge(words.down),
            Self::Checked(MonitorState::Paused) => Tone::Idle.badge(words.paused),
            Self::Checked(MonitorState::Pending | MonitorState::Stale) => Tone::Warn.badge(words.unknown),
            Self::Maintenance => Tone::Busy.badge(words.maintenance),
        }
    }
}

impl PublicStatus {
    /// How old the copy is, if readers should know.
    pub(super) fn old(&self, reader: &Reader) -> Option<String> {
        let age_ms = UnixMs::now().0 - self.now.0;
        (age_ms > OLD_MS).then(|| reader.language.duration(age_ms))
    }

    /// A page as HTML. Pages without news of their own are rendered once.
    pub(super) fn html(
        &self,
        reader: &Reader,
        page: usize,
        notice: &str,
        has_mail: bool,
    ) -> Result<String, Problem> {
        let old = self.old(reader);
        let key = (reader.language, reader.zone.name.clone(), page, has_mail);
        let is_plain = old.is_none() && notice.is_empty();
        if is_plain && let Some(html) = self.rendered.lock().get(&key) {
            return Ok(html.clone());
        }
        let html = self.template(reader, page, notice, old, has_mail).render().map_err(Problem::internal)?;
        let mut rendered = self.rendered.lock();
        if is_plain && rendered.len() < MAX_RENDERED {
            rendered.insert(key, html.clone());
        }
        Ok(html)
    }

    fn template(
        &self,
        reader: &Reader,
        page: usize,
        notice: &str,
        old: Option<String>,
        has_mail: bool,
    ) -> StatusHtml<'static> {
        let words = reader.language.words();
        let (tone, banner) = self.overall(words);
        let email = || {
            let error = (notice == "email").then_some(words.not_an_email);
            let field = Field::email("email", words.email).required().max_length(254);
            field.autocomplete("email").hint(words.subscribe_hint).error(error)
        };
        StatusHtml {
            head: Head::new(&self.page, reader),
            words,
            tone,
            banner,
            uptime: self.uptime().map(|percent| reader.language.percent(percent)).unwrap_or_default(),
            notice: (notice == "subscribed").then_some((Tone::Good, words.check_inbox)),
            old,
            windows: self.window_views(reader),
            groups: self.groups(reader, page),
            days: self.incident_days(reader),
            subscribe: has_mail.then(email),
            as_of: time(reader, self.now),
            page,
            pages: self.pages(),
        }
    }

    fn window_views(&self, reader: &Reader) -> Vec<WindowView> {
        let words = reader.language.words();
        let view = |(window, names): (&crate::monitor::maintenance::Maintenance, Vec<&str>)| WindowView {
            badge: if window.spec.starts_at_ms <= self.now.0 {
                Tone::Busy.badge(words.maintenance)
            } else {
                Tone::Idle.badge(words.planned_maintenance)
            },
            title: window.spec.title.clone(),
            from: time(reader, UnixMs(window.spec.starts_at_ms)),
            to: time(reader, UnixMs(window.spec.ends_at_ms)),
            names: names.join(", "),
        };
        self.windows().map(view).collect()
    }

    fn groups(&self, reader: &Reader, page: usize) -> Vec<GroupView> {
        let words = reader.language.words();
        let days = Days::new(self.now, reader);
        let mut groups: Vec<GroupView> = Vec::new();
        for monitor in self.systems_of(page) {
            let (bars, outages) = days.of(self, monitor, reader);
            let system = SystemView {
                name: monitor.spec.name.clone(),
                badge: self.state(monitor).view(words),
                days: bars,
                outages,
                uptime: reader.language.percent(self.downtime.uptime(monitor, Period::Quarter)),
            };
            match groups.last_mut() {
                Some(group) if group.name == monitor.spec.group => group.systems.push(system),
                _ => groups.push(GroupView { name: monitor.spec.group.clone(), systems: vec![system] }),
            }
        }
        groups
    }

    fn incident_days(&self, reader: &Reader) -> Vec<DayView> {
        let mut days: Vec<DayView> = Vec::new();
        for (monitor, incident) in self.incidents() {
            let date = reader.language.date(reader.zone.date(incident.opened_at));
            let view = self.incident_view(monitor, incident, reader);
            match days.last_mut() {
                Some(day) if day.date == date => day.incidents.push(view),
                _ => days.push(DayView { date, incidents: vec![view] }),
            }
        }
        days
    }

    /// Without the error message, which may contain internal names.
    fn incident_view(&self, monitor: &Monitor, incident: &Incident, reader: &Reader) -> IncidentView {
        let words = reader.language.words();
        let until = incident.resolved_at.unwrap_or(self.now);
        let update = |update: &crate::incident::Update| UpdateView {
            status: words.update(update.status),
            at: time(reader, update.written_at),
            text: update.text.clone(),
        };
        IncidentView {
            id: incident.id.clone(),
            badge: incident_badge(incident, words),
            name: monitor.spec.name.clone(),
            from: time(reader, incident.opened_at),
            to: incident.resolved_at.map(|at| time(reader, at)),
            duration: reader.language.duration(until.0 - incident.opened_at.0),
            updates: self.updates_of(incident).iter().map(update).collect(),
        }
    }
}

pub(super) fn incident_badge(incident: &Incident, words: &Words) -> Badge {
    match (incident.resolved_at, incident.resolution) {
        (Some(_), Some(Resolution::Paused)) => Tone::Idle.badge(words.paused),
        (Some(_), _) => Tone::Good.badge(words.resolved),
        (None, _) if incident.maintenance => Tone::Busy.badge(words.maintenance),
        (None, _) => Tone::Bad.badge(words.ongoing),
    }
}

fn time(reader: &Reader, at: UnixMs) -> TimeView {
    TimeView { iso: iso(at), text: reader.language.moment(at, &reader.zone) }
}
