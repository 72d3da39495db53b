//! Incidents and their notes.

use askama::Template;
use axum::extract::State;
use axum::response::Redirect;
use hob_database::UnixMs;
use hob_web::components::{Badge, Choice, Empty, Facts, Field, Pager, Quantity, RelativeTime, Tone};
use hob_web::{AuditDetail, Caller, Console, Form, Page, Paging, Path, Problem, Query};
use serde::Deserialize;

use super::{MAY_WRITE, encoded};
use crate::database::{incidents, updates};
use crate::incident::{
    self, Filter, Incident, MAX_NOTE_BYTES, MAX_UPDATE_BYTES, Note, Resolution, Update, UpdateStatus,
};
use crate::routes::incidents::{add_note, publish_update};
use crate::uptime::Uptime;

#[derive(Template)]
#[template(path = "uptime/incidents.html")]
struct Incidents {
    here: &'static str,
    incidents: Vec<IncidentRow>,
    pager: Pager,
}

/// A row of a table of incidents.
pub(super) struct IncidentRow {
    pub(super) id: String,
    pub(super) monitor: String,
    pub(super) name: String,
    pub(super) badge: Badge,
    pub(super) started: RelativeTime,
    pub(super) duration: Quantity,
    pub(super) message: String,
    pub(super) acknowledged_by: String,
}

#[derive(Template)]
#[template(path = "uptime/incident.html")]
struct OneIncident {
    id: String,
    badge: Badge,
    facts: Facts,
    notes: Vec<ShownNote>,
    note_field: Field,
    updates: Vec<ShownUpdate>,
    status_field: Field,
    update_field: Field,
    may_acknowledge: bool,
    may_write: bool,
}

struct ShownUpdate {
    badge: Badge,
    author: String,
    when: RelativeTime,
    text: String,
}

struct ShownNote {
    author: String,
    when: RelativeTime,
    text: String,
}

pub(super) async fn list(
    console: Console,
    State(uptime): State<Uptime>,
    Query(paging): Query<Paging>,
) -> Result<Page, Problem> {
    let page = incidents::page(uptime.database(), &Filter::All, &paging.request()?).await?;
    let monitors = uptime.monitors();
    let name = |incident: &Incident| {
        let monitor = monitors.iter().find(|monitor| monitor.id == incident.monitor_id);
        monitor.map_or_else(|| incident.monitor_id.to_string(), |monitor| monitor.spec.name.clone())
    };
    let body = Incidents {
        here: "incidents",
        pager: Pager {
            first: paging.after.is_some().then(|| "/uptime/incidents".to_owned()),
            next: page.next.map(|cursor| format!("/uptime/incidents?after={cursor}")),
        },
        incidents: page.rows.iter().map(|incident| IncidentRow::new(incident, &name(incident))).collect(),
    };
    console.page("Incidents", &body)
}

