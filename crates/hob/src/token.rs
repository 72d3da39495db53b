//! `hob token`: makes, lists and revokes API tokens, in the database themselves.
#![expect(clippy::print_stdout, reason = "the answer of a command")]

use std::path::Path;

use anyhow::{Context, Result, bail};
use hob_database::{PageRequest, UnixMs};
use hob_web::{Creation, NewToken, Scopes, Token, Tokens};
use jiff::Timestamp;

use crate::cli::{NewTokenArgs, TokenCommand};
use crate::config;
use crate::database;
use crate::exit::Exit;

/// Whom the audit trail names.
const WHO: &str = "hob token";

pub(crate) fn run(command: &TokenCommand, file: Option<&Path>) -> Result<Exit> {
    let config = config::load(file)?.config;
    let runtime = tokio::runtime::Runtime::new().context("could not start the runtime")?;
    runtime.block_on(async {
        let database = database::open_existing(&config.database).await?;
        let tokens = Tokens::new(&database);
        let done = match command {
            TokenCommand::Create(new) => create(&tokens, new).await,
            TokenCommand::List => list(&tokens).await,
            TokenCommand::Revoke { id } => revoke(&tokens, id).await,
        };
        database.close().await;
        done
    })?;
    Ok(Exit::Clean)
}

async fn create(tokens: &Tokens, args: &NewTokenArgs) -> Result<()> {
    let scopes = Scopes::new(args.scope.clone()).context("a token needs a scope")?;
    let expires_at = args.expires.map(|period| now().plus(period.get()));
    let new = NewToken { name: args.name.clone(), scopes, expires_at };
    match tokens.create(&new, WHO).await? {
        Creation::Created { token, text } => {
            println!("{text}");
            println!("This is shown once. Its id is {}; {}.", token.id, life(&token));
            Ok(())
        }
        Creation::TooMany => bail!("there are {} tokens already: revoke some", Tokens::MOST),
    }
}

async fn list(tokens: &Tokens) -> Result<()> {
    let mut request = PageRequest::first(200);
    println!("{:22}  {:20}  {:32}  {:12}  state", "id", "name", "scopes", "last used");
    loop {
        let page = tokens.page(&request).await?;
        for token in &page.rows {
            let scopes = token.scopes.to_string();
            let used = token.used_at.map_or("never".to_owned(), day);
            println!("{:22}  {:20}  {scopes:32}  {used:12}  {}", token.id.as_str(), token.name, life(token));
        }
        match page.next {
            Some(next) => request = PageRequest::first(200).after(next),
            None => return Ok(()),
        }
    }
}

async fn revoke(tokens: &Tokens, id: &str) -> Result<()> {
    if tokens.revoke(&id.to_owned().into(), WHO).await? {
        println!("{id} is revoked");
        Ok(())
    } else {
        bail!("there is no token {id} that could be revoked")
    }
}

/// What there is to say of a token's life.
fn life(token: &Token) -> String {
    match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("revoked {}", day(at)),
        (None, Some(at)) if at <= now() => format!("expired {}", day(at)),
        (None, Some(at)) => format!("good until {}", day(at)),
        (None, None) => "good until revoked".to_owned(),
    }
}

fn day(time: UnixMs) -> String {
    Timestamp::from_millisecond(time.0)
        .map_or_else(|_| "?".to_owned(), |at| at.strftime("%Y-%m-%d").to_string())
}

fn now() -> UnixMs {
    UnixMs(Timestamp::now().as_millisecond())
}
