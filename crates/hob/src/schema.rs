//! `hob schema`: the schema language as a tool for any Redis.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hob_schema::lint::{self, Severity};
use hob_schema::{Catalog, Layout, Schema};
use hob_schema_audit::{
    AuditOptions, Baseline, CleanAction, CleanOptions, InferOptions, Pace, Progress, connect,
};
use hob_store::Address;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{AuditArgs, CleanArgs, Format, InferArgs, SchemaCommand};
use crate::exit::Exit;
use crate::services;

/// The schema of the program itself.
const HOUSE: (&str, &str) = ("schemas/hob.toml", include_str!("../../../schemas/hob.toml"));

/// The schemas of the services.
pub(crate) const SERVICES: &[(&str, &str)] = &{
    let mut schemas = [("", ""); services::ALL.len()];
    let mut at = 0;
    while at < schemas.len() {
        schemas[at] = services::ALL[at].schema;
        at += 1;
    }
    schemas
};

pub(crate) fn run(command: &SchemaCommand) -> Result<Exit> {
    match command {
        SchemaCommand::Lint { files, format } => lint_files(files, *format),
        SchemaCommand::Explain { id } => explain(id.as_deref()),
        SchemaCommand::Docs { files, out } => docs(files, out.as_deref()),
        SchemaCommand::Json => Ok(print(&hob_schema::json_schema())),
        SchemaCommand::Acl { files, user, tagged } => {
            Ok(print(&hob_schema::acl(&catalog(files, *tagged)?, user)))
        }
        SchemaCommand::Infer(arguments) => wait(infer(arguments)),
        SchemaCommand::Audit(arguments) => wait(audit(arguments)),
        SchemaCommand::Clean(arguments) => wait(clean(arguments)),
    }
}

fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Runtime::new().context("cannot start the runtime")?.block_on(work)
}

/// Prints the result of a command to stdout, so that it can be piped.
#[expect(clippy::print_stdout, reason = "the result of a command")]
fn print(text: &str) -> Exit {
    print!("{text}{}", if text.ends_with('\n') { "" } else { "\n" });
    Exit::Clean
}

/// Hob's own schemas, the default if no file is given.
pub(crate) fn own() -> Result<Vec<Schema>> {
    std::iter::once(&HOUSE)
        .chain(SERVICES)
        .map(|(name, text)| Schema::parse(name, text).map_err(anyhow::Error::from))
        .collect()
}

/// The given files, or Hob's own.
fn schemas(files: &[PathBuf]) -> Result<Vec<Schema>> {
    if files.is_empty() {
        return own();
    }
    files
        .iter()
        .map(|path| {
            let name = path.display().to_string();
            let text = fs::read_to_string(path).with_context(|| name.clone())?;
            Schema::parse(&name, &text).map_err(anyhow::Error::from)
        })
        .collect()
}

fn lint_files(files: &[PathBuf], format: Format) -> Result<Exit> {
    let findings: Vec<_> = schemas(files)?.iter().flat_map(lint::lint).collect();
    print(&match format {
        Format::Text => lint::report_text(&findings),
        Format::Json => lint::report_json(&findings),
    });
    Ok(Exit::by(findings.iter().map(|finding| finding.severity).max()))
}

fn explain(id: Option<&str>) -> Result<Exit> {
    let Some(id) = id else {
        let list: String =
            lint::RULES.iter().map(|rule| format!("{:<32} {}\n", rule.id, rule.title)).collect();
        return Ok(print(&list));
    };
    let rule = lint::explain(id)
        .with_context(|| format!("unknown rule {id}; `hob schema explain` lists all rules"))?;
    let severity = rule.severity.as_str();
    Ok(print(&format!("{} ({severity}): {}\n\n{}\n", rule.id, rule.title, rule.explanation)))
}

