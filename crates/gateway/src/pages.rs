//! The console's pages: traffic and limits.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::State;
use hob_web::chart::{Bars, HeatMap, Line};
use hob_web::components::{Badge, Empty, Field, Markup, Quantity, RelativeTime, Tone, Unit};
use hob_web::{Access, Console, Page, Problem, Query, Routes};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::gateway::Gateway;
use crate::limiter::ActiveRule;
use crate::limiter::rule::{Accounting, RuleMode};
use crate::traffic::histogram::{Histogram, percentile};
use crate::traffic::statistics::{
    EndpointStatistics, InstanceStatistics, MinuteLatency, RuleStatistics, Summary, merge_minutes,
};

const READ: Access = Access::read("gateway");
const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 3_600_000;
/// Rows of the endpoint table; a search finds the others.
const MAX_ROWS: usize = 100;

pub(crate) fn routes() -> Routes<Gateway> {
    Routes::new().page(READ, "/gateway", traffic).page(READ, "/gateway/limits", limits)
}

/// The query parameters of the endpoint table.
#[derive(Clone, Debug, Default, Deserialize)]
struct TableQuery {
    #[serde(default)]
    sort: Sort,
    #[serde(default)]
    q: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Requests,
    Errors,
    Average,
    Name,
}

impl Sort {
    const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Name, "name", "Endpoint"),
        (Self::Requests, "requests", "Requests"),
        (Self::Errors, "errors", "Errors"),
        (Self::Average, "average", "Average"),
    ];

    fn apply(self, endpoints: &mut [EndpointStatistics]) {
        match self {
            Self::Requests => endpoints.sort_by_key(|endpoint| std::cmp::Reverse(endpoint.requests)),
            Self::Errors => endpoints.sort_by_key(|endpoint| std::cmp::Reverse(endpoint.errors)),
            Self::Name => endpoints.sort_by(|one, other| one.name.cmp(&other.name)),
            Self::Average => endpoints.sort_by(|one, other| {
                let average = |endpoint: &EndpointStatistics| endpoint.average_ms().unwrap_or(0.0);
                average(other).total_cmp(&average(one))
            }),
        }
    }
}

/// A column header, which links to the table sorted by that column.
struct ColumnHeader {
    sort: Sort,
    title: &'static str,
    href: String,
}

#[derive(Template)]
#[template(path = "gateway.html")]
struct Traffic {
    address: Option<String>,
    summary: Summary,
    overall: Histogram,
    latency_chart: Markup,
    heat_map: Markup,
    hours_chart: Markup,
    query: TableQuery,
    search: Field,
    endpoints: Vec<EndpointStatistics>,
    /// Endpoints that match the search, including those not shown.
    matching: usize,
    statuses: BTreeMap<u16, u64>,
    instances: Vec<InstanceStatistics>,
}

impl Traffic {
    fn speed(&self) -> Quantity {
        Unit::PerSecond.of(self.summary.per_second as f64)
    }

    fn percentile(&self, percent: f64) -> Quantity {
        match percentile(&self.overall, percent) {
            Some(time) => Quantity::duration(time),
            None => Unit::Millis.of(f64::NAN),
        }
    }

    fn average(endpoint: &EndpointStatistics) -> Quantity {
        Unit::Millis.of(endpoint.average_ms().unwrap_or(f64::NAN))
    }

    fn column_headers(&self) -> [ColumnHeader; 4] {
        let search_text = utf8_percent_encode(&self.query.q, NON_ALPHANUMERIC).to_string();
        Sort::ALL.map(|(sort, word, title)| {
            let href = format!("/gateway?sort={word}&q={search_text}");
            ColumnHeader { sort, title, href }
        })
    }

    fn no_traffic(&self) -> Empty {
        match &self.address {
            Some(address) => Empty::new("No requests yet", "Send requests through the gateway. Requests from this host count if the gateway listens on a loopback address or gateway.count_loopback is true.")
                .command(format!("curl -i http://{address}/")),
            None => Empty::new("No upstream configured", "Set an upstream in hob.toml and restart.")
                .command("[gateway]\nupstream = [\"http://127.0.0.1:3000\"]"),
        }
    }
}

