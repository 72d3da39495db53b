//! `hob database`, and opening the database.

use std::path::Path;

use anyhow::{Context, Result, bail};
use hob_database::{Address, Database, Migrations, private_file};
use hob_service::config::SecretUrl;

use crate::cli::{DatabaseCommand, DatabaseOptions};
use crate::config::{self, DatabaseConfig};
use crate::exit::Exit;
use crate::services;

pub(crate) fn run(command: &DatabaseCommand, file: Option<&Path>) -> Result<Exit> {
    let config = config::load(file)?.config.database;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        match command {
            DatabaseCommand::Backup { database, to } => backup(&database.apply_to(config), to).await,
            DatabaseCommand::Restore { database, backup } => {
                restore(&database.apply_to(config), backup).await
            }
            DatabaseCommand::Copy { database, to } => copy(&database.apply_to(config), to).await,
            DatabaseCommand::Migrate { database, dry_run } => {
                migrate(&database.apply_to(config), *dry_run).await
            }
        }
    })?;
    Ok(Exit::Clean)
}

impl DatabaseOptions {
    /// The configuration with the flags applied.
    pub(crate) fn apply_to(&self, config: DatabaseConfig) -> DatabaseConfig {
        match &self.address {
            Some(address) => DatabaseConfig { url: SecretUrl::from(address.clone()), ..config },
            None => config,
        }
    }
}

/// Opens the database, and creates it if it does not exist.
pub(crate) async fn open(config: &DatabaseConfig) -> Result<Database> {
    let address = address(config)?;
    Database::open(&address, &migrations())
        .await
        .with_context(|| format!("cannot open the database {address}"))
}

/// Opens an existing database. Only `hob serve` creates one: another command would create it in the wrong place.
pub(crate) async fn open_existing(config: &DatabaseConfig) -> Result<Database> {
    let address = address(config)?;
    existing(&address, Database::open_existing(&address, &migrations()).await)
}

/// Explains the error of a database that does not exist.
fn existing<T>(address: &Address, opened: Result<T, hob_database::Error>) -> Result<T> {
    match opened {
        Err(hob_database::Error::NoDatabase) => {
            bail!("there is no database at {address}; `hob serve` creates it")
        }
        opened => opened.with_context(|| format!("cannot open the database {address}")),
    }
}

fn address(config: &DatabaseConfig) -> Result<Address> {
    let address = config.url.reveal().parse().context("[database] url")?;
    // Only for the folder that belongs to Hob: another folder, such as a home folder, may be shared on purpose.
    if let Some(folder) = Path::new(DatabaseConfig::default().url.reveal()).parent() {
        private_file::restrict(folder);
    }
    Ok(address)
}

fn migrations() -> Vec<Migrations> {
    [hob_web::MIGRATIONS].into_iter().chain(services::migrations()).collect()
}

async fn backup(config: &DatabaseConfig, to: &Path) -> Result<()> {
    let database = open_existing(config).await?;
    database.backup(to).await.with_context(|| format!("cannot back up to {}", to.display()))?;
    say(&format!("backed up {} to {}", database.address(), to.display()));
    Ok(())
}

async fn restore(config: &DatabaseConfig, backup: &Path) -> Result<()> {
    let address = address(config)?;
    let restored = Database::restore(backup, &address, &migrations()).await;
    restored.with_context(|| format!("cannot restore {} to {address}", backup.display()))?;
    say(&format!("restored {} to {address}", backup.display()));
    say(
        "It has a new id: nodes that use Redis start only after Hob's keys there are deleted, see docs/backups.md.",
    );
    Ok(())
}

async fn migrate(config: &DatabaseConfig, dry_run: bool) -> Result<()> {
    let address = address(config)?;
    let pending = existing(&address, Database::pending_migrations(&address, &migrations()).await)?;
    if !dry_run {
        open_existing(config).await?.close().await;
    }
    for migration in &pending {
        let state = if dry_run { "pending" } else { "applied" };
        say(&format!("{state}: {} {}", migration.service, migration.name));
    }
    if pending.is_empty() {
        say(&format!("{address} is up to date"));
    }
    Ok(())
}

async fn copy(config: &DatabaseConfig, to: &str) -> Result<()> {
    let target: Address = to.parse().context("--to")?;
    let database = open_existing(config).await?;
    let copied = database.copy(&target).await.with_context(|| format!("cannot copy to {target}"))?;
    say(&format!("copied {} rows of {} tables to {target}", copied.rows, copied.tables));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the answer of a command")]
fn say(line: &str) {
    println!("{line}");
}