fn docs(files: &[PathBuf], out: Option<&Path>) -> Result<Exit> {
    for schema in schemas(files)? {
        let page = hob_schema::docs::markdown(&schema);
        match out {
            None => drop(print(&page)),
            Some(folder) => {
                let path = folder.join(format!("{}.md", schema.name));
                fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
    }
    Ok(Exit::Clean)
}

async fn infer(arguments: &InferArgs) -> Result<Exit> {
    let options = InferOptions {
        name: arguments.name.clone(),
        max_keys: arguments.keys,
        max_time: Duration::from_secs(arguments.seconds),
    };
    let store = connect(&arguments.url.parse()?).await?;
    Ok(print(&hob_schema_audit::infer(&store, &options).await?))
}

/// The schemas as one catalog. On a Cluster, Hob writes only tagged keys.
fn catalog(files: &[PathBuf], tagged: bool) -> Result<Catalog> {
    let layout = if tagged { Layout::Tagged } else { Layout::Plain };
    let mut schemas = schemas(files)?;
    for schema in &mut schemas {
        schema.apply_env(&|name| std::env::var(name).ok())?;
    }
    Ok(Catalog::new(schemas, layout)?)
}

async fn audit(arguments: &AuditArgs) -> Result<Exit> {
    let address: Address = arguments.url.parse()?;
    let catalog = catalog(&arguments.schema, arguments.tagged || address.is_cluster())?;
    let baseline = arguments.baseline.as_deref().map(read_baseline).transpose()?;
    let options = AuditOptions { pace: pace(arguments.pace) };
    let store = connect(&address).await?;
    let bar = Bar::new();
    let report =
        hob_schema_audit::audit(&store, &catalog, options, &mut |progress| bar.show(progress)).await?;
    bar.clear();
    let report = match baseline {
        Some(baseline) => baseline.only_new(report),
        None => report,
    };
    print(&match arguments.format {
        Format::Text => report.text(),
        Format::Json => report.json(),
    });
    Ok(Exit::by(report.worst()))
}

fn read_baseline(path: &Path) -> Result<Baseline> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Baseline::from_json(&text).with_context(|| path.display().to_string())
}

async fn clean(arguments: &CleanArgs) -> Result<Exit> {
    let address: Address = arguments.url.parse()?;
    let catalog = catalog(&arguments.schema, arguments.tagged || address.is_cluster())?;
    let action = match (arguments.repair_ttl, arguments.idle_hours) {
        (true, None) => CleanAction::RepairTtl,
        (false, Some(hours)) => CleanAction::DeleteIdle(Duration::from_secs(hours * 3600)),
        (false, None) => CleanAction::Delete,
        (true, Some(_)) => bail!("--repair-ttl and --idle-hours cannot be used together"),
    };
    let options = CleanOptions { action, pace: pace(arguments.pace), apply: arguments.apply };
    let store = connect(&address).await?;
    let bar = Bar::new();
    let mut progress = |progress: &Progress| bar.show(progress);
    let report = hob_schema_audit::clean(&store, &catalog, &arguments.family, options, &mut progress).await?;
    bar.clear();
    Ok(print(&report.text()))
}

fn pace(keys_per_second: Option<u32>) -> Pace {
    keys_per_second.map_or(Pace::Full, Pace::KeysPerSecond)
}

/// A progress bar; none if stderr is not a terminal.
struct Bar(Option<ProgressBar>);

impl Bar {
    fn new() -> Bar {
        let style = "{bar:40} {human_pos} of {human_len} keys, {per_sec}, {eta} left  {msg}";
        let make = || {
            let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(0).with_style(style)
        };
        Bar(std::io::stderr().is_terminal().then(make))
    }

    fn show(&self, progress: &Progress) {
        if let Some(bar) = &self.0 {
            bar.set_length(progress.expected.max(progress.keys));
            bar.set_position(progress.keys);
            bar.set_message(progress.node.clone());
        }
    }

    fn clear(self) {
        if let Some(bar) = self.0 {
            bar.finish_and_clear();
        }
    }
}

impl Exit {
    fn by(worst: Option<Severity>) -> Exit {
        match worst {
            None => Exit::Clean,
            Some(Severity::Warning) => Exit::Warnings,
            Some(Severity::Error) => Exit::Errors,
        }
    }
}
