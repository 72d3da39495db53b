//! The API of monitors.

#![allow(unused_qualifications, reason = "in code that utoipa derives")]

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use hob_database::{PageRequest, UnixMs};
use hob_web::{AuditDetail, Caller, Json, List, Path, Problem, Query, read_json};
use serde::Deserialize;
use utoipa::IntoParams;

use super::view::{CheckView, HistoryView, MonitorView, SummaryView, UptimeView, Viewer};
use super::{invalid, monitor_id};
use crate::database::results;
use crate::monitor::history::{self, Period};
use crate::monitor::{Monitor, MonitorSpec};
use crate::schedule::snapshot::Snapshot;
use crate::schedule::state::MonitorState;
use crate::uptime::{AddOutcome, CheckNowOutcome, EditOutcome, MAX_MONITORS, Uptime};

/// Filters and paging of the list of monitors.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct MonitorQuery {
    /// Part of a name, an id or a target.
    #[param(max_length = 128)]
    pub(crate) search: Option<String>,
    #[param(max_length = 64)]
    pub(crate) tag: Option<String>,
    #[param(max_length = 64)]
    pub(crate) group: Option<String>,
    /// Only monitors that are down, suspect, recovering or stale.
    #[serde(default)]
    pub(crate) failing: bool,
    /// `next` of the previous page.
    #[param(max_length = 128)]
    pub(crate) after: Option<String>,
    #[param(minimum = 1, maximum = 500)]
    pub(crate) limit: Option<u16>,
}

impl MonitorQuery {
    /// The monitors of the page, and `after` of the next page.
    pub(crate) fn page(
        &self,
        all: &[Arc<Monitor>],
        snapshot: &Snapshot,
    ) -> Result<(Vec<Arc<Monitor>>, Option<String>), Problem> {
        let limit = usize::from(self.limit.unwrap_or(PageRequest::DEFAULT_SIZE));
        if !(1..=usize::from(PageRequest::MAX_SIZE)).contains(&limit) {
            return Err(Problem::invalid(
                "limit",
                format!("must be between 1 and {}", PageRequest::MAX_SIZE),
            ));
        }
        let begin = match &self.after {
            Some(after) => match all.iter().position(|monitor| monitor.id.as_str() == after) {
                Some(at) => at + 1,
                None => return Err(Problem::invalid("after", "must be the `next` of a page of this list")),
            },
            None => 0,
        };
        let search = self.search.as_deref().unwrap_or_default().trim().to_lowercase();
        let fits = |monitor: &&Arc<Monitor>| self.fits(monitor, &search, snapshot);
        let mut page: Vec<Arc<Monitor>> =
            all[begin..].iter().filter(fits).take(limit + 1).map(Arc::clone).collect();
        let more = page.len() > limit;
        page.truncate(limit);
        let next = page.last().filter(|_| more).map(|last| last.id.to_string());
        Ok((page, next))
    }

    fn fits(&self, monitor: &Monitor, search: &str, snapshot: &Snapshot) -> bool {
        let spec = &monitor.spec;
        let named = || {
            [spec.name.as_str(), spec.target.as_str(), monitor.id.as_str()]
                .iter()
                .any(|text| text.to_lowercase().contains(search))
        };
        // A form also sends its empty fields.
        self.tag.as_ref().is_none_or(|tag| tag.is_empty() || spec.tags.contains(tag))
            && self.group.as_ref().is_none_or(|group| group.is_empty() || spec.group == *group)
            && (search.is_empty() || named())
            && (!self.failing || snapshot.state(monitor).is_failing())
    }
}

/// List monitors with their states, by group and name.
#[utoipa::path(get, path = "/api/v1/uptime/monitors", operation_id = "list_monitors", params(MonitorQuery), responses((status = 200, body = List<MonitorView>)))]
pub(super) async fn list(
    State(uptime): State<Uptime>,
    caller: Caller,
    Query(query): Query<MonitorQuery>,
) -> Result<Json<List<MonitorView>>, Problem> {
    let snapshot = uptime.snapshot().await?;
    let (page, next) = query.page(&uptime.monitors(), &snapshot)?;
    let rows = uptime.rows(&snapshot, &page).await?;
    let viewer = Viewer::of(&caller);
    Ok(Json(List { items: rows.iter().map(|row| MonitorView::new(row, viewer)).collect(), next }))
}

