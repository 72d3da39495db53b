//! Monitors over HTTP.

#![allow(unused_qualifications, reason = "what utoipa derives for parameters has some")]

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use hob_database::PageRequest;
use hob_web::{Caller, Json, List, Path, Problem, Query};
use serde::Deserialize;
use utoipa::IntoParams;

use super::view::{CheckView, HistoryView, MonitorView, SummaryView, UptimeView};
use super::{invalid, monitor_id};
use crate::database::results;
use crate::monitor::history::{self, Period};
use crate::monitor::{Monitor, MonitorSpec};
use crate::schedule::snapshot::Board;
use crate::schedule::state::State as Stands;
use crate::uptime::{Added, Changed, Checked, Uptime, now};

/// Which monitors, and how many.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Part of a name, an id or a target.
    #[param(max_length = 128)]
    pub(crate) search: Option<String>,
    #[param(max_length = 64)]
    pub(crate) tag: Option<String>,
    #[param(max_length = 64)]
    pub(crate) group: Option<String>,
    /// Only those that somebody should look at.
    #[serde(default)]
    pub(crate) failing: bool,
    /// The id that the page before ended with: its `next`.
    #[param(max_length = 128)]
    pub(crate) after: Option<String>,
    #[param(minimum = 1, maximum = 500)]
    pub(crate) limit: Option<u16>,
}

impl Wanted {
    /// The monitors of the page, and where the next one begins.
    pub(crate) fn page(
        &self,
        all: &[Arc<Monitor>],
        board: &Board,
    ) -> Result<(Vec<Arc<Monitor>>, Option<String>), Problem> {
        let limit = usize::from(self.limit.unwrap_or(PageRequest::DEFAULT_SIZE));
        if !(1..=usize::from(PageRequest::MOST)).contains(&limit) {
            return Err(Problem::invalid("limit", format!("1 to {} at a time", PageRequest::MOST)));
        }
        let begin = match &self.after {
            Some(after) => match all.iter().position(|monitor| monitor.id.as_str() == after) {
                Some(at) => at + 1,
                None => return Err(Problem::invalid("after", "this is not where a page of this list ended")),
            },
            None => 0,
        };
        let search = self.search.as_deref().unwrap_or_default().trim().to_lowercase();
        let fits = |monitor: &&Arc<Monitor>| self.fits(monitor, &search, board);
        let mut page: Vec<Arc<Monitor>> =
            all[begin..].iter().filter(fits).take(limit + 1).map(Arc::clone).collect();
        let more = page.len() > limit;
        page.truncate(limit);
        let next = page.last().filter(|_| more).map(|last| last.id.to_string());
        Ok((page, next))
    }

    fn fits(&self, monitor: &Monitor, search: &str, board: &Board) -> bool {
        let spec = &monitor.spec;
        let named = || {
            [spec.name.as_str(), spec.target.as_str(), monitor.id.as_str()]
                .iter()
                .any(|text| text.to_lowercase().contains(search))
        };
        // A form sends its empty fields too.
        self.tag.as_ref().is_none_or(|tag| tag.is_empty() || spec.tags.contains(tag))
            && self.group.as_ref().is_none_or(|group| group.is_empty() || spec.group == *group)
            && (search.is_empty() || named())
            && (!self.failing || board.state(monitor).is_failing())
    }
}

/// Monitors with their states, by group and name.
#[utoipa::path(get, path = "/api/v1/uptime/monitors", params(Wanted), responses((status = 200, body = List<MonitorView>)))]
pub(super) async fn list(
    State(uptime): State<Uptime>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<List<MonitorView>>, Problem> {
    let board = uptime.board().await?;
    let (page, next) = wanted.page(&uptime.monitors(), &board)?;
    let rows = uptime.rows(&board, &page).await?;
    Ok(Json(List { items: rows.iter().map(MonitorView::new).collect(), next }))
}

/// Adds a monitor; it is checked at once.
#[utoipa::path(post, path = "/api/v1/uptime/monitors", request_body = MonitorSpec,
    responses((status = 201, body = MonitorView)))]
