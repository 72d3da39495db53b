//! The public status page: published monitors only. It needs no JavaScript and no sign-in, and may be cached.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hob_database::UnixMs;
use hob_web::components::{Badge, Escaped, Icon, Markup, Tone};
use hob_web::{BaseUrl, Problem, Query, Time};
use parking_lot::Mutex;
use serde::Deserialize;

use super::{PublicState, format_percent};
use crate::incident::{Alerting, Incident, Resolution};
use crate::keys::MonitorId;
use crate::monitor::Monitor;
use crate::monitor::history::{self, DAY_MS, Downtime, Period};
use crate::monitor::maintenance::Maintenance;
use crate::schedule::snapshot::Snapshot;
use crate::schedule::state::MonitorState;
use crate::uptime::Uptime;

const DAYS: i64 = 90;
/// How far back incidents are listed.
const LISTED_MS: i64 = 14 * DAY_MS;
const MAX_LISTED: usize = 50;
/// Systems of one page.
const PAGE_SIZE: usize = 100;
/// How often the page is rendered at most, however many visitors there are.
const MAX_AGE: Duration = Duration::from_secs(5);
const CACHE: HeaderValue = HeaderValue::from_static("public, max-age=15");

#[derive(Template)]
#[template(path = "uptime/status.html")]
struct StatusPage {
    title: String,
    tone: Tone,
    banner: &'static str,
    busy_icon: Icon,
    windows: Vec<Window>,
    groups: Vec<Group>,
    incidents: Vec<ListedIncident>,
    as_of: String,
    page: usize,
    pages: usize,
}

/// Number of the page, from 1.
#[derive(Debug, Deserialize)]
pub(super) struct PageQuery {
    #[serde(default = "first")]
    page: usize,
}

fn first() -> usize {
    1
}

struct Window {
    title: String,
    from: String,
    to: String,
}

struct Group {
    name: String,
    systems: Vec<PublishedSystem>,
}

struct PublishedSystem {
    name: String,
    badge: Badge,
    days: Markup,
    uptime: String,
}

struct ListedIncident {
    badge: Badge,
    name: String,
    words: String,
}

/// The last rendered status.
#[derive(Debug, Default)]
pub(crate) struct StatusCache(Mutex<Option<(Instant, Arc<RenderedStatus>)>>);

#[derive(Debug)]
struct RenderedStatus {
    status: StatusSnapshot,
    /// The first page. The other pages are rendered on request.
    html: String,
}

pub(super) async fn page(
    State(uptime): State<Uptime>,
    Query(turned): Query<PageQuery>,
) -> Result<Response, Problem> {
    let rendered = rendered(&uptime).await?;
    let html = match turned.page {
        1 => rendered.html.clone(),
        page if (2..=rendered.status.pages()).contains(&page) => rendered.status.html(page)?,
        _ => return Err(Problem::not_found("page")),
    };
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, CACHE)], html).into_response())
}

