//! `/api/v1/caller` for every caller, `/api/v1/tokens` and `/api/v1/audit` for the admin.

use axum::extract::State;
use axum::http::StatusCode;
use hob_database::UnixMs;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::token::{NewToken, Scopes, Token, TokenCreation, TokenId, Tokens};
use super::{Access, Audited, Caller, Scope};
use crate::access::audit::{Actor, AuditEntry};
use crate::{Json, List, Paging, Path, Problem, Query, Routes, Time, Web};

const MAX_NAME_CHARS: usize = 100;
const MAX_DAYS: u32 = 3_650;
const DAY_SECONDS: u64 = 86_400;
const MAX_SECONDS: u64 = MAX_DAYS as u64 * DAY_SECONDS;

/// An API token, without its secret.
#[derive(Serialize, ToSchema)]
#[schema(as = Token)]
struct TokenView {
    id: String,
    name: String,
    /// `admin`, `<service>:read` or `<service>:write`, with `*` as the service for all services.
    scopes: Vec<String>,
    created_at: Time,
    created_by: String,
    expires_at: Option<Time>,
    /// Exact to the minute.
    used_at: Option<Time>,
    revoked_at: Option<Time>,
}

/// The token to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewToken)]
pub(super) struct NewTokenRequest {
    /// The owner or the purpose.
    #[schema(min_length = 1, max_length = 100)]
    pub(super) name: String,
    /// `admin`, `<service>:read` or `<service>:write`, with `*` as the service for all services.
    #[schema(min_items = 1, max_items = 32, value_type = Vec<crate::Text64>)]
    pub(super) scopes: Vec<String>,
    /// The token does not expire if this is missing.
    #[schema(minimum = 1, maximum = 3650)]
    pub(super) expires_in_days: Option<u32>,
    /// The lifetime in seconds, instead of `expires_in_days`.
    #[schema(minimum = 1, maximum = 315_360_000)]
    #[serde(default)]
    pub(super) expires_in_seconds: Option<u64>,
}

/// A new token with its secret, which is not shown again.
#[derive(Serialize, ToSchema)]
struct CreatedToken {
    /// Send it as `Authorization: Bearer …`.
    secret: String,
    token: TokenView,
}

/// Who sends the request.
#[derive(Serialize, ToSchema)]
#[schema(as = Caller)]
struct CallerView {
    /// The name of the user or of the token.
    name: String,
    /// `admin`, `<service>:read` or `<service>:write`, with `*` as the service for all services.
    scopes: Vec<String>,
}

/// An entry of the audit log.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
struct AuditEntryView {
    id: String,
    at: Time,
    /// The name of a user or of a token.
    who: String,
    /// For a user: the issuer and the subject, which stay the same when the name changes.
    subject: Option<String>,
    what: String,
    detail: String,
}

/// The part of the audit log to list.
#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditFilter {
    /// The name or the subject of an actor. Default: all.
    #[param(max_length = 2048)]
    pub(super) actor: Option<String>,
}

pub(crate) fn routes() -> Routes<Web> {
    Routes::new()
        .api(Access::Authenticated, routes!(caller))
        .api(Access::admin(), routes!(list))
        .write(Access::admin(), Audited::ByHandler, routes!(create))
        .write(Access::admin(), Audited::ByHandler, routes!(revoke))
        .api(Access::admin(), routes!(audit))
}

/// Get the caller and its scopes, to check a token.
#[utoipa::path(get, path = "/api/v1/caller", responses((status = 200, body = CallerView)))]
async fn caller(caller: Caller) -> Json<CallerView> {
    let scopes = caller.scopes().iter().map(ToString::to_string).collect();
    Json(CallerView { name: caller.name().to_owned(), scopes })
}

