//! `hob uptime apply`: makes the monitors match a file.
#![expect(clippy::print_stdout, reason = "output of a command")]

use std::path::Path;

use anyhow::{Context, Result};
use hob_service::Live;
use hob_service::config::Secrets;
use hob_uptime::database::{channels, monitors};
use hob_uptime::monitor::apply::{Changes, Existing, Plan, Unlisted};
use serde_json::json;

use crate::cli::ApplyArgs;
use crate::config;
use crate::database;
use crate::exit::Exit;
use crate::remote::{self, Remote};

pub(crate) fn run(args: &ApplyArgs, file: Option<&Path>) -> Result<Exit> {
    let yaml = std::fs::read_to_string(&args.file);
    let yaml = yaml.with_context(|| format!("could not read {}", args.file.display()))?;
    match Remote::chosen(&args.server)? {
        Some(server) => remote::wait(apply_on_server(&server, &yaml, args)),
        None => apply_to_database(&yaml, args, file),
    }
}

async fn apply_on_server(server: &Remote, yaml: &str, args: &ApplyArgs) -> Result<Exit> {
    let request = json!({ "source": yaml, "prune": args.prune, "dry_run": args.dry_run });
    let changes: Result<Changes> = server.post(&["uptime", "apply"], &request).await;
    println!("{}", changes.with_context(|| args.file.display().to_string())?);
    Ok(Exit::Clean)
}

fn apply_to_database(yaml: &str, args: &ApplyArgs, file: Option<&Path>) -> Result<Exit> {
    let config = config::load(file)?.config;
    let unlisted = if args.prune { Unlisted::Remove } else { Unlisted::Keep };
    let runtime = tokio::runtime::Runtime::new().context("could not start the runtime")?;
    runtime.block_on(async {
        let database = database::open_existing(&config.database).await?;
        let (monitors, channels) = (monitors::all(&database).await?, channels::all(&database).await?);
        let secrets = Secrets::new(Live::fixed(config.secrets));
        let existing = Existing { monitors: &monitors, channels: &channels, secrets: &secrets };
        let plan = Plan::new(yaml, existing, unlisted).with_context(|| args.file.display().to_string())?;
        println!("{}", plan.changes());
        if !args.dry_run {
            plan.apply(&database).await?;
        }
        database.close().await;
        Ok(Exit::Clean)
    })
}