pub(super) async fn rss(State(uptime): State<Uptime>, base: BaseUrl) -> Result<Response, Problem> {
    let rss = rendered(&uptime).await?.status.rss(&base.join("/status"));
    let kind = HeaderValue::from_static("application/rss+xml; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, CACHE)], rss).into_response())
}

async fn rendered(uptime: &Uptime) -> Result<Arc<RenderedStatus>, Problem> {
    if let Some((at, rendered)) = uptime.inner.status.0.lock().as_ref()
        && at.elapsed() < MAX_AGE
    {
        return Ok(Arc::clone(rendered));
    }
    let published: Vec<Arc<Monitor>> =
        uptime.monitors().iter().filter(|monitor| monitor.spec.published).cloned().collect();
    let ids: Vec<MonitorId> = published.iter().map(|monitor| monitor.id.clone()).collect();
    let snapshot = uptime.snapshot().await?;
    let downtime = history::availability(uptime.database(), &ids, UnixMs::now()).await?;
    let (title, windows) = (uptime.config().status_title.clone(), uptime.windows());
    let status = StatusSnapshot { title, published, windows, snapshot, downtime, now: UnixMs::now() };
    let rendered = Arc::new(RenderedStatus { html: status.html(1)?, status });
    *uptime.inner.status.0.lock() = Some((Instant::now(), Arc::clone(&rendered)));
    Ok(rendered)
}

/// The data of the status page.
#[derive(Debug)]
struct StatusSnapshot {
    title: String,
    published: Vec<Arc<Monitor>>,
    windows: Arc<[Maintenance]>,
    snapshot: Arc<Snapshot>,
    downtime: Downtime,
    now: UnixMs,
}

impl StatusSnapshot {
    fn pages(&self) -> usize {
        self.published.len().div_ceil(PAGE_SIZE).max(1)
    }

    fn html(&self, page: usize) -> Result<String, Problem> {
        self.page(page).render().map_err(Problem::internal)
    }

    fn page(&self, page: usize) -> StatusPage {
        let (tone, banner) = self.banner();
        let shown = |window: &&Maintenance| {
            let spec = &window.spec;
            let soon = spec.starts_at_ms < self.now.0 + 7 * DAY_MS && spec.ends_at_ms > self.now.0;
            let start = UnixMs(spec.starts_at_ms);
            soon && self.published.iter().any(|monitor| window.covers(monitor, start))
        };
        let window = |window: &Maintenance| Window {
            title: window.spec.title.clone(),
            from: time(window.spec.starts_at_ms),
            to: time(window.spec.ends_at_ms),
        };
        StatusPage {
            title: self.title.clone(),
            tone,
            banner,
            busy_icon: Tone::Busy.icon(),
            windows: self.windows.iter().filter(shown).map(window).collect(),
            groups: self.groups(page),
            incidents: self
                .incidents()
                .map(|(monitor, incident)| ListedIncident::new(monitor, incident))
                .collect(),
            as_of: time(self.now.0),
            page,
            pages: self.pages(),
        }
    }

    fn public_state(&self, monitor: &Monitor) -> PublicState {
        let is_covered = self.windows.iter().any(|window| window.covers(monitor, self.now));
        let alerting = if is_covered { Alerting::Suppressed } else { Alerting::Enabled };
        PublicState::new(self.snapshot.state(monitor), alerting)
    }

    fn banner(&self) -> (Tone, &'static str) {
        use PublicState::{Checked, Maintenance};
        let states: Vec<PublicState> =
            self.published.iter().map(|monitor| self.public_state(monitor)).collect();
        let is_down =
            |state: &&PublicState| matches!(state, Checked(MonitorState::Down | MonitorState::Recovering));
        let down = states.iter().filter(is_down).count();
        let in_maintenance = states.contains(&Maintenance);
        let unknown =
            states.iter().any(|state| matches!(state, Checked(MonitorState::Stale | MonitorState::Pending)));
        match (states.len(), down) {
            (0, _) => (Tone::Idle, "No systems are published yet"),
            (_, 0) if in_maintenance => (Tone::Busy, "Some systems are in maintenance"),
            (_, 0) if unknown => (Tone::Warn, "Some systems have not been checked lately"),
            (_, 0) => (Tone::Good, "All systems are up"),
            (all, down) if all == down => (Tone::Bad, "All systems are down"),
            _ => (Tone::Bad, "Some systems are down"),
        }
    }

    fn groups(&self, page: usize) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for monitor in self.published.iter().skip((page - 1) * PAGE_SIZE).take(PAGE_SIZE) {
            let published = PublishedSystem {
                name: monitor.spec.name.clone(),
                badge: self.public_state(monitor).badge(),
                days: self.days(monitor),
                uptime: format_percent(self.downtime.uptime(monitor, Period::Quarter)),
            };
            match groups.last_mut() {
                Some(group) if group.name == monitor.spec.group => group.systems.push(published),
                _ => groups.push(Group { name: monitor.spec.group.clone(), systems: vec![published] }),
            }
        }
        groups
    }

    /// A bar for each day: whole if it was up, broken if it was down, a dot if it was not monitored.
    fn days(&self, monitor: &Monitor) -> Markup {
        const STEP: i64 = 8;
        let width = STEP * DAYS;
        let name = Escaped(&monitor.spec.name);
        let mut svg = format!(
            r#"<svg class="heartbeat" width="{width}" height="32" viewBox="0 0 {width} 32" role="img" aria-label="{name}, the past {DAYS} days">"#
        );
        let today = self.now.0 - self.now.0.rem_euclid(DAY_MS);
        for day in 0..DAYS {
            let start = today - (DAYS - 1 - day) * DAY_MS;
            let end = (start + DAY_MS).min(self.now.0);
            let (x, date) = (day * STEP, &time(start)[..10]);
            if end <= monitor.created_at.0 {
                let _ = write!(
                    svg,
                    r#"<g class="beat idle"><path d="M{} 28h2v2h-2z"/><title>{date}: not monitored</title></g>"#,
                    x + 3
                );
                continue;
            }
            let from = start.max(monitor.created_at.0);
            let down_ms = self.downtime.down_ms(&monitor.id, from, end);
            let up = format_percent(100.0 * (1.0 - down_ms as f64 / (end - from).max(1) as f64));
            let (class, path) = match down_ms {
                0 => ("good", format!("M{} 4h5v28h-5z", x + 1)),
                short if short < DAY_MS / 100 => {
                    ("warn", format!("M{0} 9L{1} 4L{2} 9V32H{0}z", x + 1, x + 3, x + 6))
                }
                _ => ("bad", format!("M{0} 0H{1}V12L{0} 17zM{1} 15V32H{0}V20z", x + 1, x + 6)),
            };
            let _ =
                write!(svg, r#"<g class="beat {class}"><path d="{path}"/><title>{date}: {up}</title></g>"#);
        }
        svg.push_str("</svg>");
        Markup::trusted(svg)
    }

    /// Incidents of published monitors, the newest first.
    fn incidents(&self) -> impl Iterator<Item = (&Monitor, &Incident)> {
        let since = self.now.0 - LISTED_MS;
        let mut all: Vec<(&Monitor, &Incident)> = self
            .published
            .iter()
            .flat_map(|monitor| {
                self.downtime.incidents(&monitor.id).iter().map(|incident| (&**monitor, incident))
            })
            .filter(|(_, incident)| incident.opened_at.0 > since || incident.resolved_at.is_none())
            .collect();
        all.sort_by_key(|(_, incident)| std::cmp::Reverse(incident.opened_at));
        all.into_iter().take(MAX_LISTED)
    }

    /// The feed. A reader resolves no relative links, so the link of the page is absolute.
    fn rss(&self, page: &str) -> String {
        let page = Escaped(page);
        let mut xml = format!(
            r#"<?xml version="1.0" encoding="utf-8"?><rss version="2.0"><channel><title>{0}</title><link>{page}</link><description>{0}</description>"#,
            Escaped(&self.title)
        );
        for (monitor, incident) in self.incidents() {
            let words = ListedIncident::new(monitor, incident).words;
            let date = jiff::Timestamp::from_millisecond(incident.opened_at.0).unwrap_or_default();
            let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT");
            let _ = write!(
                xml,
                r#"<item><title>{}: {}</title><link>{page}</link><guid isPermaLink="false">{}</guid><pubDate>{date}</pubDate></item>"#,
                Escaped(&monitor.spec.name),
                Escaped(words),
                Escaped(&incident.id)
            );
        }
        xml.push_str("</channel></rss>");
        xml
    }
}

impl ListedIncident {
    /// Without the error message, which may contain internal names.
    fn new(monitor: &Monitor, incident: &Incident) -> Self {
        let from = time(incident.opened_at.0);
        let (tone, word, words) = match (incident.resolved_at, incident.resolution) {
            (Some(until), Some(Resolution::Paused)) => {
                let words = format!("was down from {from} until it was paused at {}", time(until.0));
                (Tone::Idle, "paused", words)
            }
            (Some(until), _) => {
                (Tone::Good, "resolved", format!("was down from {from} to {}", time(until.0)))
            }
            (None, _) if incident.maintenance => {
                (Tone::Busy, "maintenance", format!("has been in maintenance since {from}"))
            }
            (None, _) => (Tone::Bad, "open", format!("has been down since {from}")),
        };
        Self { badge: tone.badge(word), name: monitor.spec.name.clone(), words }
    }
}

/// A time to the minute.
fn time(ms: i64) -> String {
    let text = Time(UnixMs(ms)).to_string();
    match (text.get(..10), text.get(11..16)) {
        (Some(date), Some(minute)) => format!("{date} {minute} UTC"),
        _ => text,
    }
}
