//! The console's pages: traffic and limits.

mod history;

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::State;
use hob_admission::{ActiveRule, Identity, RuleMode, Verdict};
use hob_web::chart::{HeatMap, Line, RangeQuery, Span, TimeRange};
use hob_web::components::{
    Badge, Choice, CopyButton, Empty, Field, Markup, Quantity, RelativeTime, Tone, Unit, link,
};
use hob_web::{Access, Console, Page, Problem, Query, Routes, Service as _};
use serde::Deserialize;

use history::History;

use crate::Error;
use crate::gateway::Gateway;
use crate::traffic::histogram::percentile;
use crate::traffic::statistics::{
    EndpointStatistics, InstanceStatistics, MinuteLatency, RuleStatistics, Statistics, Summary, merge_minutes,
};

const READ: Access = Access::read("gateway");
const MINUTE_MS: u64 = 60_000;
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
    #[serde(flatten)]
    range: RangeQuery,
}

const RANGES: &[Span] = &[Span::Hour, Span::Day, Span::Week, Span::Month];
/// How long ago a range may begin to show percentiles: the store keeps histograms for a little longer.
const HISTOGRAMS_MS: u64 = 24 * 60 * MINUTE_MS;
const PERCENTILES: [(&str, f64); 4] = [("Median", 50.0), ("90 %", 90.0), ("99 %", 99.0), ("99.9 %", 99.9)];
/// Points of a chart.
const POINTS: u64 = 96;

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Requests,
    ServerErrors,
    Limited,
    Average,
    Name,
}

