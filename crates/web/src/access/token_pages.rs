//! `/access`: the pages for tokens and the audit log.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use hob_database::UnixMs;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::api::{AuditFilter, NewTokenRequest};
use super::token::{Token, TokenCreation, TokenId, Tokens};
use super::{Access, Audited, Caller};
use crate::access::audit::{Actor, AuditEntry};
use crate::components::{Badge, CopyButton, Empty, Field, Pager, RelativeTime, Tone};
use crate::{Console, Form, Page, Paging, Path, Problem, Query, Routes, Web};

pub(crate) fn routes() -> Routes<Web> {
    Routes::new()
        .page(Access::admin(), "/access", tokens)
        .action(Access::admin(), Audited::ByHandler, "/access", create)
        .action(Access::admin(), Audited::ByHandler, "/access/{id}/revoke", revoke)
        .page(Access::admin(), "/access/audit", audit)
}

/// The submitted form.
#[derive(Default, Deserialize)]
struct TokenForm {
    #[serde(default)]
    name: String,
    /// Separated by spaces or commas.
    #[serde(default)]
    scopes: String,
    /// Empty if the token does not expire.
    #[serde(default)]
    days: String,
}

#[derive(Template)]
#[template(path = "access.html")]
struct TokensPage {
    fields: [Field; 3],
    /// The name and the secret of a new token, shown once.
    created: Option<(String, String)>,
    refused: Option<String>,
    tokens: Vec<Token>,
    now: UnixMs,
    pager: Pager,
}

impl TokensPage {
    fn state(&self, token: &Token) -> Badge {
        match token {
            token if token.revoked_at.is_some() => Tone::Idle.badge("revoked"),
            token if !token.is_valid(self.now) => Tone::Idle.badge("expired"),
            _ => Tone::Good.badge("active"),
        }
    }

    fn none(&self) -> Empty {
        Empty::new(
            "No tokens yet",
            "Create a token to give a program or a person access with the scopes you choose.",
        )
    }
}

async fn tokens(
    console: Console,
    State(web): State<Web>,
    Query(paging): Query<Paging>,
) -> Result<Page, Problem> {
    let page = page(&web, &paging, &TokenForm::default(), &[]).await?;
    console.page("Access", &page)
}

/// Responds with the page instead of a redirect, because the secret must not be stored for a second request.
async fn create(
    console: Console,
    State(web): State<Web>,
    caller: Caller,
    Form(form): Form<TokenForm>,
) -> Result<Response, Problem> {
    let checked = form.request().and_then(|request| request.check(&web));
    let new = match checked {
        Ok(new) => new,
        Err(problem) => {
            let page = page(&web, &Paging::default(), &form, problem.errors()).await?;
            return Ok((problem.status(), console.page("Access", &page)?).into_response());
        }
    };
    let created = Tokens::new(&web.context().database).create(&new, &caller).await?;
    let mut page = page(&web, &Paging::default(), &TokenForm::default(), &[]).await?;
    let status = match created {
        TokenCreation::Created { token, text } => {
            page.created = Some((token.name, text));
            StatusCode::CREATED
        }
        TokenCreation::TooMany => {
            page.refused = Some(format!(
                "The limit of {} tokens is reached. Revoke tokens that are no longer used.",
                Tokens::MAX
            ));
            StatusCode::CONFLICT
        }
    };
    Ok((status, console.page("Access", &page)?).into_response())
}

async fn revoke(State(web): State<Web>, caller: Caller, Path(id): Path<String>) -> Result<Redirect, Problem> {
    if id.contains('\0') {
        return Err(Problem::not_found("token"));
    }
    // Idempotent: a token that is already revoked is not an error.
    web.authenticator().revoke(&TokenId::from(id), Actor::from(&caller)).await?;
    Ok(Redirect::to("/access"))
}

