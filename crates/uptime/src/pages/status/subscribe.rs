//! Subscriptions to a status page by e-mail: asked for on the page, confirmed and ended with links in e-mail.
//!
//! Opening a link changes nothing, because programs that scan e-mail open links: the page behind it has a button. To
//! unsubscribe, mail programs send the request of the button themselves (RFC 8058).

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use hob_web::{BaseUrl, ClientAddress, Form, Problem, Query};
use serde::Deserialize;

use super::public::current;
use super::reader::Reader;
use super::view::Head;
use super::{HTML, PRIVATE, add_page_headers};
use crate::database::subscribers;
use crate::status::attempts::Attempt;
use crate::status::language::Words;
use crate::status::subscriber::{self, NewSubscriber, SubscribeOutcome};
use crate::uptime::Uptime;

#[derive(Template)]
#[template(path = "uptime/status_subscription.html")]
struct SubscriptionPage<'a> {
    head: Head,
    title: &'static str,
    /// The button, or the outcome.
    step: Step,
    words: &'a Words,
}

enum Step {
    Ask { action: String, button: &'static str },
    Done(&'static str),
}

#[derive(Debug, Deserialize)]
pub(super) struct EmailForm {
    #[serde(default)]
    email: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct TokenQuery {
    #[serde(default)]
    token: String,
}

pub(super) async fn subscribe(
    State(uptime): State<Uptime>,
    reader: Reader,
    ClientAddress(client): ClientAddress,
    base: BaseUrl,
    Form(form): Form<EmailForm>,
) -> Result<Response, Problem> {
    let status = current(&uptime, &reader.slug).await?;
    if !reader.may_read(&status.page) || uptime.config().smtp.is_none() {
        return Err(Problem::not_found("status page"));
    }
    let page = status.page.path();
    let Some(email) = subscriber::email(&form.email) else {
        return Ok(Redirect::to(&format!("{page}?notice=email#subscribe")).into_response());
    };
    let (attempts, attempt) = (&uptime.inner.status.attempts, Attempt::Subscription(&email));
    if let Some(wait) = attempts.blocked_for(&uptime, client, attempt).await {
        return Err(Problem::too_many("Too many subscriptions from this address. Try again later.", wait));
    }
    attempts.record(&uptime, client, attempt).await;
    let new = NewSubscriber { email: &email, language: reader.language, base_url: &base.join("") };
    match subscriber::subscribe(uptime.database(), &status.page, &new).await? {
        SubscribeOutcome::Asked | SubscribeOutcome::Known => {
            Ok(Redirect::to(&format!("{page}?notice=subscribed")).into_response())
        }
        SubscribeOutcome::LimitReached => {
            Err(Problem::conflict("This page has reached its limit of subscribers. Use the feed instead."))
        }
    }
}

pub(super) async fn confirm_page(
    State(uptime): State<Uptime>,
    reader: Reader,
    Query(query): Query<TokenQuery>,
) -> Result<Response, Problem> {
    let words = reader.language.words();
    let action = action(&reader, "confirm", &query.token);
    show(&uptime, &reader, words.confirm_title, Step::Ask { action, button: words.confirm }).await
}

pub(super) async fn confirm(
    State(uptime): State<Uptime>,
    reader: Reader,
    Query(query): Query<TokenQuery>,
) -> Result<Response, Problem> {
    let words = reader.language.words();
    let confirmed = subscriber::confirm(uptime.database(), &reader.slug, &query.token).await?;
    let outcome = if confirmed { words.confirmed } else { words.not_confirmed };
    show(&uptime, &reader, words.confirm_title, Step::Done(outcome)).await
}

pub(super) async fn unsubscribe_page(
    State(uptime): State<Uptime>,
    reader: Reader,
    Query(query): Query<TokenQuery>,
) -> Result<Response, Problem> {
    let words = reader.language.words();
    let action = action(&reader, "unsubscribe", &query.token);
    show(&uptime, &reader, words.unsubscribe_title, Step::Ask { action, button: words.unsubscribe }).await
}

/// Idempotent: an unknown token has no subscription, which is what the reader wants.
pub(super) async fn unsubscribe(
    State(uptime): State<Uptime>,
    reader: Reader,
    Query(query): Query<TokenQuery>,
) -> Result<Response, Problem> {
    subscribers::delete(uptime.database(), &reader.slug, &query.token).await?;
    let words = reader.language.words();
    show(&uptime, &reader, words.unsubscribe_title, Step::Done(words.unsubscribed)).await
}

fn action(reader: &Reader, name: &str, token: &str) -> String {
    let query: String = url::form_urlencoded::byte_serialize(token.as_bytes()).collect();
    format!("/status/{}/{name}?token={query}", reader.slug)
}

/// These pages show nothing but the title, so they need no password.
async fn show(
    uptime: &Uptime,
    reader: &Reader,
    title: &'static str,
    step: Step,
) -> Result<Response, Problem> {
    let status = current(uptime, &reader.slug).await?;
    let page = SubscriptionPage {
        head: Head::new(&status.page, reader),
        title,
        step,
        words: reader.language.words(),
    };
    let mut response = page.render().map_err(Problem::internal)?.into_response();
    add_page_headers(response.headers_mut(), &status.page, HTML, PRIVATE);
    Ok(response)
}
