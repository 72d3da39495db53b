//! The sign-in and sign-out routes of the console.

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::audit::Actor;
use super::authenticator::COOKIE;
use crate::server::middleware::Sender;
use crate::{Access, Audited, Caller, Console, Form, Problem, Query, Routes, Web};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn<'a> {
    to: &'a str,
    /// Why the last attempt failed.
    error: Option<&'a str>,
    /// The text of the button for OpenID Connect.
    provider: Option<String>,
}

impl SignIn<'_> {
    fn provider_href(&self) -> String {
        format!("/sign-in/oidc?to={}", utf8_percent_encode(self.to, NON_ALPHANUMERIC))
    }
}

#[derive(Deserialize)]
pub(super) struct ReturnTo {
    #[serde(default)]
    pub(super) to: String,
}

#[derive(Deserialize)]
struct SignInForm {
    token: String,
    #[serde(default)]
    to: String,
}

pub(crate) fn routes() -> Routes<Web> {
    Routes::new()
        .page(Access::Public, "/sign-in", sign_in_page)
        .action(Access::Public, Audited::ByHandler, "/sign-in", sign_in)
        .action(Access::Public, Audited::ByHandler, "/sign-out", sign_out)
}

async fn sign_in_page(
    console: Console,
    State(web): State<Web>,
    Query(query): Query<ReturnTo>,
) -> Result<Response, Problem> {
    let to = local_path(&query.to);
    if web.authenticator().is_open() {
        return Ok(Redirect::to(to).into_response());
    }
    Ok(console.page("Sign in", &SignIn { to, error: None, provider: web.oidc().label() })?.into_response())
}

async fn sign_in(
    console: Console,
    State(web): State<Web>,
    sender: Sender,
    Form(form): Form<SignInForm>,
) -> Result<Response, Problem> {
    if let Some(wait) = web.auth_throttle().blocked_for(sender.address) {
        return Err(Problem::throttled(wait));
    }
    let to = local_path(&form.to);
    let Some(token_owner) = web.authenticator().token_owner(form.token.trim(), sender.address).await? else {
        web.audit().record("anonymous", "session.refuse", &sender.address.to_string()).await?;
        let error = Some("This token is not valid.");
        let page = console.page("Sign in", &SignIn { to, error, provider: web.oidc().label() })?;
        return Ok((StatusCode::FORBIDDEN, page).into_response());
    };
    let lasts = web.config().session_ttl.get();
    let session = web.authenticator().create_session(&token_owner, lasts).await?;
    let cookie = cookie(sender, COOKIE, &session, lasts.as_secs())?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(to)).into_response())
}

async fn sign_out(
    State(web): State<Web>,
    sender: Sender,
    caller: Option<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let who = caller.as_ref().map_or(Actor::from("anonymous"), Actor::from);
    web.authenticator().end_session(&headers, who).await?;
    Ok(([(header::SET_COOKIE, cookie(sender, COOKIE, "", 0)?)], Redirect::to("/sign-in")).into_response())
}

/// The path to redirect to: always on this server.
pub(super) fn local_path(to: &str) -> &str {
    let ours = to.starts_with('/') && !to.starts_with("//") && !to.starts_with("/\\");
    if ours && !to.contains(|c: char| c.is_control()) { to } else { "/" }
}

pub(super) fn cookie(sender: Sender, name: &str, value: &str, seconds: u64) -> Result<HeaderValue, Problem> {
    let secure = if sender.is_https { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    let mut value = HeaderValue::from_str(&text).map_err(Problem::internal)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_never_redirects_to_another_site() {
        for to in ["/uptime", "/uptime/42?tab=1", "/"] {
            assert_eq!(local_path(to), to);
        }
        for to in ["", "uptime", "//evil.example", "/\\evil.example", "https://evil.example", "/a\nb"] {
            assert_eq!(local_path(to), "/", "{to:?}");
        }
    }
}
