//! The page of a monitor: state, phases, history.

use askama::Template;
use axum::extract::State;
use axum::response::Redirect;
use hob_database::UnixMs;
use hob_web::chart::{Line, RangeQuery, Span, TimeRange};
use hob_web::components::{Badge, Facts, Markup, Quantity, RelativeTime, Tone, Unit};
use hob_web::{BaseUrl, Console, Page, Path, Problem, Query};

use super::incidents::IncidentRow as ShownIncident;
use super::{MAY_WRITE, badge, format_percent, millis, path, recent_results};
use crate::database::results;
use crate::monitor::Monitor;
use crate::monitor::check::{Check, MonitorKind};
use crate::monitor::history::{self, Downtime, Period, Points, ResultRow};
use crate::routes::{Paused, find_monitor, set_paused};
use crate::schedule::snapshot::{AssertionFinding, MonitorRow};
use crate::uptime::{CheckNowOutcome, Uptime, topic};

#[derive(Template)]
#[template(path = "uptime/detail.html")]
struct Detail {
    topic: String,
    path: String,
    kind: MonitorKind,
    target: String,
    badge: Badge,
    paused: bool,
    can_check: bool,
    recent_results: Markup,
    now: Facts,
    phases: Vec<Phase>,
    assertions: Vec<ShownAssertion>,
    shares: Vec<(&'static str, String)>,
    range: String,
    picker: Markup,
    latencies: Vec<(&'static str, Quantity)>,
    about: Facts,
    chart: Markup,
    incidents: Vec<ShownIncident>,
    results: Vec<ShownResult>,
    may_write: bool,
}

struct Phase {
    name: &'static str,
    took: Quantity,
    percent: u64,
}

struct ShownAssertion {
    badge: Badge,
    text: String,
    /// Empty if it was not evaluated.
    found: String,
}

struct ShownResult {
    when: RelativeTime,
    badge: Badge,
    took: Quantity,
    error: String,
}

/// The most results in the table.
const MAX_RESULTS: u16 = 10;
/// The ranges that the page offers.
const RANGES: &[Span] = &[Span::Hour, Span::Day, Span::Week, Span::Month, Span::Quarter];

pub(super) async fn show(
    console: Console,
    base: BaseUrl,
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
    Query(query): Query<RangeQuery>,
) -> Result<Page, Problem> {
    let monitor = find_monitor(&uptime, &id).await?;
    let row = uptime.row(&monitor).await?;
    let (database, range) = (uptime.database(), query.resolve(RANGES, Span::Day)?);
    let between = i64::try_from(range.from_ms).unwrap_or(0)..i64::try_from(range.to_ms).unwrap_or(i64::MAX);
    let points = history::points_between(database, &monitor.id, between, UnixMs::now()).await?;
    let downtime = history::availability(database, std::slice::from_ref(&monitor.id), UnixMs::now()).await?;
    let results = results::latest(database, &monitor.id, MAX_RESULTS).await?;
    let incidents = downtime.incidents(&monitor.id).iter().take(20);
    let body = Detail {
        topic: topic(&monitor.id),
        path: path(&monitor.id),
        kind: monitor.spec.kind,
        target: monitor.spec.target.clone(),
        badge: badge(row.state),
        paused: monitor.spec.paused,
        can_check: !monitor.spec.paused && monitor.spec.kind != MonitorKind::Heartbeat,
        recent_results: recent_results(&row),
        now: facts(&row),
        phases: phases(&row),
        assertions: assertions(&row),
        shares: Period::ALL
            .map(|period| (period.as_str(), format_percent(downtime.uptime(&monitor, period))))
            .into(),
        range: range.words(),
        picker: range.picker(&path(&monitor.id), &[]),
        latencies: latencies(&points),
        about: about(&monitor, &console, &base),
        chart: chart(&monitor, &points, &downtime, &range),
        incidents: incidents.map(|incident| ShownIncident::new(incident, &monitor.spec.name)).collect(),
        results: results.iter().map(ShownResult::new).collect(),
        may_write: console.may(&MAY_WRITE),
    };
    console.page(&monitor.spec.name, &body)
}

fn facts(row: &MonitorRow) -> Facts {
    let status = &row.status;
    let mut facts = Facts::new();
    if let Some(at) = status.last_at_ms {
        facts = facts.markup("Last check", RelativeTime::at(at));
    }
    if let Some(at) = status.checked_at_s {
        facts = facts.markup("Last success", RelativeTime::at(at * 1000));
    }
    if let Some(code) = status.status_code.filter(|code| *code > 0) {
        facts = facts.text("Status code", code);
    }
    if let Some(since) = row.failing_since_ms {
        facts = facts
            .markup("Failing since", RelativeTime::at(since))
            .text("Failed checks in a row", row.failures);
    }
    if let Some(error) = &status.error {
        facts = facts.text("Error", error);
    }
    facts
}

fn phases(row: &MonitorRow) -> Vec<Phase> {
    let total = row.status.last_us.unwrap_or(0).max(1);
    let names = ["Name", "Connect", "TLS", "First byte"];
    let find_monitor = names.into_iter().zip(row.status.phases_us).filter_map(|(name, us)| Some((name, us?)));
    let phase = |(name, us): (&'static str, u64)| Phase {
        name,
        took: millis(us as f64 / 1000.0),
        percent: (us * 100 / total).min(100),
    };
    find_monitor.map(phase).collect()
}

fn assertions(row: &MonitorRow) -> Vec<ShownAssertion> {
    let results = row.status.assertions.iter().map(Some).chain(std::iter::repeat(None));
    let shown = |(text, finding): (&String, Option<&AssertionFinding>)| {
        let badge = match finding.map(|finding| finding.holds) {
            Some(true) => Tone::Good.badge("holds"),
            Some(false) => Tone::Bad.badge("does not hold"),
            None => Tone::Idle.badge("not evaluated"),
        };
        let found = finding.map(|finding| finding.found.clone()).unwrap_or_default();
        ShownAssertion { badge, text: text.clone(), found }
    };
    row.monitor.spec.assertions.iter().zip(results).map(shown).collect()
}

fn latencies(points: &Points) -> Vec<(&'static str, Quantity)> {
    let whole = &points.whole;
    let shown = |ms: Option<f64>| millis(ms.unwrap_or(f64::NAN));
    vec![("p50", shown(whole.p50_ms)), ("p95", shown(whole.p95_ms)), ("p99", shown(whole.p99_ms))]
}

fn about(monitor: &Monitor, console: &Console, base: &BaseUrl) -> Facts {
    let spec = &monitor.spec;
    let (expected, failed, passed) = rules(monitor);
    let mut facts = Facts::new()
        .text(if spec.kind == MonitorKind::Heartbeat { "Expected" } else { "Checked" }, expected)
        .text("Down after", failed)
        .text("Up after", passed)
        .code("ID", &monitor.id);
    if !spec.tags.is_empty() {
        facts = facts.text("Tags", spec.tags.join(", "));
    }
    if let Some(path) = monitor.heartbeat_path() {
        // With the URL, anyone can report that the job works.
        facts = match console.may(&MAY_WRITE) {
            true => {
                let url = base.join(&path);
                facts.code("Heartbeat URL", &url).code("In the job", format!("curl -fsS {url}"))
            }
            false => facts.text("Heartbeat URL", format!("hidden; requires the scope {MAY_WRITE}")),
        };
    }
    facts
}

/// When a check or a call is due, and how many results change the state.
fn rules(monitor: &Monitor) -> (String, String, String) {
    let spec = &monitor.spec;
    let count = |count: u32, one: &str| if count == 1 { one.to_owned() } else { format!("{count} {one}s") };
    if let Check::Heartbeat(heartbeat) = &monitor.check {
        let due = match &heartbeat.cron {
            Some(cron) => format!("{} (cron, UTC)", cron.pattern),
            None => format!("every {} s", spec.interval_s),
        };
        return (
            format!("{due}, at most {} s late", heartbeat.grace_s),
            "a missed call or a reported failure".to_owned(),
            count(spec.recoveries, "call"),
        );
    }
    let mut failed = count(spec.retries + 1, "failed check");
    if spec.retries > 0 {
        failed = format!("{failed}, {} s apart", spec.retry_delay_s);
    }
    (
        format!("every {} s, timeout {} s", spec.interval_s, spec.timeout_s()),
        failed,
        count(spec.recoveries, "successful check"),
    )
}

fn chart(monitor: &Monitor, points: &Points, downtime: &Downtime, range: &TimeRange) -> Markup {
    let ms = |time: i64| u64::try_from(time).unwrap_or(0);
    let end = UnixMs::now().0;
    let mut line = Line::new(range.range()).title("Latency").unit(Unit::Millis).every(ms(points.step_ms));
    let series = |pick: fn(&history::Point) -> Option<f64>| {
        points.points.iter().map(move |point| (ms(point.start_ms), pick(point)))
    };
    line = line
        .series("p50", series(|point| point.p50_ms))
        .series("p95", series(|point| point.p95_ms))
        .series("p99", series(|point| point.p99_ms));
    for incident in downtime.incidents(&monitor.id) {
        let until = incident.resolved_at.map_or(end, |at| at.0);
        let tone = if incident.maintenance { Tone::Idle } else { Tone::Bad };
        line = line.band(ms(incident.opened_at.0)..ms(until), tone, incident.message.clone());
    }
    line.render()
}

impl ShownResult {
    fn new(result: &ResultRow) -> Self {
        Self {
            when: RelativeTime::at(result.at_ms),
            badge: badge(result.state),
            took: millis(result.latency_us as f64 / 1000.0),
            error: result.error.clone().unwrap_or_default(),
        }
    }
}

pub(super) async fn check(State(uptime): State<Uptime>, Path(id): Path<String>) -> Result<Redirect, Problem> {
    let monitor = find_monitor(&uptime, &id).await?;
    match uptime.check_now(&monitor.id).await? {
        CheckNowOutcome::Checked { .. } => Ok(Redirect::to(&path(&monitor.id))),
        CheckNowOutcome::Skipped => {
            Err(Problem::conflict("The monitor is paused or was edited during the check."))
        }
        CheckNowOutcome::Heartbeat => Err(Problem::conflict(
            "A heartbeat monitor cannot be checked on demand: it waits for reports from the monitored job.",
        )),
    }
}

pub(super) async fn pause(State(uptime): State<Uptime>, Path(id): Path<String>) -> Result<Redirect, Problem> {
    Ok(Redirect::to(&path(&set_paused(&uptime, &id, Paused::Yes).await?.id)))
}

pub(super) async fn resume(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<Redirect, Problem> {
    Ok(Redirect::to(&path(&set_paused(&uptime, &id, Paused::No).await?.id)))
}

pub(super) async fn delete(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<Redirect, Problem> {
    let monitor = find_monitor(&uptime, &id).await?;
    uptime.remove(&monitor.id).await?;
    Ok(Redirect::to("/uptime"))
}