/// Add a monitor and check it at once.
#[utoipa::path(post, path = "/api/v1/uptime/monitors", operation_id = "add_monitor", request_body = MonitorSpec,
    responses((status = 201, body = MonitorView)))]
pub(super) async fn add(
    State(uptime): State<Uptime>,
    Json(spec): Json<MonitorSpec>,
) -> Result<(StatusCode, AuditDetail, Json<MonitorView>), Problem> {
    let monitor = added_monitor(uptime.add(None, &spec).await?)?;
    let detail = AuditDetail::Of(monitor.id.to_string());
    Ok((StatusCode::CREATED, detail, view(&uptime, &monitor).await?))
}

/// Get a monitor with its state.
#[utoipa::path(get, path = "/api/v1/uptime/monitors/{id}", operation_id = "show_monitor", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = MonitorView)))]
pub(super) async fn show(
    State(uptime): State<Uptime>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<MonitorView>, Problem> {
    let monitor = find_monitor(&uptime, &id).await?;
    Ok(Json(MonitorView::new(&uptime.row(&monitor).await?, Viewer::of(&caller))))
}

/// Create or replace the monitor with this id.
#[utoipa::path(put, path = "/api/v1/uptime/monitors/{id}", operation_id = "put_monitor", params(("id" = String, Path, max_length = 128)),
    request_body = MonitorSpec, responses((status = 200, body = MonitorView), (status = 201, body = MonitorView)))]
pub(super) async fn put(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
    Json(spec): Json<MonitorSpec>,
) -> Result<(StatusCode, Json<MonitorView>), Problem> {
    let id = monitor_id(&id)?;
    let (status, monitor) = match uptime.edit(&id, &spec).await? {
        EditOutcome::NotFound => (StatusCode::CREATED, added_monitor(uptime.add(Some(id), &spec).await?)?),
        edited => (StatusCode::OK, edited_monitor(edited)?),
    };
    Ok((status, view(&uptime, &monitor).await?))
}

/// Change some fields of a monitor: a JSON merge patch, where `null` resets a field to its default.
#[utoipa::path(patch, path = "/api/v1/uptime/monitors/{id}", operation_id = "patch_monitor", params(("id" = String, Path, max_length = 128)),
    request_body(content = Object, example = json!({"interval_s": 30})),
    responses((status = 200, body = MonitorView)))]
pub(super) async fn patch(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
    Json(patch): Json<serde_json::Map<String, serde_json::Value>>,
) -> Result<Json<MonitorView>, Problem> {
    let monitor = find_monitor(&uptime, &id).await?;
    let mut spec = serde_json::to_value(&monitor.spec).map_err(Problem::internal)?;
    merge(&mut spec, serde_json::Value::Object(patch));
    let spec: MonitorSpec = read_json(spec)?;
    let monitor = edited_monitor(uptime.edit(&monitor.id, &spec).await?)?;
    view(&uptime, &monitor).await
}

/// Remove a monitor with its history.
#[utoipa::path(delete, path = "/api/v1/uptime/monitors/{id}", operation_id = "remove_monitor", params(("id" = String, Path, max_length = 128)),
    responses((status = 204)))]
