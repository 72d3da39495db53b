//! `/access`: where an admin gives tokens out, takes them back, and reads who did what.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use hob_database::UnixMs;
use serde::Deserialize;

use super::api::TokenWish;
use super::token::{Creation, Token, TokenId, Tokens};
use super::{Access, Caller};
use crate::access::audit::Deed;
use crate::look::{Badge, Empty, Field, Pager, Tone, When};
use crate::{Console, Form, Page, Paging, Path, Problem, Query, Routes, Web};

pub(crate) fn routes() -> Routes<Web> {
    Routes::new()
        .page(Access::admin(), "/access", tokens)
        .action(Access::admin(), "/access", create)
        .action(Access::admin(), "/access/{id}/revoke", revoke)
        .page(Access::admin(), "/access/audit", audit)
}

/// The form as it was filled in.
#[derive(Default, Deserialize)]
struct Filled {
    #[serde(default)]
    name: String,
    /// Separated by spaces or commas.
    #[serde(default)]
    scopes: String,
    /// Empty is for ever.
    #[serde(default)]
    days: String,
}

#[derive(Template)]
#[template(path = "access.html")]
struct TokensPage {
    fields: [Field; 3],
    /// What a new token says: shown now, and never again.
    made: Option<(String, String)>,
    refused: Option<String>,
    tokens: Vec<Token>,
    now: UnixMs,
    pager: Pager,
}

impl TokensPage {
    fn state(&self, token: &Token) -> Badge {
        match token {
            token if token.revoked_at.is_some() => Tone::Idle.badge("revoked"),
            token if !token.is_good(self.now) => Tone::Idle.badge("expired"),
            _ => Tone::Good.badge("good"),
        }
    }

    fn none(&self) -> Empty {
        Empty::new(
            "No tokens yet",
            "A token lets a program, or a person, in with the rights that you choose.",
        )
    }
}

async fn tokens(
    console: Console,
    State(web): State<Web>,
    Query(paging): Query<Paging>,
) -> Result<Page, Problem> {
    let page = page(&web, &paging, &Filled::default(), &[]).await?;
    console.page("Access", &page)
}

/// Answers with the page itself, since nothing may keep what the token says until a second request.
async fn create(
    console: Console,
    State(web): State<Web>,
    caller: Caller,
    Form(filled): Form<Filled>,
) -> Result<Response, Problem> {
    let checked = filled.wish().and_then(|wish| wish.check(&web));
    let new = match checked {
        Ok(new) => new,
        Err(problem) => {
            let page = page(&web, &Paging::default(), &filled, problem.errors()).await?;
            return Ok((problem.status(), console.page("Access", &page)?).into_response());
        }
    };
    let created = Tokens::new(&web.context().database).create(&new, caller.name()).await?;
    let mut page = page(&web, &Paging::default(), &Filled::default(), &[]).await?;
    let status = match created {
        Creation::Created { token, text } => {
            page.made = Some((token.name, text));
            StatusCode::CREATED
        }
        Creation::TooMany => {
            page.refused = Some(format!("There are {} tokens. Revoke some.", Tokens::MOST));
            StatusCode::CONFLICT
        }
    };
    Ok((status, console.page("Access", &page)?).into_response())
}

async fn revoke(State(web): State<Web>, caller: Caller, Path(id): Path<String>) -> Result<Redirect, Problem> {
    if id.contains('\0') {
        return Err(Problem::not_found("token"));
    }
    // Twice is once: whoever presses the button wants the token to be useless, and it is.
    web.door().revoke(&TokenId::from(id), caller.name()).await?;
    Ok(Redirect::to("/access"))
}

async fn page(
    web: &Web,
    paging: &Paging,
    filled: &Filled,
    errors: &[crate::FieldError],
) -> Result<TokensPage, Problem> {
    let page = Tokens::new(&web.context().database).page(&paging.request()?).await?;
    Ok(TokensPage {
        fields: filled.fields(errors),
        made: None,
        refused: None,
        tokens: page.rows,
        now: super::now(),
        pager: pager("/access", paging, page.next.map(|cursor| cursor.to_string())),
    })
}

impl Filled {
    fn wish(&self) -> Result<TokenWish, Problem> {
        let expires_in_days = match self.days.trim() {
            "" => None,
            days => Some(days.parse().map_err(|_| Problem::invalid("expires_in_days", "a number of days"))?),
        };
        let scopes = self.scopes.split([' ', ',']).filter(|scope| !scope.is_empty()).map(str::to_owned);
        Ok(TokenWish { name: self.name.clone(), scopes: scopes.collect(), expires_in_days })
    }

    fn fields(&self, errors: &[crate::FieldError]) -> [Field; 3] {
        let wrong = |field: &str| {
            errors.iter().find(|error| error.field.starts_with(field)).map(|error| error.message.clone())
        };
        [
            Field::text("name", "Name")
                .hint("Whose it is, or what for.")
                .value(&self.name)
                .error(wrong("name"))
                .most(100)
                .autocomplete("off")
                .required(),
            Field::text("scopes", "Scopes")
                .hint("Such as uptime:read chat:write, or admin.")
                .value(&self.scopes)
                .error(wrong("scopes"))
                .autocomplete("off")
                .required(),
            Field::number("days", "Expires after days")
                .hint("Never, if empty.")
                .value(&self.days)
                .error(wrong("expires_in_days"))
                .between(1, 3_650),
        ]
    }
}

/// Cursors are of letters that need no escape in a query.
fn pager(path: &str, paging: &Paging, next: Option<String>) -> Pager {
    Pager {
        first: paging.after.is_some().then(|| path.to_owned()),
        next: next.map(|cursor| format!("{path}?after={cursor}")),
    }
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    deeds: Vec<Deed>,
    pager: Pager,
}

async fn audit(
    console: Console,
    State(web): State<Web>,
    Query(paging): Query<Paging>,
) -> Result<Page, Problem> {
    let page = web.audit().page(&paging.request()?).await?;
    let pager = pager("/access/audit", &paging, page.next.map(|cursor| cursor.to_string()));
    console.page("Audit trail", &AuditPage { deeds: page.rows, pager })
}
