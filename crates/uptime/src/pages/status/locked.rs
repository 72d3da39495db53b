//! The password of a status page.

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use hob_web::components::Field;
use hob_web::{BaseUrl, ClientAddress, Form, Problem};
use serde::Deserialize;

use super::public::current;
use super::reader::{Reader, cookie_name};
use super::view::Head;
use super::{HTML, PRIVATE};
use crate::status::StatusPage;
use crate::status::attempts::Attempt;
use crate::status::password::MAX_PASSWORD_BYTES;
use crate::uptime::Uptime;

/// How long a reader may read the page without entering the password again.
const VISIT_S: u64 = 30 * 86_400;

#[derive(Template)]
#[template(path = "uptime/status_locked.html")]
struct Locked<'a> {
    head: Head,
    action: String,
    field: Field,
    words: &'a crate::status::language::Words,
}

#[derive(Debug, Deserialize)]
pub(super) struct PasswordForm {
    #[serde(default)]
    password: String,
}

/// The form for the password.
pub(super) fn page(page: &StatusPage, reader: &Reader, error: Option<&str>) -> Result<Response, Problem> {
    let words = reader.language.words();
    let field = Field::secret("password", words.password).required().autocomplete("current-password");
    let html = Locked {
        head: Head::new(page, reader),
        action: format!("/status/{}/unlock", page.slug),
        field: field.max_length(MAX_PASSWORD_BYTES).error(error),
        words,
    };
    let html = html.render().map_err(Problem::internal)?;
    let status = if error.is_some() { StatusCode::FORBIDDEN } else { StatusCode::UNAUTHORIZED };
    let mut response = (status, html).into_response();
    super::add_page_headers(response.headers_mut(), page, HTML, PRIVATE);
    Ok(response)
}

/// Checks the password. Wrong ones are limited per client, as wrong tokens are.
pub(super) async fn unlock(
    State(uptime): State<Uptime>,
    reader: Reader,
    ClientAddress(client): ClientAddress,
    base: BaseUrl,
    Form(form): Form<PasswordForm>,
) -> Result<Response, Problem> {
    let status = current(&uptime, &reader.slug).await?;
    let Some(password) = &status.page.password else {
        return Ok(Redirect::to(&status.page.path()).into_response());
    };
    let (attempts, attempt) = (&uptime.inner.status.attempts, Attempt::Password(&form.password));
    if let Some(wait) = attempts.blocked_for(&uptime, client, attempt).await {
        let detail = "Too many wrong passwords from this address. Try again later.";
        return Err(Problem::too_many(detail, wait));
    }
    if form.password.len() > MAX_PASSWORD_BYTES || !password.matches(&form.password).await {
        attempts.record(&uptime, client, attempt).await;
        return page(&status.page, &reader, Some(reader.language.words().wrong_password));
    }
    let value = password.cookie(&status.page.slug, hob_units::unix_time().as_secs() + VISIT_S);
    let secure = if base.is_https() { "; Secure" } else { "" };
    let cookie = format!(
        "{}={value}; Path=/status; HttpOnly; SameSite=Lax; Max-Age={VISIT_S}{secure}",
        cookie_name(&status.page.slug)
    );
    let mut cookie = HeaderValue::from_str(&cookie).map_err(Problem::internal)?;
    cookie.set_sensitive(true);
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&status.page.path())).into_response())
}
