//! Maintenance windows.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use hob_database::UnixMs;
use hob_web::components::{Badge, Field, RelativeTime, Tone};
use hob_web::{AuditDetail, Console, Form, Page, Path, Problem};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Deserialize;

use super::MAY_WRITE;
use crate::database::maintenance;
use crate::monitor::maintenance::{Maintenance, MaintenanceSpec};
use crate::routes::invalid;
use crate::uptime::Uptime;

#[derive(Template)]
#[template(path = "uptime/maintenance.html")]
struct Windows {
    here: &'static str,
    windows: Vec<WindowRow>,
    fields: Vec<Field>,
    /// The form has entered data that is not saved.
    is_draft: bool,
    may_write: bool,
}

struct WindowRow {
    id: String,
    title: String,
    covers: String,
    badge: Badge,
    from: RelativeTime,
    to: RelativeTime,
}

pub(super) async fn list(console: Console, State(uptime): State<Uptime>) -> Result<Page, Problem> {
    WindowForm::default().page(&console, &uptime, None).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WindowForm {
    title: String,
    covers: String,
    from: String,
    to: String,
}

/// Adds the window, or shows the form again with its errors.
pub(super) async fn add(
    console: Console,
    State(uptime): State<Uptime>,
    Form(form): Form<WindowForm>,
) -> Result<Response, Problem> {
    let added = match form.spec(&uptime) {
        Ok(spec) => uptime.add_window(&spec).await?,
        Err(problem) => {
            let page = form.page(&console, &uptime, Some(&problem)).await?;
            return Ok((problem.status(), page).into_response());
        }
    };
    Ok((AuditDetail::Of(added.id), Redirect::to("/uptime/maintenance")).into_response())
}

impl WindowForm {
    fn spec(&self, uptime: &Uptime) -> Result<MaintenanceSpec, Problem> {
        let covers =
            self.covers.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
        let spec = MaintenanceSpec {
            title: self.title.trim().to_owned(),
            covers: covers.collect(),
            starts_at_ms: unix_ms("from", &self.from)?,
            ends_at_ms: unix_ms("to", &self.to)?,
        };
        spec.validate(&uptime.monitors()).map_err(invalid)?;
        Ok(spec)
    }

    async fn page(
        &self,
        console: &Console,
        uptime: &Uptime,
        problem: Option<&Problem>,
    ) -> Result<Page, Problem> {
        let windows = maintenance::all(uptime.database()).await?;
        let error = |field: &str| problem.and_then(|problem| problem.error_of(field));
        let body = Windows {
            here: "maintenance",
            windows: windows.iter().map(WindowRow::new).collect(),
            fields: vec![
                Field::text("title", "Title")
                    .value(&self.title)
                    .error(error("title"))
                    .required()
                    .max_length(128),
                Field::text("covers", "Covers")
                    .value(&self.covers)
                    .error(error("covers"))
                    .hint("Ids, tags or groups, separated by commas; all monitors if empty"),
                Field::time("from", "From (UTC)").value(&self.from).error(error("from")).required(),
                Field::time("to", "To (UTC)")
                    .value(&self.to)
                    .error(error("to").or_else(|| error("ends_at_ms")))
                    .required(),
            ],
            is_draft: problem.is_some(),
            may_write: console.may(&MAY_WRITE),
        };
        console.page("Maintenance", &body)
    }
}

pub(super) async fn remove(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<Redirect, Problem> {
    if !uptime.remove_window(&id).await? {
        return Err(Problem::not_found("maintenance window"));
    }
    Ok(Redirect::to("/uptime/maintenance"))
}

fn unix_ms(field: &str, text: &str) -> Result<i64, Problem> {
    let time: Result<DateTime, _> = text.trim().trim_end_matches('Z').parse();
    let time = time.ok().and_then(|time| time.to_zoned(TimeZone::UTC).ok());
    let time =
        time.ok_or_else(|| Problem::invalid(field, "must be a time in UTC, such as 2026-12-31T22:00"))?;
    Ok(time.timestamp().as_millisecond())
}

impl WindowRow {
    fn new(window: &Maintenance) -> Self {
        let spec = &window.spec;
        let badge = match UnixMs::now().0 {
            now if now < spec.starts_at_ms => Tone::Idle.badge("planned"),
            now if now < spec.ends_at_ms => Tone::Busy.badge("active"),
            _ => Tone::Good.badge("ended"),
        };
        let covers = if spec.covers.is_empty() { "all monitors".to_owned() } else { spec.covers.join(", ") };
        Self {
            id: window.id.clone(),
            title: spec.title.clone(),
            covers,
            badge,
            from: RelativeTime::at(spec.starts_at_ms),
            to: RelativeTime::at(spec.ends_at_ms),
        }
    }
}
