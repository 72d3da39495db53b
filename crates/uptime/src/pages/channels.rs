//! Channels and their deliveries.

mod form;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use hob_web::components::{Badge, Empty, Pager, RelativeTime, Tone};
use hob_web::{AuditDetail, Audited, Console, Form, Page, Paging, Path, Problem, Query, Routes};

use self::form::{ChannelForm, FormPart};

use super::{MAY_WRITE, READ, WRITE};
use crate::database::{channels, deliveries};
use crate::incident::alert::channel::{self, Channel, ChannelKind, ChannelTarget, SaveOutcome};
use crate::incident::alert::delivery::{Attempt, Delivery, DeliveryState};
use crate::incident::alert::{Alerts, ChannelId, NoticeKind};
use crate::monitor::check::FieldError;
use crate::routes::channels::{unknown, view};

pub(crate) fn routes() -> Routes<Alerts> {
    Routes::new()
        .page(READ, "/uptime/channels", list)
        .action(WRITE, Audited::As("uptime.channel.add"), "/uptime/channels", add)
        .page(READ, "/uptime/channels/{id}", show)
        .page(WRITE, "/uptime/channels/{id}/edit", filled)
        .action(WRITE, Audited::As("uptime.channel.edit"), "/uptime/channels/{id}/edit", edit)
        .action(WRITE, Audited::As("uptime.channel.test"), "/uptime/channels/{id}/test", test)
        .action(WRITE, Audited::As("uptime.channel.remove"), "/uptime/channels/{id}/delete", remove)
}

/// Where the form that adds a channel is sent. The page then shows the form.
const ADD: &str = "/uptime/channels#add";

#[derive(Template)]
#[template(path = "uptime/channels.html")]
struct ChannelsPage {
    here: &'static str,
    channels: Vec<ChannelRow>,
    empty: Empty,
    form: FormPart,
    may_write: bool,
}

#[derive(Template)]
#[template(path = "uptime/channel_edit.html")]
struct EditPage {
    form: FormPart,
}

struct ChannelRow {
    id: ChannelId,
    name: String,
    kind: ChannelKind,
    goes_to: String,
}

#[derive(Template)]
#[template(path = "uptime/channel.html")]
struct ChannelPage {
    channel: ChannelRow,
    deliveries: Vec<DeliveryRow>,
    pager: Pager,
    may_write: bool,
}

struct DeliveryRow {
    badge: Badge,
    kind: &'static str,
    incident: Option<String>,
    created: RelativeTime,
    due: Option<RelativeTime>,
    attempts: Vec<AttemptRow>,
}

struct AttemptRow {
    when: RelativeTime,
    took_ms: u64,
    message: String,
}

async fn list(console: Console, State(alerts): State<Alerts>) -> Result<Page, Problem> {
    let form = ChannelForm::blank().part(ADD.to_owned(), "Add", &[]);
    let body = ChannelsPage::load(&alerts, &console, form).await?;
    console.page("Channels", &body)
}

async fn show(
    console: Console,
    State(alerts): State<Alerts>,
    Path(id): Path<ChannelId>,
    Query(paging): Query<Paging>,
) -> Result<Page, Problem> {
    let channel = channels::by_id(alerts.database(), &id).await?.ok_or_else(unknown)?;
    let page = deliveries::page(alerts.database(), &id, &paging.request()?).await?;
    let ids: Vec<&str> = page.rows.iter().map(|delivery| delivery.id.as_str()).collect();
    let mut attempts = deliveries::attempts(alerts.database(), &ids).await?;
    let own = format!("/uptime/channels/{id}");
    let next = page.next.as_ref().map(|cursor| format!("{own}?after={cursor}"));
    let deliveries = page.rows.into_iter().map(|delivery| {
        let tried = attempts.extract_if(.., |attempt| attempt.delivery_id == delivery.id).collect();
        DeliveryRow::new(delivery, tried)
    });
    let body = ChannelPage {
        deliveries: deliveries.collect(),
        pager: Pager { first: paging.after.is_some().then_some(own), next },
        may_write: console.may(&MAY_WRITE),
        channel: ChannelRow::new(channel),
    };
    console.page_below(&[("Channels", "/uptime/channels")], &body.channel.name.clone(), &body)
}

/// Adds the channel, or shows the form again: with the fields of another kind, or with errors.
async fn add(
    console: Console,
    State(alerts): State<Alerts>,
    Form(mut form): Form<ChannelForm>,
) -> Result<Response, Problem> {
    let (status, errors) = if form.shows_another_kind() {
        (StatusCode::OK, Vec::new())
    } else {
        match refused(channel::add(&alerts.context, &form.spec()).await?) {
            Ok(refused) => refused,
            Err(done) => {
                let added = view(done)?;
                let to = Redirect::to(&format!("/uptime/channels/{}", added.id));
                return Ok((AuditDetail::Of(added.id.to_string()), to).into_response());
            }
        }
    };
    let form = form.draft(ADD.to_owned(), "Add", &errors);
    let body = ChannelsPage::load(&alerts, &console, form).await?;
    Ok((status, console.page("Channels", &body)?).into_response())
}