async fn page(
    web: &Web,
    paging: &Paging,
    form: &TokenForm,
    errors: &[crate::FieldError],
) -> Result<TokensPage, Problem> {
    let page = Tokens::new(&web.context().database).page(&paging.request()?).await?;
    Ok(TokensPage {
        fields: form.fields(errors),
        created: None,
        refused: None,
        tokens: page.rows,
        now: UnixMs::now(),
        pager: pager("/access", paging, page.next.map(|cursor| cursor.to_string())),
    })
}

impl TokenForm {
    fn request(&self) -> Result<NewTokenRequest, Problem> {
        let expires_in_days = match self.days.trim() {
            "" => None,
            days => Some(
                days.parse().map_err(|_| Problem::invalid("expires_in_days", "must be a number of days"))?,
            ),
        };
        let scopes = self.scopes.split([' ', ',']).filter(|scope| !scope.is_empty()).map(str::to_owned);
        Ok(NewTokenRequest {
            name: self.name.clone(),
            scopes: scopes.collect(),
            expires_in_days,
            expires_in_seconds: None,
        })
    }

    fn fields(&self, errors: &[crate::FieldError]) -> [Field; 3] {
        let wrong = |field: &str| {
            errors.iter().find(|error| error.field.starts_with(field)).map(|error| error.message.clone())
        };
        [
            Field::text("name", "Name")
                .hint("The owner or the purpose.")
                .value(&self.name)
                .error(wrong("name"))
                .max_length(100)
                .autocomplete("off")
                .required(),
            Field::text("scopes", "Scopes")
                .hint("Separated by spaces, for example: uptime:read chat:write. *:read reads everything, admin gives full access.")
                .value(&self.scopes)
                .error(wrong("scopes"))
                .autocomplete("off")
                .required(),
            Field::number("days", "Expires after (days)")
                .hint("Leave empty for a token that does not expire.")
                .value(&self.days)
                .error(wrong("expires_in_days"))
                .between(1, 3_650),
        ]
    }
}

/// Cursors need no escaping in a query.
fn pager(href: &str, paging: &Paging, next: Option<String>) -> Pager {
    let separator = if href.contains('?') { '&' } else { '?' };
    Pager {
        first: paging.after.is_some().then(|| href.to_owned()),
        next: next.map(|cursor| format!("{href}{separator}after={cursor}")),
    }
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    entries: Vec<AuditEntry>,
    filter: Field,
    is_filtered: bool,
    pager: Pager,
}

impl AuditPage {
    /// All entries of the actor of an entry.
    fn actor_href(&self, entry: &AuditEntry) -> String {
        audit_href(Some(entry.subject.as_deref().unwrap_or(&entry.who)))
    }

    fn none(&self) -> Empty {
        if self.is_filtered {
            return Empty::new(
                "No entries of this actor",
                "Enter the exact name, e-mail address or subject.",
            );
        }
        Empty::new(
            "The audit log is empty",
            "Sign-ins, tokens and changes by administrators are recorded here.",
        )
    }
}

fn audit_href(actor: Option<&str>) -> String {
    let query = actor.map(|actor| format!("?actor={}", utf8_percent_encode(actor, NON_ALPHANUMERIC)));
    format!("/access/audit{}", query.unwrap_or_default())
}

async fn audit(
    console: Console,
    State(web): State<Web>,
    Query(filter): Query<AuditFilter>,
    Query(paging): Query<Paging>,
) -> Result<Page, Problem> {
    let actor = filter.actor.as_deref().map(str::trim).filter(|actor| !actor.is_empty());
    let page = web.audit().page(actor, &paging.request()?).await?;
    let pager = pager(&audit_href(actor), &paging, page.next.map(|cursor| cursor.to_string()));
    let filter = Field::search("actor", "Actor")
        .hint("Name, e-mail address or subject.")
        .value(actor.unwrap_or_default());
    console.page("Audit log", &AuditPage { entries: page.rows, filter, is_filtered: actor.is_some(), pager })
}
