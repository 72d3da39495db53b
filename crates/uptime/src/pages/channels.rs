//! Channels and their deliveries.

mod form;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use hob_web::components::{Badge, Empty, Field, Pager, RelativeTime, Tone};
use hob_web::{AuditDetail, Audited, Console, Form, Page, Paging, Path, Problem, Query, Routes};

use self::form::ChannelForm;

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
        .action(WRITE, Audited::As("uptime.channel.test"), "/uptime/channels/{id}/test", test)
        .action(WRITE, Audited::As("uptime.channel.remove"), "/uptime/channels/{id}/delete", remove)
}

#[derive(Template)]
#[template(path = "uptime/channels.html")]
struct ChannelsPage {
    here: &'static str,
    channels: Vec<ChannelRow>,
    empty: Empty,
    kind: ChannelKind,
    fields: Vec<Field>,
    /// The form has entered data that is not saved.
    is_draft: bool,
    may_write: bool,
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
    let body = ChannelsPage::load(&alerts, &console, &ChannelForm::blank(), &[]).await?;
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
    let (status, errors) = match form.show.take() {
        Some(kind) => {
            form.kind = kind;
            (StatusCode::OK, Vec::new())
        }
        None => match channel::add(&alerts.context, &form.spec()).await? {
            SaveOutcome::Invalid(errors) => (StatusCode::UNPROCESSABLE_ENTITY, errors),
            SaveOutcome::NameTaken => {
                (StatusCode::CONFLICT, vec![FieldError::new("name", "another channel has this name")])
            }
            done => {
                let added = view(done)?;
                let to = Redirect::to(&format!("/uptime/channels/{}", added.id));
                return Ok((AuditDetail::Of(added.id.to_string()), to).into_response());
            }
        },
    };
    let mut body = ChannelsPage::load(&alerts, &console, &form, &errors).await?;
    body.is_draft = true;
    Ok((status, console.page("Channels", &body)?).into_response())
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
    async fn load(
        alerts: &Alerts,
        console: &Console,
        form: &ChannelForm,
        errors: &[FieldError],
    ) -> Result<Self, Problem> {
        let channels = channels::all(alerts.database()).await?;
        Ok(Self {
            here: "channels",
            channels: channels.into_iter().map(ChannelRow::new).collect(),
            empty: Empty::new(
                "No channels yet",
                "Add one, and select it in the monitors that should alert it.",
            ),
            kind: form.kind,
            fields: form.fields(errors),
            is_draft: false,
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
