//! `hob records`, and the records that `hob serve` opens.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use hob_house::config::SecretUrl;
use hob_records::{Address, Migrations, Records};

use crate::cli::{RecordsCommand, RecordsOptions};
use crate::config::{self, RecordsConfig};
use crate::exit::Exit;
use crate::services;

pub(crate) fn run(command: &RecordsCommand, file: Option<&Path>) -> Result<Exit> {
    let config = config::load(file)?.config.records;
    let runtime = tokio::runtime::Runtime::new().context("could not start the runtime")?;
    runtime.block_on(async {
        match command {
            RecordsCommand::Backup { records, to } => backup(&records.over(config), to).await,
            RecordsCommand::Copy { records, to } => copy(&records.over(config), to).await,
        }
    })?;
    Ok(Exit::Clean)
}

impl RecordsOptions {
    /// The configuration with the flags on top.
    pub(crate) fn over(&self, config: RecordsConfig) -> RecordsConfig {
        match &self.address {
            Some(address) => RecordsConfig { url: SecretUrl::from(address.clone()) },
            None => config,
        }
    }
}

/// Opens the records, and makes them if they are not there.
pub(crate) async fn open(config: &RecordsConfig) -> Result<Records> {
    let address: Address = config.url.reveal().parse().context("the address of the records")?;
    if let Some(folder) = file(config).as_deref().and_then(Path::parent) {
        std::fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
    }
    let sets: Vec<Migrations> = [hob_web::MIGRATIONS].into_iter().chain(services::migrations()).collect();
    Records::open(&address, &sets).await.with_context(|| format!("could not open the records {address}"))
}

/// Records that are already there: looking after them must not make new ones by mistake.
pub(crate) async fn open_existing(config: &RecordsConfig) -> Result<Records> {
    if let Some(path) = file(config) {
        std::fs::metadata(&path).with_context(|| format!("there are no records at {}", path.display()))?;
    }
    open(config).await
}

/// The file that the records are in, unless they are in a server.
fn file(config: &RecordsConfig) -> Option<PathBuf> {
    let url = config.url.reveal();
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    (!path.contains("://")).then(|| path.into())
}

async fn backup(config: &RecordsConfig, to: &Path) -> Result<()> {
    let records = open_existing(config).await?;
    records.backup(to).await.with_context(|| format!("could not back up to {}", to.display()))?;
    say(&format!("{} holds all records of {}", to.display(), records.address()));
    Ok(())
}

async fn copy(config: &RecordsConfig, to: &str) -> Result<()> {
    let target: Address = to.parse().context("--to")?;
    let records = open_existing(config).await?;
    let copied = records.copy(&target).await.with_context(|| format!("could not copy to {target}"))?;
    say(&format!("copied {} rows of {} tables to {target}", copied.rows, copied.tables));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the answer of a command")]
fn say(line: &str) {
    println!("{line}");
}
