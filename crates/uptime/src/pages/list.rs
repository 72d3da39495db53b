//! The dashboard: all monitors with their states and uptime.

use std::collections::BTreeSet;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use hob_database::UnixMs;
use hob_web::components::{Badge, Choice, Empty, Field, Markup, Pager, Quantity, RelativeTime};
use hob_web::{Console, MemoryUsage, Page, Problem, Query};

use super::{MAY_WRITE, badge, encoded, format_percent, recent_results};
use crate::keys::MonitorId;
use crate::monitor::Monitor;
use crate::monitor::history::{self, Downtime, Period};
use crate::routes::MonitorQuery;
use crate::schedule::snapshot::MonitorRow;
use crate::schedule::state::MonitorState;
use crate::uptime::Uptime;
use hob_web::Service as _;

#[derive(Template)]
#[template(path = "uptime/list.html")]
struct Dashboard {
    here: &'static str,
    total: usize,
    failing: usize,
    state_counts: Vec<(&'static str, Quantity)>,
    search: Field,
    tag: Field,
    only_failing: Field,
    rows: Vec<DashboardRow>,
    pager: Pager,
    memory_usage: Option<MemoryUsage>,
    may_write: bool,
}

struct DashboardRow {
    id: String,
    path: String,
    name: String,
    group: String,
    target: String,
    badge: Badge,
    recent_results: Markup,
    latency: String,
    day: String,
    month: String,
    last: Option<RelativeTime>,
}

pub(super) async fn show(
    console: Console,
    State(uptime): State<Uptime>,
    Query(query): Query<MonitorQuery>,
) -> Result<Page, Problem> {
    let snapshot = uptime.snapshot().await?;
    let monitors = uptime.monitors();
    let (page, next) = query.page(&monitors, &snapshot)?;
    let rows = uptime.rows(&snapshot, &page).await?;
    let ids: Vec<MonitorId> = page.iter().map(|monitor| monitor.id.clone()).collect();
    // Without the database, the states are shown without the uptime.
    let downtime = history::availability(uptime.database(), &ids, UnixMs::now()).await.ok();
    let counts = snapshot.state_counts(&monitors);
    let tiles = MonitorState::ALL.into_iter().map(|state| (state.label(), Quantity::count(counts.of(state))));
    let body = Dashboard {
        here: "monitors",
        total: monitors.len(),
        failing: counts.failing(),
        state_counts: tiles.collect(),
        search: Field::search("search", "Search").value(query.search.as_deref().unwrap_or_default()),
        tag: tags(&monitors, query.tag.as_deref()),
        only_failing: Field::choice(
            "failing",
            "Show",
            vec![choice("false", "all"), choice("true", "failing only")],
        )
        .value(query.failing),
        rows: rows.iter().map(|row| DashboardRow::new(row, downtime.as_ref(), snapshot.now_ms)).collect(),
        pager: Pager {
            first: query.after.is_some().then(|| link(&query, None)),
            next: next.map(|next| link(&query, Some(&next))),
        },
        memory_usage: uptime.memory_usage(),
        may_write: console.may(&MAY_WRITE),
    };
    console.page("Uptime", &body)
}

impl Dashboard {
    fn empty(&self) -> Empty {
        if self.total > 0 {
            return Empty::new("No monitors found", "No monitor matches the filter.")
                .link("Show all", "/uptime");
        }
        let empty = Empty::new(
            "No monitors yet",
            "Add a web page, a port, a domain name, a certificate or a job to monitor.",
        )
        .command("hob uptime apply monitors.yaml");
        if self.may_write { empty.link("Add a monitor", "/uptime/new") } else { empty }
    }
}

impl DashboardRow {
    fn new(row: &MonitorRow, downtime: Option<&Downtime>, now_ms: u64) -> Self {
        let monitor = &row.monitor;
        let uptime =
            |period| downtime.map_or("–".to_owned(), |down| format_percent(down.uptime(monitor, period)));
        Self {
            id: encoded(&monitor.id),
            path: encoded(&monitor.id),
            name: monitor.spec.name.clone(),
            group: monitor.spec.group.clone(),
            target: monitor.spec.target.clone(),
            badge: badge(row.state),
            recent_results: recent_results(row),
            latency: match row.status.latency_ms {
                None => "–".to_owned(),
                // The store has whole milliseconds.
                Some(0) => "< 1\u{a0}ms".to_owned(),
                Some(ms) => Quantity::millis(ms).to_string(),
            },
            day: uptime(Period::Day),
            month: uptime(Period::Month),
            last: row.status.last_at_ms.map(|at| RelativeTime::at(at).relative_to(now_ms)),
        }
    }
}

fn tags(monitors: &[Arc<Monitor>], chosen: Option<&str>) -> Field {
    let all: BTreeSet<&String> = monitors.iter().flat_map(|monitor| &monitor.spec.tags).collect();
    let choices = all.into_iter().take(200).map(|tag| choice(tag, tag));
    Field::choice("tag", "Tag", std::iter::once(choice("", "any")).chain(choices).collect())
        .value(chosen.unwrap_or_default())
}

fn choice(value: &str, label: &str) -> Choice {
    Choice { value: value.to_owned(), label: label.to_owned() }
}

fn link(wanted: &MonitorQuery, after: Option<&str>) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in
        [("search", wanted.search.as_deref()), ("tag", wanted.tag.as_deref()), ("after", after)]
    {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    if wanted.failing {
        query.append_pair("failing", "true");
    }
    format!("/uptime?{}", query.finish())
}
