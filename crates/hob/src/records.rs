//! `hob records`, and the records that `hob serve` opens.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use hob_records::{Address, Records};

use crate::cli::{RecordsCommand, RecordsOptions};
use crate::exit::Exit;

const DEFAULT: &str = "hob-data/hob.db";

pub(crate) fn run(command: &RecordsCommand) -> Result<Exit> {
    let runtime = tokio::runtime::Runtime::new().context("could not start the runtime")?;
    runtime.block_on(async {
        match command {
            RecordsCommand::Backup { records, to } => backup(records, to).await,
            RecordsCommand::Copy { records, to } => copy(records, to).await,
        }
    })?;
    Ok(Exit::Clean)
}

/// Opens the records that are asked for: in `folder` where nothing is, and there is one.
pub(crate) async fn open(options: &RecordsOptions, folder: Option<&Path>) -> Result<Records> {
    let address = match (&options.address, folder) {
        (Some(address), _) => address.parse().context("--records")?,
        (None, Some(folder)) => Address::sqlite(folder.join("hob.db")),
        (None, None) => {
            let path = PathBuf::from(DEFAULT);
            let folder = path.parent().unwrap_or(Path::new("."));
            std::fs::create_dir_all(folder)
                .with_context(|| format!("could not make {}", folder.display()))?;
            Address::sqlite(path)
        }
    };
    Records::open(&address, &[]).await.with_context(|| format!("could not open the records {address}"))
}

async fn backup(options: &RecordsOptions, to: &Path) -> Result<()> {
    let records = existing(options).await?;
    records.backup(to).await.with_context(|| format!("could not back up to {}", to.display()))?;
    say(&format!("{} holds all records of {}", to.display(), records.address()));
    Ok(())
}

async fn copy(options: &RecordsOptions, to: &str) -> Result<()> {
    let target: Address = to.parse().context("--to")?;
    let records = existing(options).await?;
    let copied = records.copy(&target).await.with_context(|| format!("could not copy to {target}"))?;
    say(&format!("copied {} rows of {} tables to {target}", copied.rows, copied.tables));
    Ok(())
}

/// Records that are already there: looking after them must not make new ones by mistake.
async fn existing(options: &RecordsOptions) -> Result<Records> {
    let path = options.address.as_deref().unwrap_or(DEFAULT);
    let path = path.strip_prefix("sqlite:").unwrap_or(path);
    if !path.contains("://") {
        std::fs::metadata(path).with_context(|| format!("there are no records at {path}"))?;
    }
    open(options, None).await
}

#[expect(clippy::print_stdout, reason = "the answer of a command")]
fn say(line: &str) {
    println!("{line}");
}