async fn traffic(
    console: Console,
    State(gateway): State<Gateway>,
    Query(query): Query<TableQuery>,
) -> Result<Page, Problem> {
    let statistics = gateway.statistics();
    let (summary, minutes, hours, endpoints, statuses, instances) = tokio::try_join!(
        statistics.summary(),
        statistics.latency(None, 60),
        statistics.hours(),
        statistics.endpoints(),
        statistics.statuses(),
        statistics.instances(),
    )?;
    let search_text = query.q.trim().to_lowercase();
    let mut endpoints: Vec<EndpointStatistics> = endpoints
        .into_iter()
        .filter(|endpoint| endpoint.name.to_lowercase().contains(&search_text))
        .collect();
    query.sort.apply(&mut endpoints);
    let matching = endpoints.len();
    endpoints.truncate(MAX_ROWS);
    let first = hours.first().map_or(0, |hour| hour.start_unix_ms);
    let bars = Bars::new(first..first + 24 * HOUR_MS, HOUR_MS).title("Requests in the last 24 hours");
    let body = Traffic {
        address: gateway.address().map(|address| address.to_string()),
        summary,
        overall: merge_minutes(&minutes),
        latency_chart: latency_chart(&minutes),
        heat_map: heat_map(&minutes),
        hours_chart: bars
            .series("requests", hours.iter().map(|hour| (hour.start_unix_ms, hour.requests as f64)))
            .render(),
        search: Field::search("q", "Search endpoints").value(&query.q),
        query,
        endpoints,
        matching,
        statuses,
        instances,
    };
    console.page("Gateway", &body)
}

fn range(minutes: &[MinuteLatency]) -> std::ops::Range<u64> {
    let first = minutes.first().map_or(0, |minute| minute.start_unix_ms);
    first..first + minutes.len() as u64 * MINUTE_MS
}

fn latency_chart(minutes: &[MinuteLatency]) -> Markup {
    let line = |percent: f64| {
        minutes.iter().map(move |minute| {
            let value = percentile(&minute.histogram, percent).map(|time| time.as_secs_f64() * 1000.0);
            (minute.start_unix_ms, value)
        })
    };
    Line::new(range(minutes))
        .title("Response time")
        .unit(Unit::Millis)
        .every(MINUTE_MS)
        .series("p50", line(50.0))
        .series("p90", line(90.0))
        .series("p99", line(99.0))
        .render()
}

/// Rows of the heat map. Each covers times up to four times as long as the row before.
const ROWS: [(&str, u64); 9] = [
    ("< 250 µs", 250),
    ("< 1 ms", 1000),
    ("< 4 ms", 4000),
    ("< 16 ms", 16_000),
    ("< 64 ms", 64_000),
    ("< 250 ms", 250_000),
    ("< 1 s", 1_000_000),
    ("< 4 s", 4_000_000),
    ("≥ 4 s", u64::MAX),
];

fn heat_map(minutes: &[MinuteLatency]) -> Markup {
    let mut map =
        HeatMap::new(range(minutes), MINUTE_MS, ROWS.map(|(name, _)| name)).title("Response times by minute");
    for minute in minutes {
        for (bucket, count) in minute.histogram.buckets() {
            let row = ROWS.iter().position(|(_, below)| bucket.middle() < *below).unwrap_or(ROWS.len() - 1);
            map = map.count(minute.start_unix_ms, row, *count);
        }
    }
    map.render()
}

#[derive(Template)]
#[template(path = "limits.html")]
struct Limits {
    rules: Vec<RuleRow>,
}

struct RuleRow {
    name: String,
    windows: String,
    algorithm: String,
    exactness: &'static str,
    mode: Badge,
    statistics: RuleStatistics,
}

impl RuleRow {
    fn new(rule: &ActiveRule, statistics: RuleStatistics) -> Self {
        let rule = rule.rule();
        let windows: Vec<String> = rule.limit().windows().iter().map(ToString::to_string).collect();
        Self {
            name: rule.name().to_string(),
            windows: windows.join(", "),
            algorithm: rule.limit().algorithm().to_string(),
            exactness: match rule.accounting {
                Accounting::Exact => "exact",
                Accounting::Leased { .. } => "leased",
            },
            mode: match rule.mode() {
                RuleMode::Enforced => Tone::Good.badge("enforced"),
                RuleMode::Shadow => Tone::Warn.badge("shadow"),
            },
            statistics,
        }
    }
}

impl Limits {
    fn no_rules() -> Empty {
        Empty::new("No rules", "A rule limits callers by address, header or API key.")
            .command("[[gateway.rules]]\nname = \"api\"\nwindows = \"20/1s, 500/1m\"\nroute = \"/api/*\"")
    }
}

async fn limits(console: Console, State(gateway): State<Gateway>) -> Result<Page, Problem> {
    let mut rules = Vec::new();
    for rule in gateway.admission().limiter().rules().iter() {
        let statistics = gateway.statistics().rule(rule.rule().name()).await?;
        rules.push(RuleRow::new(rule, statistics));
    }
    console.page("Limits", &Limits { rules })
}
