//! `hob token`: creates, lists and revokes API tokens in the database.
#![expect(clippy::print_stdout, reason = "the answer of a command")]

use std::path::Path;

use anyhow::{Context, Result, bail};
use hob_database::{PageRequest, UnixMs};
use hob_web::{NewToken, Scopes, Token, TokenCreation, Tokens};
use jiff::Timestamp;

use crate::cli::{NewTokenArgs, TokenCommand};
use crate::config;
use crate::database;
use crate::exit::Exit;

/// The actor in the audit log.
const ACTOR: &str = "hob token";

pub(crate) fn run(command: &TokenCommand, file: Option<&Path>) -> Result<Exit> {
    let config = config::load(file)?.config;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let database = database::open_existing(&config.database).await?;
        let tokens = Tokens::new(&database);
        let result = match command {
            TokenCommand::Create(new) => create(&tokens, new).await,
            TokenCommand::List => list(&tokens).await,
            TokenCommand::Revoke { id } => revoke(&tokens, id).await,
        };
        database.close().await;
        result
    })?;
    Ok(Exit::Clean)
}

async fn create(tokens: &Tokens, args: &NewTokenArgs) -> Result<()> {
    let scopes = Scopes::new(args.scope.clone()).context("at least one scope is required")?;
    let expires_at = args.expires.map(|period| UnixMs::now().plus(period.get()));
    let new = NewToken { name: args.name.clone(), scopes, expires_at };
    match tokens.create(&new, ACTOR).await? {
        TokenCreation::Created { token, text } => {
            println!("{text}");
            println!("The token is not shown again. Id: {}, {}.", token.id, lifetime(&token));
            Ok(())
        }
        TokenCreation::TooMany => {
            bail!("the limit of {} tokens is reached; revoke tokens that are no longer used", Tokens::MAX)
        }
    }
}

async fn list(tokens: &Tokens) -> Result<()> {
    let mut request = PageRequest::first(200);
    println!("{:22}  {:20}  {:32}  {:12}  state", "id", "name", "scopes", "last used");
    loop {
        let page = tokens.page(&request).await?;
        for token in &page.rows {
            let scopes = token.scopes.to_string();
            let used = token.used_at.map_or("never".to_owned(), date);
            println!(
                "{:22}  {:20}  {scopes:32}  {used:12}  {}",
                token.id.as_str(),
                token.name,
                lifetime(token)
            );
        }
        match page.next {
            Some(next) => request = PageRequest::first(200).after(next),
            None => return Ok(()),
        }
    }
}

async fn revoke(tokens: &Tokens, id: &str) -> Result<()> {
    if tokens.revoke(&id.to_owned().into(), ACTOR).await? {
        println!("revoked {id}");
        Ok(())
    } else {
        bail!("there is no token {id}, or it is already revoked")
    }
}

/// The validity of a token.
fn lifetime(token: &Token) -> String {
    match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("revoked {}", date(at)),
        (None, Some(at)) if at <= UnixMs::now() => format!("expired {}", date(at)),
        (None, Some(at)) => format!("valid until {}", date(at)),
        (None, None) => "does not expire".to_owned(),
    }
}

fn date(time: UnixMs) -> String {
    Timestamp::from_millisecond(time.0)
        .map_or_else(|_| "?".to_owned(), |at| at.strftime("%Y-%m-%d").to_string())
}