/// The form with the values of a channel.
async fn filled(
    console: Console,
    State(alerts): State<Alerts>,
    Path(id): Path<ChannelId>,
) -> Result<Page, Problem> {
    let channel = channels::by_id(alerts.database(), &id).await?.ok_or_else(unknown)?;
    let name = channel.spec.name.clone();
    let form = ChannelForm::of(channel.spec).part(format!("/uptime/channels/{id}/edit"), "Save", &[]);
    edit_page(&console, &id, &name, form)
}

/// Saves the channel, or shows the form again, as `add` does.
async fn edit(
    console: Console,
    State(alerts): State<Alerts>,
    Path(id): Path<ChannelId>,
    Form(mut form): Form<ChannelForm>,
) -> Result<Response, Problem> {
    let channel = channels::by_id(alerts.database(), &id).await?.ok_or_else(unknown)?;
    let (status, errors) = if form.shows_another_kind() {
        (StatusCode::OK, Vec::new())
    } else {
        match refused(channel::edit(&alerts.context, &id, &form.patch()).await?) {
            Ok(refused) => refused,
            Err(done) => {
                view(done)?;
                return Ok(Redirect::to(&format!("/uptime/channels/{id}")).into_response());
            }
        }
    };
    let form = form.draft(format!("/uptime/channels/{id}/edit"), "Save", &errors);
    Ok((status, edit_page(&console, &id, &channel.spec.name, form)?).into_response())
}

fn edit_page(console: &Console, id: &ChannelId, name: &str, form: FormPart) -> Result<Page, Problem> {
    let own = format!("/uptime/channels/{id}");
    console.page_below(&[("Channels", "/uptime/channels"), (name, &own)], "Edit", &EditPage { form })
}

/// The status and the errors of a form that is shown again, or the outcome of one that is not.
fn refused(outcome: SaveOutcome) -> Result<(StatusCode, Vec<FieldError>), SaveOutcome> {
    let name = |message: String| vec![FieldError::new("name", message)];
    match outcome {
        SaveOutcome::Invalid(errors) => Ok((StatusCode::UNPROCESSABLE_ENTITY, errors)),
        SaveOutcome::NameTaken => {
            Ok((StatusCode::CONFLICT, name("another channel has this name".to_owned())))
        }
        SaveOutcome::NameInUse(monitors) => Ok((StatusCode::CONFLICT, name(channel::name_in_use(&monitors)))),
        outcome => Err(outcome),
    }
}

/// The page then shows the delivery.
async fn test(State(alerts): State<Alerts>, Path(id): Path<ChannelId>) -> Result<Redirect, Problem> {
    alerts.test(&id).await?.ok_or_else(unknown)?;
    Ok(Redirect::to(&format!("/uptime/channels/{id}")))
}

async fn remove(State(alerts): State<Alerts>, Path(id): Path<ChannelId>) -> Result<Redirect, Problem> {
    if !channels::remove(alerts.database(), &id).await? {
        return Err(unknown());
    }
    Ok(Redirect::to("/uptime/channels"))
}

impl ChannelsPage {
    async fn load(alerts: &Alerts, console: &Console, form: FormPart) -> Result<Self, Problem> {
        let channels = channels::all(alerts.database()).await?;
        Ok(Self {
            here: "channels",
            channels: channels.into_iter().map(ChannelRow::new).collect(),
            empty: Empty::new(
                "No channels yet",
                "Add one, and select it in the monitors that should alert it.",
            ),
            form,
            may_write: console.may(&MAY_WRITE),
        })
    }
}

impl ChannelRow {
    fn new(channel: Channel) -> Self {
        let goes_to = match &channel.target {
            ChannelTarget::Webhook { url, secret: None } => format!("{url}, unsigned"),
            ChannelTarget::Webhook { url, secret: Some(_) } => url.to_string(),
            ChannelTarget::Slack { url } | ChannelTarget::Discord { url } => {
                format!("URL in the secret {}", url.as_str())
            }
            ChannelTarget::Email { .. } => channel.spec.to.join(", "),
        };
        Self { id: channel.id, name: channel.spec.name, kind: channel.spec.kind, goes_to }
    }
}

impl DeliveryRow {
    fn new(delivery: Delivery, attempts: Vec<Attempt>) -> Self {
        let (badge, due) = match delivery.state {
            DeliveryState::Waiting => {
                (Tone::Busy.badge("waiting"), Some(RelativeTime::at(delivery.due_at.0)))
            }
            DeliveryState::Delivered => (Tone::Good.badge("delivered"), None),
            DeliveryState::Failed => (Tone::Bad.badge("failed"), None),
        };
        let is_test = delivery.kind == NoticeKind::Test;
        let attempt = |attempt: Attempt| AttemptRow {
            when: RelativeTime::at(attempt.at.0),
            took_ms: attempt.took_ms,
            message: attempt.message,
        };
        Self {
            badge,
            kind: delivery.kind.as_str(),
            incident: (!is_test).then_some(delivery.incident_id),
            created: RelativeTime::at(delivery.created_at.0),
            due,
            attempts: attempts.into_iter().map(attempt).collect(),
        }
    }
}