pub(super) async fn add(
    State(uptime): State<Uptime>,
    caller: Caller,
    Json(spec): Json<MonitorSpec>,
) -> Result<(StatusCode, Json<MonitorView>), Problem> {
    let monitor = added(uptime.add(None, &spec).await?)?;
    uptime.note(&caller, "uptime.monitor.add", monitor.id.as_str()).await;
    Ok((StatusCode::CREATED, view(&uptime, &monitor).await?))
}

/// One monitor with its state.
#[utoipa::path(get, path = "/api/v1/uptime/monitors/{id}", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = MonitorView)))]
pub(super) async fn show(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<Json<MonitorView>, Problem> {
    let monitor = known(&uptime, &id).await?;
    view(&uptime, &monitor).await
}

/// Makes the monitor with this id exactly so, whether it is there or not.
#[utoipa::path(put, path = "/api/v1/uptime/monitors/{id}", params(("id" = String, Path, max_length = 128)),
    request_body = MonitorSpec, responses((status = 200, body = MonitorView), (status = 201, body = MonitorView)))]
pub(super) async fn put(
    State(uptime): State<Uptime>,
    caller: Caller,
    Path(id): Path<String>,
    Json(spec): Json<MonitorSpec>,
) -> Result<(StatusCode, Json<MonitorView>), Problem> {
    let id = monitor_id(&id)?;
    let (status, monitor) = match uptime.edit(&id, &spec).await? {
        Changed::Unknown => (StatusCode::CREATED, added(uptime.add(Some(id), &spec).await?)?),
        edited => (StatusCode::OK, changed(edited)?),
    };
    uptime.note(&caller, "uptime.monitor.put", monitor.id.as_str()).await;
    Ok((status, view(&uptime, &monitor).await?))
}

/// Changes some fields of a monitor: a JSON merge patch, in which `null` stands for the default.
#[utoipa::path(patch, path = "/api/v1/uptime/monitors/{id}", params(("id" = String, Path, max_length = 128)),
    request_body(content = Object, example = json!({"interval_s": 30})),
    responses((status = 200, body = MonitorView)))]
pub(super) async fn patch(
    State(uptime): State<Uptime>,
    caller: Caller,
    Path(id): Path<String>,
    Json(patch): Json<serde_json::Map<String, serde_json::Value>>,
) -> Result<Json<MonitorView>, Problem> {
    let monitor = known(&uptime, &id).await?;
    let mut spec = serde_json::to_value(&monitor.spec).map_err(Problem::internal)?;
    merge(&mut spec, serde_json::Value::Object(patch));
    let spec: MonitorSpec =
        serde_json::from_value(spec).map_err(|error| Problem::invalid("", error.to_string()))?;
    let monitor = changed(uptime.edit(&monitor.id, &spec).await?)?;
    uptime.note(&caller, "uptime.monitor.edit", monitor.id.as_str()).await;
    view(&uptime, &monitor).await
}

/// Removes a monitor with its history.
#[utoipa::path(delete, path = "/api/v1/uptime/monitors/{id}", params(("id" = String, Path, max_length = 128)),
    responses((status = 204)))]