impl Sort {
    const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::Name, "name", "Endpoint"),
        (Self::Requests, "requests", "Requests"),
        (Self::ServerErrors, "server_errors", "Server errors"),
        (Self::Limited, "limited", "Limited"),
        (Self::Average, "average", "Average"),
    ];

    /// As the query names it.
    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(sort, ..)| *sort == self).map_or("", |(_, word, _)| word)
    }

    fn apply(self, endpoints: &mut [EndpointStatistics]) {
        match self {
            Self::Requests => endpoints.sort_by_key(|endpoint| std::cmp::Reverse(endpoint.requests)),
            Self::ServerErrors => endpoints.sort_by_key(|endpoint| std::cmp::Reverse(endpoint.server_errors)),
            Self::Limited => endpoints.sort_by_key(|endpoint| std::cmp::Reverse(endpoint.limited)),
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
    url: Option<String>,
    summary: Summary,
    range: TimeRange,
    picker: Markup,
    requests_chart: Markup,
    response_times: ResponseTimes,
    query: TableQuery,
    search: Field,
    endpoints: Vec<EndpointStatistics>,
    /// Endpoints that match the search, including those not shown.
    matching: usize,
    statuses: BTreeMap<u16, u64>,
    instances: Vec<InstanceStatistics>,
}

/// Response times of a range.
struct ResponseTimes {
    vitals: Vec<(&'static str, Quantity)>,
    charts: Vec<Markup>,
    /// Whether only averages are kept for the range.
    averages_only: bool,
}

impl ResponseTimes {
    fn new(minutes: Option<Vec<MinuteLatency>>, range: &TimeRange, history: &History) -> Self {
        let Some(minutes) = minutes else {
            let charts = vec![history.response_times()];
            return Self { vitals: vec![("Average", history.average())], charts, averages_only: true };
        };
        let steps = Steps::new(minutes, range);
        let overall = merge_minutes(&steps.steps);
        let vital = |(name, percent)| match percentile(&overall, percent) {
            Some(time) => (name, Quantity::duration(time)),
            None => (name, Unit::Millis.of(f64::NAN)),
        };
        Self {
            vitals: PERCENTILES.into_iter().map(vital).collect(),
            charts: vec![latency_chart(&steps), heat_map(&steps)],
            averages_only: false,
        }
    }
}

impl Traffic {
    fn speed(&self) -> Quantity {
        Unit::PerSecond.of(self.summary.per_second as f64)
    }

    fn average(endpoint: &EndpointStatistics) -> Quantity {
        Unit::Millis.of(endpoint.average_ms().unwrap_or(f64::NAN))
    }

    /// The share of server errors in the requests that were let through.
    fn server_error_rate(endpoint: &EndpointStatistics) -> Quantity {
        Quantity::share(endpoint.server_errors, endpoint.requests.saturating_sub(endpoint.limited))
    }

    fn column_headers(&self) -> [ColumnHeader; 5] {
        let range = self.range.fields();
        Sort::ALL.map(|(sort, word, title)| {
            let mut fields = vec![("sort", word), ("q", self.query.q.as_str())];
            fields.extend(range.iter().map(|(name, value)| (*name, value.as_str())));
            let href = link("/gateway", &fields);
            ColumnHeader { sort, title, href }
        })
    }

    /// Whether the gateway has never had a request.
    fn is_unused(&self) -> bool {
        self.summary.total == 0 && self.matching == 0 && self.query.q.is_empty()
    }

    fn no_traffic(&self) -> Empty {
        match &self.url {
            Some(url) => Empty::new("No requests yet", "Send requests through the gateway. Requests from this host count if the gateway listens on a loopback address or gateway.count_loopback is true.")
                .command(format!("curl -i {url}/")),
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
    let range = query.range.resolve(RANGES, Span::Hour)?;
    let (summary, minutes, history, endpoints, statuses, instances) = tokio::try_join!(
        statistics.summary(),
        minutes(statistics, &range),
        History::load(statistics, &range),
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
    let body = Traffic {
        url: gateway.url(),
        summary,
        requests_chart: history.requests(),
        response_times: ResponseTimes::new(minutes, &range, &history),
        picker: range.picker("/gateway", &[("sort", query.sort.word()), ("q", &query.q)]),
        range,
        search: Field::search("q", "Search endpoints").value(&query.q),
        query,
        endpoints,
        matching,
        statuses,
        instances,
    };
    console.page("Gateway", &body)
}

/// Response times by minute; `None` if they are not kept for the whole range.
async fn minutes(statistics: &Statistics, range: &TimeRange) -> Result<Option<Vec<MinuteLatency>>, Error> {
    let ago_ms = hob_units::unix_ms() - range.from_ms;
    if ago_ms > HISTOGRAMS_MS + MINUTE_MS {
        return Ok(None);
    }
    statistics.latency(None, ago_ms.div_ceil(MINUTE_MS)).await.map(Some)
}

/// Response times of a range, in steps of one or more minutes.
struct Steps {
    range: std::ops::Range<u64>,
    step_ms: u64,
    steps: Vec<MinuteLatency>,
}

impl Steps {
    fn new(minutes: Vec<MinuteLatency>, range: &TimeRange) -> Self {
        let step_ms = (range.length_ms() / POINTS / MINUTE_MS).max(1) * MINUTE_MS;
        let mut steps: Vec<MinuteLatency> = Vec::new();
        for minute in minutes.into_iter().filter(|minute| minute.start_unix_ms < range.to_ms) {
            let start_unix_ms = minute.start_unix_ms - minute.start_unix_ms % step_ms;
            match steps.last_mut().filter(|step| step.start_unix_ms == start_unix_ms) {
                Some(step) => step.histogram.merge(&minute.histogram),
                None => steps.push(MinuteLatency { start_unix_ms, ..minute }),
            }
        }
        let first = steps.first().map_or(0, |step| step.start_unix_ms);
        Self { range: first..first + steps.len() as u64 * step_ms, step_ms, steps }
    }
}

fn latency_chart(Steps { range, step_ms, steps }: &Steps) -> Markup {
    let line = |percent: f64| {
        steps.iter().map(move |minute| {
            let value = percentile(&minute.histogram, percent).map(|time| time.as_secs_f64() * 1000.0);
            (minute.start_unix_ms, value)
        })
    };
    Line::new(range.clone())
        .title("Response time")
        .unit(Unit::Millis)
        .every(*step_ms)
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

fn heat_map(Steps { range, step_ms, steps }: &Steps) -> Markup {
    let mut map = HeatMap::new(range.clone(), *step_ms, ROWS.map(|(name, _)| name))
        .title("Distribution of response times");
    for minute in steps {
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
    rule_field: Field,
    caller_field: Field,
    /// What the rule would decide now.
    trial: Option<(Tone, String)>,
}

/// A rule and a caller to try.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TryQuery {
    rule: String,
    caller: String,
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
            exactness: if rule.is_leased() { "leased" } else { "exact" },
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

async fn limits(
    console: Console,
    State(gateway): State<Gateway>,
    Query(query): Query<TryQuery>,
) -> Result<Page, Problem> {
    let mut rules = Vec::new();
    for rule in gateway.admission().limiter().rules().iter() {
        let statistics = gateway.statistics().rule(rule.rule().name()).await?;
        rules.push(RuleRow::new(rule, statistics));
    }
    let choice = |row: &RuleRow| Choice { value: row.name.clone(), label: row.name.clone() };
    let body = Limits {
        rule_field: Field::choice("rule", "Rule", rules.iter().map(choice).collect()).value(&query.rule),
        caller_field: Field::text("caller", "Caller")
            .value(&query.caller)
            .placeholder("10.0.0.7")
            .max_length(128)
            .required(),
        trial: try_rule(&gateway, &query).await,
        rules,
    };
    console.page("Limits", &body)
}

/// What a rule would decide about a caller now. Nothing is counted.
async fn try_rule(gateway: &Gateway, query: &TryQuery) -> Option<(Tone, String)> {
    let caller = query.caller.trim();
    if caller.is_empty() {
        return None;
    }
    let limiter = gateway.admission().limiter();
    let Some(rule) = limiter.rule(&query.rule) else {
        return Some((Tone::Bad, format!("Unknown rule {:?}.", query.rule)));
    };
    let Some(identity) = Identity::parse(caller) else {
        return Some((Tone::Bad, "The caller must be an address or a name that fits a key.".to_owned()));
    };
    Some(match limiter.peek(&rule, &identity).await {
        Verdict::Decided(decision) => {
            let quota = decision.quota();
            let left = if quota.remaining >= quota.limit {
                format!("All {} requests are left.", quota.limit)
            } else {
                let reset = Quantity::duration(quota.reset_after);
                format!("{} of {} requests left; full again in {reset}.", quota.remaining, quota.limit)
            };
            match quota.remaining {
                0 => (Tone::Bad, format!("{identity} would be limited now. {left}")),
                _ => (Tone::Good, format!("{identity} would be allowed now. {left}")),
            }
        }
        Verdict::Unlimited => {
            (Tone::Warn, "Redis is unavailable. The rule allows every request meanwhile.".to_owned())
        }
        Verdict::Unavailable { .. } => {
            (Tone::Warn, "Redis is unavailable. The rule refuses every request meanwhile.".to_owned())
        }
    })
}