pub(super) async fn remove(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = monitor_id(&id)?;
    if !uptime.remove(&id).await? {
        return Err(Problem::not_found("monitor"));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Check a monitor now. The result counts like that of a scheduled check.
#[utoipa::path(post, path = "/api/v1/uptime/monitors/{id}/check", operation_id = "check_monitor", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = CheckView)))]
pub(super) async fn check(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<Json<CheckView>, Problem> {
    let monitor = find_monitor(&uptime, &id).await?;
    match uptime.check_now(&monitor.id).await? {
        CheckNowOutcome::Checked { observation, state } => Ok(Json(CheckView::new(&observation, state))),
        CheckNowOutcome::Skipped => {
            Err(Problem::conflict("The monitor is paused or was edited during the check."))
        }
        CheckNowOutcome::Heartbeat => Err(Problem::conflict(
            "A heartbeat monitor cannot be checked on demand: it waits for reports from the monitored job.",
        )),
    }
}

/// Pause a monitor.
#[utoipa::path(post, path = "/api/v1/uptime/monitors/{id}/pause", operation_id = "pause_monitor", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = MonitorView)))]
pub(super) async fn pause(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<Json<MonitorView>, Problem> {
    let monitor = set_paused(&uptime, &id, Paused::Yes).await?;
    view(&uptime, &monitor).await
}

/// Resume a paused monitor.
#[utoipa::path(post, path = "/api/v1/uptime/monitors/{id}/resume", operation_id = "resume_monitor", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = MonitorView)))]
pub(super) async fn resume(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<Json<MonitorView>, Problem> {
    let monitor = set_paused(&uptime, &id, Paused::No).await?;
    view(&uptime, &monitor).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    Yes,
    No,
}

pub(crate) async fn set_paused(uptime: &Uptime, id: &str, paused: Paused) -> Result<Arc<Monitor>, Problem> {
    let monitor = find_monitor(uptime, id).await?;
    let mut spec = monitor.spec.clone();
    spec.paused = paused == Paused::Yes;
    edited_monitor(uptime.edit(&monitor.id, &spec).await?)
}

/// The period of a history.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    #[serde(default)]
    period: Period,
}

/// Get the uptime, latencies and results of a monitor.
#[utoipa::path(get, path = "/api/v1/uptime/monitors/{id}/history", operation_id = "monitor_history",
    params(("id" = String, Path, max_length = 128), HistoryQuery), responses((status = 200, body = HistoryView)))]
pub(super) async fn history(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<HistoryView>, Problem> {
    let monitor = find_monitor(&uptime, &id).await?;
    let (database, now) = (uptime.database(), UnixMs::now());
    let points = history::points(database, &monitor.id, query.period, now).await?;
    let downtime = history::availability(database, std::slice::from_ref(&monitor.id), now).await?;
    Ok(Json(HistoryView {
        period: query.period,
        uptime: UptimeView::new(&downtime, &monitor),
        whole: points.whole,
        points: points.points,
        results: results::latest(database, &monitor.id, 100).await?,
    }))
}

/// Get how many monitors are in each state.
#[utoipa::path(get, path = "/api/v1/uptime/summary", responses((status = 200, body = SummaryView)))]
pub(super) async fn summary(State(uptime): State<Uptime>) -> Result<Json<SummaryView>, Problem> {
    let snapshot = uptime.snapshot().await?;
    let counts = snapshot.state_counts(&uptime.monitors());
    Ok(Json(SummaryView {
        total: counts.total(),
        up: counts.of(MonitorState::Up),
        suspect: counts.of(MonitorState::Suspect),
        down: counts.of(MonitorState::Down),
        recovering: counts.of(MonitorState::Recovering),
        paused: counts.of(MonitorState::Paused),
        pending: counts.of(MonitorState::Pending),
        stale: counts.of(MonitorState::Stale),
    }))
}

pub(crate) async fn find_monitor(uptime: &Uptime, id: &str) -> Result<Arc<Monitor>, Problem> {
    let id = monitor_id(id)?;
    uptime.monitor(&id).await?.ok_or_else(|| Problem::not_found("monitor"))
}

/// The monitor after a change, for the caller who made it.
async fn view(uptime: &Uptime, monitor: &Arc<Monitor>) -> Result<Json<MonitorView>, Problem> {
    Ok(Json(MonitorView::new(&uptime.row(monitor).await?, Viewer::Writer)))
}

pub(crate) fn added_monitor(added_monitor: AddOutcome) -> Result<Arc<Monitor>, Problem> {
    match added_monitor {
        AddOutcome::Added(monitor) => Ok(monitor),
        AddOutcome::IdTaken => Err(Problem::conflict("Another monitor has this id.")),
        AddOutcome::LimitReached => {
            Err(Problem::conflict(format!("The limit of {MAX_MONITORS} monitors has been reached.")))
        }
        AddOutcome::Invalid(errors) => Err(invalid(errors)),
    }
}

pub(crate) fn edited_monitor(edited_monitor: EditOutcome) -> Result<Arc<Monitor>, Problem> {
    match edited_monitor {
        EditOutcome::Edited(monitor) | EditOutcome::Unchanged(monitor) => Ok(monitor),
        EditOutcome::NotFound => Err(Problem::not_found("monitor")),
        EditOutcome::Invalid(errors) => Err(invalid(errors)),
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
