//! `hob token`: creates, lists and revokes API tokens, in the database or on a server.
#![expect(clippy::print_stdout, reason = "the answer of a command")]

use std::path::Path;

use anyhow::{Context, Result, bail};
use hob_database::{Database, PageRequest, UnixMs};
use hob_web::{NewToken, Scopes, Time, Token, TokenCreation, Tokens};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::cli::{NewTokenArgs, TokenCommand};
use crate::config;
use crate::database;
use crate::exit::Exit;
use crate::remote::{self, Remote};

/// The actor in the audit log.
const ACTOR: &str = "hob token";

pub(crate) fn run(command: &TokenCommand, file: Option<&Path>) -> Result<Exit> {
    let server = match command {
        TokenCommand::Create(new) => &new.server,
        TokenCommand::List { server } | TokenCommand::Revoke { server, .. } => server,
    };
    match Remote::chosen(server)? {
        Some(server) => remote::wait(run_on_server(&server, command))?,
        None => {
            let config = config::load(file)?.config;
            remote::wait(async {
                let database = database::open_existing(&config.database).await?;
                let result = run_on_database(&database, command).await;
                database.close().await;
                result
            })?;
        }
    }
    Ok(Exit::Clean)
}

async fn run_on_database(database: &Database, command: &TokenCommand) -> Result<()> {
    let tokens = Tokens::new(database);
    match command {
        TokenCommand::Create(new) => create(&tokens, new).await,
        TokenCommand::List { .. } => list(&tokens).await,
        TokenCommand::Revoke { id, .. } => print_revoked(id, tokens.revoke(&id.clone().into(), ACTOR).await?),
    }
}

async fn run_on_server(server: &Remote, command: &TokenCommand) -> Result<()> {
    match command {
        TokenCommand::Create(new) => {
            let scopes: Vec<String> = new.scope.iter().map(ToString::to_string).collect();
            let seconds = new.expires.map(|period| period.get().as_secs());
            let request = json!({ "name": new.name, "scopes": scopes, "expires_in_seconds": seconds });
            let created: CreatedToken = server.post(&["tokens"], &request).await?;
            print_created(&created.secret, &created.token);
        }
        TokenCommand::List { .. } => {
            let tokens: Vec<TokenItem> = server.list(server.url(&["tokens"])).await?;
            print_head();
            tokens.iter().for_each(TokenItem::print);
        }
        TokenCommand::Revoke { id, .. } => print_revoked(id, server.delete(&["tokens", id]).await?)?,
    }
    Ok(())
}

async fn create(tokens: &Tokens, args: &NewTokenArgs) -> Result<()> {
    let scopes = Scopes::new(args.scope.clone()).context("at least one scope is required")?;
    let expires_at = args.expires.map(|period| UnixMs::now().plus(period.get()));
    let new = NewToken { name: args.name.clone(), scopes, expires_at };
    match tokens.create(&new, ACTOR).await? {
        TokenCreation::Created { token, text } => {
            print_created(&text, &token.into());
            Ok(())
        }
        TokenCreation::TooMany => {
            bail!("the limit of {} tokens is reached; revoke tokens that are no longer used", Tokens::MAX)
        }
    }
}

async fn list(tokens: &Tokens) -> Result<()> {
    let mut request = PageRequest::first(200);
    print_head();
    loop {
        let page = tokens.page(&request).await?;
        page.rows.into_iter().for_each(|token| TokenItem::from(token).print());
        match page.next {
            Some(next) => request = PageRequest::first(200).after(next),
            None => return Ok(()),
        }
    }
}

/// A token as the API returns it.
#[derive(Deserialize)]
struct TokenItem {
    id: String,
    name: String,
    scopes: Vec<String>,
    expires_at: Option<Time>,
    used_at: Option<Time>,
    revoked_at: Option<Time>,
}

#[derive(Deserialize)]
struct CreatedToken {
    secret: String,
    token: TokenItem,
}

impl From<Token> for TokenItem {
    fn from(token: Token) -> TokenItem {
        TokenItem {
            id: token.id.as_str().to_owned(),
            name: token.name,
            scopes: token.scopes.as_slice().iter().map(ToString::to_string).collect(),
            expires_at: token.expires_at.map(Time),
            used_at: token.used_at.map(Time),
            revoked_at: token.revoked_at.map(Time),
        }
    }
}

impl TokenItem {
    fn print(&self) {
        let (id, name, scopes) = (&self.id, &self.name, self.scopes.join(" "));
        let used = self.used_at.map_or("never".to_owned(), date);
        println!("{id:22}  {name:20}  {scopes:32}  {used:12}  {}", self.lifetime());
    }

    /// The validity of the token.
    fn lifetime(&self) -> String {
        match (self.revoked_at, self.expires_at) {
            (Some(at), _) => format!("revoked {}", date(at)),
            (None, Some(at)) if at.0 <= UnixMs::now() => format!("expired {}", date(at)),
            (None, Some(at)) => format!("valid until {}", date(at)),
            (None, None) => "does not expire".to_owned(),
        }
    }
}

fn print_head() {
    println!("{:22}  {:20}  {:32}  {:12}  state", "id", "name", "scopes", "last used");
}

fn print_created(secret: &str, token: &TokenItem) {
    println!("{secret}");
    println!("The token is not shown again. Id: {}, {}.", token.id, token.lifetime());
}

fn print_revoked(id: &str, revoked: bool) -> Result<()> {
    if !revoked {
        bail!("there is no token {id}, or it is already revoked")
    }
    println!("revoked {id}");
    Ok(())
}

fn date(time: Time) -> String {
    Timestamp::from_millisecond(time.0.0)
        .map_or_else(|_| "?".to_owned(), |at| at.strftime("%Y-%m-%d").to_string())
}
