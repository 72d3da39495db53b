//! `/sign-in/oidc`: sends the browser to the provider, and receives it back.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::login::{LOGIN_TTL_S, Login};
use super::provider::Provider;
use super::{CALLBACK_PATH, OidcError, Refusal, SignIn, User};
use crate::access::audit::Actor;
use crate::access::authenticator::{COOKIE, cookie_values};
use crate::access::sign_in::{ReturnTo, cookie, local_path};
use crate::server::middleware::Sender;
use crate::{Access, Problem, Query, Routes, Web};

/// The cookie of a sign-in that has started.
const LOGIN_COOKIE: &str = "hob_sign_in";

/// What the provider sends back.
#[derive(Deserialize)]
struct Callback {
    #[serde(default)]
    code: String,
    #[serde(default)]
    state: String,
    /// Sent instead of a code, such as `access_denied`.
    #[serde(default)]
    error: String,
    /// The issuer (RFC 9207). Not all providers send it.
    iss: Option<String>,
}

pub(in crate::access) fn routes() -> Routes<Web> {
    Routes::new().page(Access::Public, "/sign-in/oidc", start).page(Access::Public, CALLBACK_PATH, callback)
}

async fn start(
    State(web): State<Web>,
    sender: Sender,
    Query(query): Query<ReturnTo>,
) -> Result<Response, Problem> {
    let provider = web.oidc().provider()?.ok_or_else(not_configured)?;
    let login = Login::begin(local_path(&query.to));
    let url = provider.authorization_url(&login).await?;
    let cookie = cookie(sender, LOGIN_COOKIE, &login.to_cookie(), LOGIN_TTL_S.unsigned_abs())?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(url.as_str())).into_response())
}

async fn callback(
    State(web): State<Web>,
    sender: Sender,
    Query(query): Query<Callback>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let provider = web.oidc().provider()?.ok_or_else(not_configured)?;
    let is_of = |login: &Login| login.has_state(&query.state, &provider.config);
    let login = cookie_values(&headers, LOGIN_COOKIE).filter_map(Login::from_cookie).find(is_of);
    let Some(login) = login else {
        return Err(Problem::bad_request(
            "This sign-in has expired, or it was started in another window or under another address. Sign in again.",
        ));
    };
    // Whether it succeeds or not, the login cannot be used again.
    let forget = AppendHeaders([(header::SET_COOKIE, cookie(sender, LOGIN_COOKIE, "", 0)?)]);
    Ok((forget, finish(&web, &provider, sender, &query, &login).await).into_response())
}

/// Finishes a login whose state has been checked.
async fn finish(
    web: &Web,
    provider: &Provider,
    sender: Sender,
    query: &Callback,
    login: &Login,
) -> Result<Response, Problem> {
    let config = &provider.config;
    if query.iss.as_deref().is_some_and(|issuer| issuer != config.issuer.as_str()) {
        return Err(Problem::bad_request("The response is not from the configured identity provider."));
    }
    if query.code.is_empty() {
        tracing::warn!(error = query.error, "sign-in refused by the identity provider");
        return Err(Problem::forbidden("The identity provider has refused the sign-in."));
    }
    match web.oidc().finish(provider, &query.code, login).await? {
        SignIn::Accepted(user) => {
            let lasts = web.config().session_ttl.get();
            let session = web.authenticator().create_user_session(&user, lasts).await?;
            let cookie = cookie(sender, COOKIE, &session, lasts.as_secs())?;
            Ok(([(header::SET_COOKIE, cookie)], Redirect::to(local_path(login.to()))).into_response())
        }
        SignIn::Refused(refusal) => {
            record(web, sender, &query.code, &refusal).await?;
            Err(refusal.into())
        }
    }
}

/// Records a refusal. The number of entries is limited like that of attempts with a wrong token, because a client can
/// cause any number of refusals.
async fn record(web: &Web, sender: Sender, code: &str, refusal: &Refusal) -> Result<(), Problem> {
    let client = sender.address;
    if let Some(wait) = web.auth_throttle().blocked_for(client) {
        return Err(Problem::throttled(wait));
    }
    web.auth_throttle().record_failure(client, code.as_bytes());
    let (who, reason) = match refusal {
        Refusal::NoRole(user) => (Actor::from(user), "none of the user's groups has a role".to_owned()),
        Refusal::BadCode => {
            (Actor::from("anonymous"), "the provider did not accept the authorization code".to_owned())
        }
        Refusal::BadToken(error) => {
            tracing::warn!(%error, "ID token rejected");
            (Actor::from("anonymous"), format!("ID token: {error}"))
        }
    };
    web.audit().record(who, "session.refuse", &format!("{client}: {reason}")).await?;
    Ok(())
}

fn not_configured() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "Sign-in with OpenID Connect is not configured.")
}

impl<'a> From<&'a User> for Actor<'a> {
    fn from(user: &'a User) -> Self {
        Self { name: &user.name, subject: Some(&user.subject) }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::BadCode => Self::forbidden("The sign-in could not be completed. Sign in again."),
            Refusal::BadToken(_) => Self::forbidden(
                "The identity provider's response was not accepted. See the server log for details.",
            ),
            Refusal::NoRole(user) => Self::forbidden(format!(
                "You have signed in as {}, but none of your groups has access to Hob. Ask an administrator to add one \
                 to [sign_in.oidc] roles.",
                user.name
            )),
        }
    }
}

/// The cause is logged but not shown, because the page is public.
impl From<OidcError> for Problem {
    fn from(error: OidcError) -> Self {
        tracing::warn!(%error, "identity provider unavailable");
        match error {
            OidcError::TooMany => Self::unavailable("Too many sign-ins at the same time. Try again."),
            _ => Self::new(
                StatusCode::BAD_GATEWAY,
                "The identity provider is unavailable. Try again later, or sign in with a token.",
            ),
        }
    }
}