/// List API tokens, newest first.
#[utoipa::path(get, path = "/api/v1/tokens", params(Paging), responses((status = 200, body = List<TokenView>)))]
async fn list(
    State(web): State<Web>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<TokenView>>, Problem> {
    let page = Tokens::new(&web.context().database).page(&paging.request()?).await?;
    Ok(Json(page.map(TokenView::from).into()))
}

/// Create an API token.
#[utoipa::path(post, path = "/api/v1/tokens", request_body = NewTokenRequest, responses((status = 201, body = CreatedToken)))]
async fn create(
    State(web): State<Web>,
    caller: Caller,
    Json(request): Json<NewTokenRequest>,
) -> Result<(StatusCode, Json<CreatedToken>), Problem> {
    let new = request.check(&web)?;
    match Tokens::new(&web.context().database).create(&new, &caller).await? {
        TokenCreation::Created { token, text } => {
            Ok((StatusCode::CREATED, Json(CreatedToken { secret: text, token: token.into() })))
        }
        TokenCreation::TooMany => Err(Problem::conflict(format!(
            "The limit of {} tokens is reached. Revoke tokens that are no longer used.",
            Tokens::MAX
        ))),
    }
}

/// Revoke an API token and end its sessions. This cannot be undone.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", params(("id" = String, Path, max_length = 64)),
    responses((status = 204)))]
async fn revoke(
    State(web): State<Web>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    if id.contains('\0') {
        return Err(Problem::not_found("token"));
    }
    let revoked = web.authenticator().revoke(&TokenId::from(id), Actor::from(&caller)).await?;
    if revoked { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found("token")) }
}

/// List the audit log, newest first.
#[utoipa::path(get, path = "/api/v1/audit", params(AuditFilter, Paging),
    responses((status = 200, body = List<AuditEntryView>)))]
async fn audit(
    State(web): State<Web>,
    Query(filter): Query<AuditFilter>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<AuditEntryView>>, Problem> {
    let page = web.audit().page(filter.actor.as_deref(), &paging.request()?).await?;
    Ok(Json(page.map(AuditEntryView::from).into()))
}

impl NewTokenRequest {
    /// Validates the request.
    pub(super) fn check(self, web: &Web) -> Result<NewToken, Problem> {
        let name = self.name.trim().to_owned();
        if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.contains(|c: char| c.is_control())
        {
            return Err(Problem::invalid("name", format!("must have 1 to {MAX_NAME_CHARS} characters")));
        }
        let mut scopes = Vec::new();
        for (index, text) in self.scopes.iter().take(Scopes::MAX + 1).enumerate() {
            let wrong = |message: String| Problem::invalid(format!("scopes[{index}]"), message);
            let scope: Scope = text.parse().map_err(|error: super::BadScope| wrong(error.to_string()))?;
            if let Some(service) = scope.service()
                && !web.has_service(service)
            {
                return Err(wrong(format!("unknown service {service}")));
            }
            scopes.push(scope);
        }
        let scopes = Scopes::new(scopes)
            .ok_or_else(|| Problem::invalid("scopes", format!("must contain 1 to {} scopes", Scopes::MAX)))?;
        let lifetime = match (self.expires_in_days, self.expires_in_seconds) {
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("expires_in_seconds", "must not be set with expires_in_days"));
            }
            (Some(days), None) => Some(("expires_in_days", u64::from(days) * DAY_SECONDS)),
            (None, Some(seconds)) => Some(("expires_in_seconds", seconds)),
            (None, None) => None,
        };
        let expires_at = match lifetime {
            None => None,
            Some((_, seconds @ 1..=MAX_SECONDS)) => {
                Some(UnixMs::now().plus(std::time::Duration::from_secs(seconds)))
            }
            Some((field, _)) => {
                return Err(Problem::invalid(field, format!("must be between 1 second and {MAX_DAYS} days")));
            }
        };
        Ok(NewToken { name, scopes, expires_at })
    }
}

impl From<Token> for TokenView {
    fn from(token: Token) -> Self {
        Self {
            id: token.id.as_str().to_owned(),
            name: token.name,
            scopes: token.scopes.as_slice().iter().map(ToString::to_string).collect(),
            created_at: token.created_at.into(),
            created_by: token.created_by,
            expires_at: token.expires_at.map(Time),
            used_at: token.used_at.map(Time),
            revoked_at: token.revoked_at.map(Time),
        }
    }
}

impl From<AuditEntry> for AuditEntryView {
    fn from(entry: AuditEntry) -> Self {
        let AuditEntry { id, at, who, subject, what, detail } = entry;
        Self { id, at: at.into(), who, subject, what, detail }
    }
}
