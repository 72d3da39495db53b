//! `hob schema`: the schema language as a tool for any Redis.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hob_schema::lint::{self, Severity};
use hob_schema::live::{self, AuditOptions, Baseline, CleanOptions, Cleaning, InferOptions, Pace, Progress};
use hob_schema::{Catalog, Layout, Schema};
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
        SchemaCommand::Json => Ok(say(&hob_schema::json_schema())),
        SchemaCommand::Acl { files, user, tagged } => {
            Ok(say(&hob_schema::acl(&catalog(files, *tagged, "")?, user)))
        }
        SchemaCommand::Infer(arguments) => wait(infer(arguments)),
        SchemaCommand::Audit(arguments) => wait(audit(arguments)),
        SchemaCommand::Clean(arguments) => wait(clean(arguments)),
    }
}

fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Runtime::new().context("could not start the runtime")?.block_on(work)
}

/// What a command is for goes to stdout, so that it can be piped.
#[expect(clippy::print_stdout, reason = "the answer of a command")]
fn say(text: &str) -> Exit {
    print!("{text}{}", if text.ends_with('\n') { "" } else { "\n" });
    Exit::Clean
}

/// Hob's own schemas, which are meant where no file is named.
pub(crate) fn own() -> Result<Vec<Schema>> {
    std::iter::once(&HOUSE)
        .chain(SERVICES)
        .map(|(name, text)| Schema::parse(name, text).map_err(anyhow::Error::from))
        .collect()
}

/// The named files, or Hob's own.
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
    say(&match format {
        Format::Text => lint::report_text(&findings),
        Format::Json => lint::report_json(&findings),
    });
    Ok(Exit::by(findings.iter().map(|finding| finding.severity).max()))
}

fn explain(id: Option<&str>) -> Result<Exit> {
    let Some(id) = id else {
        let list: String =
            lint::RULES.iter().map(|rule| format!("{:<32} {}\n", rule.id, rule.title)).collect();
        return Ok(say(&list));
    };
    let rule = lint::explain(id)
        .with_context(|| format!("no rule is called {id}; `hob schema explain` lists them all"))?;
    let severity = rule.severity.name();
    Ok(say(&format!("{} ({severity}): {}\n\n{}\n", rule.id, rule.title, rule.explanation)))
}

fn docs(files: &[PathBuf], out: Option<&Path>) -> Result<Exit> {
    for schema in schemas(files)? {
        let page = hob_schema::docs::markdown(&schema);
        match out {
            None => drop(say(&page)),
            Some(folder) => {
                let path = folder.join(format!("{}.md", schema.name));
                fs::write(&path, page).with_context(|| format!("could not write {}", path.display()))?;
            }
        }
    }
    Ok(Exit::Clean)
}

async fn infer(arguments: &InferArgs) -> Result<Exit> {
    let options = InferOptions {
        name: arguments.name.clone(),
        most_keys: arguments.keys,
        most_time: Duration::from_secs(arguments.seconds),
    };
    Ok(say(&live::infer(&arguments.url, &options).await?))
}

fn catalog(files: &[PathBuf], tagged: bool, url: &str) -> Result<Catalog> {
    // A Cluster is only ever written with tags.
    let tagged = tagged || url.starts_with("redis+cluster:");
    let layout = if tagged { Layout::Tagged } else { Layout::Plain };
    let mut schemas = schemas(files)?;
    for schema in &mut schemas {
        schema.apply_env(&|name| std::env::var(name).ok())?;
    }
    Ok(Catalog::new(schemas, layout)?)
}

async fn audit(arguments: &AuditArgs) -> Result<Exit> {
    let catalog = catalog(&arguments.schema, arguments.tagged, &arguments.url)?;
    let baseline = arguments.baseline.as_deref().map(read_baseline).transpose()?;
    let options = AuditOptions { pace: pace(arguments.pace) };
    let bar = Bar::new();
    let report = live::audit(&arguments.url, &catalog, options, &mut |progress| bar.show(progress)).await?;
    bar.done();
    let report = match baseline {
        Some(baseline) => baseline.only_new(report),
        None => report,
    };
    say(&match arguments.format {
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
    let catalog = catalog(&arguments.schema, arguments.tagged, &arguments.url)?;
    let cleaning = match (arguments.repair_ttl, arguments.idle_hours) {
        (true, None) => Cleaning::RepairTtl,
        (false, Some(hours)) => Cleaning::UnlinkIdle(Duration::from_secs(hours * 3600)),
        (false, None) => Cleaning::Unlink,
        (true, Some(_)) => bail!("--repair-ttl and --idle-hours do not go together"),
    };
    let options = CleanOptions { cleaning, pace: pace(arguments.pace), apply: arguments.apply };
    let bar = Bar::new();
    let family = &arguments.family;
    let report =
        live::clean(&arguments.url, &catalog, family, options, &mut |progress| bar.show(progress)).await?;
    bar.done();
    Ok(say(&report.text()))
}

fn pace(keys_per_second: Option<u32>) -> Pace {
    keys_per_second.map_or(Pace::Full, Pace::KeysPerSecond)
}

/// Progress for a person; nothing where stderr is a file or a pipe.
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

    fn done(self) {
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