pub(super) async fn remove(
    State(uptime): State<Uptime>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = monitor_id(&id)?;
    if !uptime.remove(&id).await? {
        return Err(Problem::not_found("monitor"));
    }
    uptime.note(&caller, "uptime.monitor.delete", id.as_str()).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks a monitor now. The result counts like any other.
#[utoipa::path(post, path = "/api/v1/uptime/monitors/{id}/check", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = CheckView)))]
pub(super) async fn check(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<Json<CheckView>, Problem> {
    let monitor = known(&uptime, &id).await?;
    match uptime.check_now(&monitor.id).await? {
        Checked::Checked { observation, state } => Ok(Json(CheckView::new(&observation, state))),
        Checked::Not => Err(Problem::conflict("It is paused, or was edited meanwhile.")),
        Checked::Heartbeat => Err(Problem::conflict("A heartbeat is not checked: its job calls.")),
    }
}

/// Stops checking a monitor.
#[utoipa::path(post, path = "/api/v1/uptime/monitors/{id}/pause", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = MonitorView)))]
pub(super) async fn pause(
    State(uptime): State<Uptime>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<MonitorView>, Problem> {
    let monitor = set_paused(&uptime, &caller, &id, Paused::Yes).await?;
    view(&uptime, &monitor).await
}

/// Checks a monitor again.
#[utoipa::path(post, path = "/api/v1/uptime/monitors/{id}/resume", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = MonitorView)))]
pub(super) async fn resume(
    State(uptime): State<Uptime>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<MonitorView>, Problem> {
    let monitor = set_paused(&uptime, &caller, &id, Paused::No).await?;
    view(&uptime, &monitor).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    Yes,
    No,
}

pub(crate) async fn set_paused(
    uptime: &Uptime,
    caller: &Caller,
    id: &str,
    paused: Paused,
) -> Result<Arc<Monitor>, Problem> {
    let monitor = known(uptime, id).await?;
    let mut spec = monitor.spec.clone();
    spec.paused = paused == Paused::Yes;
    let monitor = changed(uptime.edit(&monitor.id, &spec).await?)?;
    let what = if spec.paused { "uptime.monitor.pause" } else { "uptime.monitor.resume" };
    uptime.note(caller, what, monitor.id.as_str()).await;
    Ok(monitor)
}

/// How long.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Over {
    #[serde(default)]
    period: Period,
}

/// How available and how fast a monitor was.
#[utoipa::path(get, path = "/api/v1/uptime/monitors/{id}/history",
    params(("id" = String, Path, max_length = 128), Over), responses((status = 200, body = HistoryView)))]
pub(super) async fn history(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
    Query(over): Query<Over>,
) -> Result<Json<HistoryView>, Problem> {
    let monitor = known(&uptime, &id).await?;
    let (database, now) = (uptime.database(), now());
    let points = history::points(database, &monitor.id, over.period, now).await?;
    let downtime = history::availability(database, std::slice::from_ref(&monitor.id), now).await?;
    Ok(Json(HistoryView {
        period: over.period,
        uptime: UptimeView::new(&downtime, &monitor),
        whole: points.whole,
        points: points.points,
        results: results::latest(database, &monitor.id, 100).await?,
    }))
}

/// How many monitors are in each state.
#[utoipa::path(get, path = "/api/v1/uptime/summary", responses((status = 200, body = SummaryView)))]
pub(super) async fn summary(State(uptime): State<Uptime>) -> Result<Json<SummaryView>, Problem> {
    let board = uptime.board().await?;
    let tally = board.tally(&uptime.monitors());
    Ok(Json(SummaryView {
        total: tally.total(),
        up: tally.of(Stands::Up),
        suspect: tally.of(Stands::Suspect),
        down: tally.of(Stands::Down),
        recovering: tally.of(Stands::Recovering),
        paused: tally.of(Stands::Paused),
        pending: tally.of(Stands::Pending),
        stale: tally.of(Stands::Stale),
    }))
}

pub(crate) async fn known(uptime: &Uptime, id: &str) -> Result<Arc<Monitor>, Problem> {
    let id = monitor_id(id)?;
    uptime.monitor(&id).await?.ok_or_else(|| Problem::not_found("monitor"))
}

async fn view(uptime: &Uptime, monitor: &Arc<Monitor>) -> Result<Json<MonitorView>, Problem> {
    Ok(Json(MonitorView::new(&uptime.row(monitor).await?)))
}

pub(crate) fn added(added: Added) -> Result<Arc<Monitor>, Problem> {
    match added {
        Added::Added(monitor) => Ok(monitor),
        Added::Taken => Err(Problem::conflict("Another monitor has this id.")),
        Added::Full => Err(Problem::conflict("There are as many monitors as there may be.")),
        Added::Invalid(wrong) => Err(invalid(wrong)),
    }
}

pub(crate) fn changed(changed: Changed) -> Result<Arc<Monitor>, Problem> {
    match changed {
        Changed::Changed(monitor) | Changed::Same(monitor) => Ok(monitor),
        Changed::Unknown => Err(Problem::not_found("monitor")),
        Changed::Invalid(wrong) => Err(invalid(wrong)),
    }
}

/// RFC 7396.
fn merge(target: &mut serde_json::Value, patch: serde_json::Value) {
    let serde_json::Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = serde_json::Value::Object(serde_json::Map::new());
    }
    if let Some(fields) = target.as_object_mut() {
        for (name, value) in patch {
            if value.is_null() {
                fields.remove(&name);
            } else {
                merge(fields.entry(name).or_insert(serde_json::Value::Null), value);
            }
        }
    }
}