pub(super) async fn show(
    console: Console,
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<Page, Problem> {
    let incident = incidents::by_id(uptime.database(), &id).await?;
    let incident = incident.ok_or_else(|| Problem::not_found("incident"))?;
    let notes = incidents::notes(uptime.database(), &id).await?;
    let updates = updates::of_one(uptime.database(), &id).await?;
    let monitor = uptime.monitor(&incident.monitor_id).await?;
    let name = monitor.map_or_else(|| incident.monitor_id.to_string(), |monitor| monitor.spec.name.clone());
    let may_write = console.may(&MAY_WRITE);
    let body = OneIncident {
        badge: badge(&incident),
        facts: facts(&incident),
        notes: notes.into_iter().map(ShownNote::new).collect(),
        note_field: Field::lines("text", "Note").required().max_length(MAX_NOTE_BYTES),
        status_field: Field::choice("status", "Status", statuses())
            .value(updates.first().map_or(UpdateStatus::Investigating, |update| update.status)),
        update_field: Field::lines("text", "What customers should know")
            .required()
            .max_length(MAX_UPDATE_BYTES),
        updates: updates.into_iter().map(ShownUpdate::new).collect(),
        may_acknowledge: may_write && incident.acknowledged_at.is_none() && incident.resolved_at.is_none(),
        may_write,
        id: incident.id,
    };
    console.page_below(&[("Incidents", "/uptime/incidents")], &format!("Incident: {name}"), &body)
}

fn facts(incident: &Incident) -> Facts {
    let mut facts = Facts::new()
        .code("Monitor", &incident.monitor_id)
        .markup("First failed check", RelativeTime::at(incident.opened_at.0))
        .markup("Confirmed", RelativeTime::at(incident.confirmed_at.0))
        .text("Duration", duration(incident))
        .text("Cause", format!("{}: {}", incident.class, incident.message));
    if incident.maintenance {
        facts = facts.text("Maintenance", "started in a window, does not count as downtime");
    }
    if let Some(at) = incident.told_at {
        facts = facts.markup("Alerts sent", RelativeTime::at(at.0)).text("Reminders", incident.reminders);
    }
    if let (Some(at), Some(who)) = (incident.acknowledged_at, &incident.acknowledged_by) {
        facts = facts.text("Acknowledged by", who).markup("Acknowledged", RelativeTime::at(at.0));
    }
    if let (Some(at), Some(why)) = (incident.resolved_at, incident.resolution) {
        facts = facts.markup("Resolved", RelativeTime::at(at.0)).text("Resolution", why);
    }
    facts
}

pub(super) async fn acknowledge(
    State(uptime): State<Uptime>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<(AuditDetail, Redirect), Problem> {
    use incident::AcknowledgeOutcome;
    let page = Redirect::to(&format!("/uptime/incidents/{id}"));
    match incident::acknowledge(uptime.database(), &id, caller.name()).await? {
        AcknowledgeOutcome::NotFound => Err(Problem::not_found("incident")),
        AcknowledgeOutcome::Already(_) => Ok((AuditDetail::Unchanged, page)),
        AcknowledgeOutcome::Acknowledged(incident) => {
            uptime.notify_pages(Some(&incident.monitor_id));
            Ok((AuditDetail::Of(id), page))
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct NewNote {
    text: String,
}

pub(super) async fn annotate(
    State(uptime): State<Uptime>,
    caller: Caller,
    Path(id): Path<String>,
    Form(note): Form<NewNote>,
) -> Result<Redirect, Problem> {
    add_note(&uptime, &caller, &id, &note.text).await?;
    Ok(Redirect::to(&format!("/uptime/incidents/{id}")))
}

#[derive(Debug, Deserialize)]
pub(super) struct NewUpdate {
    status: UpdateStatus,
    text: String,
}

pub(super) async fn publish(
    State(uptime): State<Uptime>,
    caller: Caller,
    Path(id): Path<String>,
    Form(update): Form<NewUpdate>,
) -> Result<Redirect, Problem> {
    publish_update(&uptime, &caller, &id, (update.status, &update.text)).await?;
    Ok(Redirect::to(&format!("/uptime/incidents/{id}")))
}

fn statuses() -> Vec<Choice> {
    UpdateStatus::ALL.map(|status| Choice { value: status.to_string(), label: status.to_string() }).to_vec()
}

fn badge(incident: &Incident) -> Badge {
    match (incident.resolved_at, incident.acknowledged_at) {
        (Some(_), _) if incident.resolution == Some(Resolution::Paused) => Tone::Idle.badge("paused"),
        (Some(_), _) => Tone::Good.badge("resolved"),
        (None, Some(_)) => Tone::Warn.badge("acknowledged"),
        (None, None) => Tone::Bad.badge("open"),
    }
}

fn duration(incident: &Incident) -> Quantity {
    let until = incident.resolved_at.map_or(UnixMs::now().0, |at| at.0);
    Quantity::millis(until - incident.opened_at.0)
}

impl Incidents {
    fn empty(&self) -> Empty {
        Empty::new("No incidents", "No monitor has been down yet.")
    }
}

impl IncidentRow {
    pub(super) fn new(incident: &Incident, name: &str) -> Self {
        Self {
            id: incident.id.clone(),
            monitor: encoded(&incident.monitor_id),
            name: name.to_owned(),
            badge: badge(incident),
            started: RelativeTime::at(incident.opened_at.0),
            duration: duration(incident),
            message: incident.message.clone(),
            acknowledged_by: incident.acknowledged_by.clone().unwrap_or_default(),
        }
    }
}

impl ShownUpdate {
    fn new(update: Update) -> Self {
        let tone = match update.status {
            UpdateStatus::Investigating => Tone::Bad,
            UpdateStatus::Identified => Tone::Warn,
            UpdateStatus::Monitoring => Tone::Busy,
            UpdateStatus::Resolved => Tone::Good,
        };
        Self {
            badge: tone.badge(update.status.as_str()),
            author: update.author,
            when: RelativeTime::at(update.written_at.0),
            text: update.text,
        }
    }
}

impl ShownNote {
    fn new(note: Note) -> Self {
        Self { author: note.author, when: RelativeTime::at(note.written_at.0), text: note.text }
    }
}
