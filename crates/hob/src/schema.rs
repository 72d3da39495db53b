//! `hob schema`: the schema language as a tool for any Redis.

mod ci;
mod metrics;
mod proxy;
mod ready;
mod report;
mod server;
mod versions;
mod watch;

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufReader, ErrorKind, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hob_schema::code::{self, Language};
use hob_schema::diff::{self, Change};
use hob_schema::lint::{self, Finding, Severity};
use hob_schema::{Catalog, Layout, Schema};
use hob_schema_audit::{
    AuditOptions, AuditReport, Baseline, CleanAction, CleanOptions, History, HistoryEntry, InferOptions,
    Pace, Progress, Sampling, audit_rdb, connect, growth_text,
};
use hob_store::Address;
use hob_units::unix_ms;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{
    self, AuditArgs, CiArgs, CleanArgs, Declared, HistoryFormat, InferArgs, ReportFormat, SampleArgs,
    SchemaCommand,
};
use crate::exit::Exit;
use crate::remote::Remote;
use crate::services;
use report::{ListFormat, audit_entries, diff_entries, lint_entries, render};

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
        SchemaCommand::Diff { files, against, format } => diff_files(files, against.as_deref(), *format),
        SchemaCommand::Ci(arguments) => ci(arguments),
        SchemaCommand::Explain { id } => explain(id.as_deref()),
        SchemaCommand::Docs { files, out } => docs(files, out.as_deref()),
        SchemaCommand::Keys { files, language, out } => keys(files, *language, out.as_deref()),
        SchemaCommand::Json => print(&hob_schema::json_schema()),
        SchemaCommand::Acl { files, user, tagged } => {
            print(&hob_schema::acl(&catalog(files, &[], layout(*tagged))?, user))
        }
        SchemaCommand::Ready { name } => print(&ready::show(name.as_deref())?),
        SchemaCommand::Infer(arguments) => wait(infer(arguments)),
        SchemaCommand::Audit(arguments) => wait(audit(arguments)),
        SchemaCommand::History { file, format } => history(file, *format),
        SchemaCommand::Watch(arguments) => watch::run(arguments),
        SchemaCommand::Clean(arguments) => wait(clean(arguments)),
        SchemaCommand::Proxy(arguments) => proxy::run(arguments),
    }
}

fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Runtime::new().context("cannot start the runtime")?.block_on(work)
}

/// Writes the result of a command to stdout, so that it can be piped.
pub(crate) fn print(text: &str) -> Result<Exit> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes()));
    match written.and_then(|()| out.flush()) {
        // A reader such as `head` may close its pipe early.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to stdout"),
        _ => Ok(Exit::Clean),
    }
}

/// Hob's own schemas, the default if no file is given.
pub(crate) fn own() -> Result<Vec<Schema>> {
    std::iter::once(&HOUSE)
        .chain(SERVICES)
        .map(|(name, text)| Schema::parse(name, text).map_err(anyhow::Error::from))
        .collect()
}

/// The text of one of Hob's own schemas, by the name of its file.
pub(crate) fn own_source(file: &str) -> Option<&'static str> {
    std::iter::once(&HOUSE).chain(SERVICES).find(|(name, _)| *name == file).map(|(_, text)| *text)
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

fn lint_files(files: &[PathBuf], format: ReportFormat) -> Result<Exit> {
    let findings: Vec<Finding> = schemas(files)?.iter().flat_map(lint::lint).collect();
    print(&match ListFormat::of(format) {
        Some(format) => render(format, "hob schema lint", &lint_entries(&findings)),
        None if matches!(format, ReportFormat::Json) => lint::report_json(&findings),
        None => lint::report_text(&findings),
    })?;
    Ok(Exit::by(findings.iter().map(|finding| finding.severity).max()))
}

fn diff_files(files: &[String], against: Option<&str>, format: ReportFormat) -> Result<Exit> {
    let changes = match (against, files) {
        (Some(against), files) => versions::changes_since(against, files)?,
        (None, [old, new]) => versions::changes_between(old, new)?,
        (None, _) => cli::usage_error(&["schema", "diff"], "give two files, or --against and a file"),
    };
    print(&match ListFormat::of(format) {
        Some(format) => render(format, "hob schema diff", &diff_entries(&changes)),
        None if matches!(format, ReportFormat::Json) => serde_json::to_string_pretty(&changes)?,
        None => diff::report_text(&changes),
    })?;
    Ok(Exit::by(worst_change(&changes)))
}

fn worst_change(changes: &[Change]) -> Option<Severity> {
    changes.iter().filter_map(|change| report::severity(change.class)).max()
}

fn ci(arguments: &CiArgs) -> Result<Exit> {
    let findings: Vec<Finding> = schemas(&arguments.declared.schema)?.iter().flat_map(lint::lint).collect();
    let files: Vec<String> =
        arguments.declared.schema.iter().map(|path| path.display().to_string()).collect();
    let since = |against: &str| versions::changes_since(against, &files);
    let changes = arguments.against.as_deref().map(since).transpose()?.unwrap_or_default();
    let server = ci::ThrowAwayServer::start(arguments.server.as_deref())?;
    ci::run_tests(&arguments.command, &server.url())?;
    let address = address(&server.url())?;
    let catalog = declared_catalog(&arguments.declared, &address)?;
    let audited = wait(run_audit(&address, &catalog, AuditOptions::default()))?;
    print(&match ListFormat::of(arguments.format) {
        Some(format) => {
            let entries =
                [lint_entries(&findings), diff_entries(&changes), audit_entries(&audited, &catalog)].concat();
            render(format, "hob schema ci", &entries)
        }
        None if matches!(arguments.format, ReportFormat::Json) => serde_json::to_string_pretty(
            &serde_json::json!({ "lint": findings, "diff": changes, "audit": audited }),
        )?,
        None => format!(
            "lint\n{}\ndiff\n{}\naudit\n{}",
            lint::report_text(&findings),
            diff::report_text(&changes),
            audited.text()
        ),
    })?;
    let linted = findings.iter().map(|finding| finding.severity).max();
    Ok(Exit::by(linted.max(worst_change(&changes)).max(audited.worst())))
}

fn explain(id: Option<&str>) -> Result<Exit> {
    let Some(id) = id else {
        let list: String =
            lint::RULES.iter().map(|rule| format!("{:<32} {}\n", rule.id, rule.title)).collect();
        return print(&list);
    };
    let rule = lint::explain(id)
        .with_context(|| format!("unknown rule {id}; `hob schema explain` lists all rules"))?;
    let severity = rule.severity.as_str();
    print(&format!("{} ({severity}): {}\n\n{}\n", rule.id, rule.title, rule.explanation))
}

fn docs(files: &[PathBuf], out: Option<&Path>) -> Result<Exit> {
    for schema in schemas(files)? {
        let page = hob_schema::docs::markdown(&schema);
        write(out, &format!("{}.md", schema.name), &page)?;
    }
    Ok(Exit::Clean)
}

fn keys(files: &[PathBuf], language: Language, out: Option<&Path>) -> Result<Exit> {
    for schema in schemas(files)? {
        let file = code::generate(&schema, language)?;
        write(out, &file.path, &file.text)?;
    }
    Ok(Exit::Clean)
}

/// Writes a file into a folder, or its text to stdout.
fn write(folder: Option<&Path>, path: &str, text: &str) -> Result<()> {
    let Some(folder) = folder else {
        return print(text).map(drop);
    };
    let path = folder.join(path);
    let parent = path.parent().unwrap_or(folder);
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

async fn infer(arguments: &InferArgs) -> Result<Exit> {
    let options = InferOptions {
        name: arguments.name.clone(),
        max_keys: arguments.keys,
        max_time: Duration::from_secs(arguments.seconds),
        known: ready::recognizable()?,
    };
    let store = connect(&address(&arguments.url)?).await?;
    let inferred = hob_schema_audit::infer(&store, &options).await?;
    print(&inferred.text)?;
    Ok(if inferred.unreadable == 0 { Exit::Clean } else { Exit::Warnings })
}

/// The address of a Redis; without a scheme it is `redis://`.
fn address(url: &str) -> Result<Address> {
    let url = if url.contains("://") { url.to_owned() } else { format!("redis://{url}") };
    Ok(url.parse()?)
}

/// The schemas of a server as one catalog. On a Cluster, Hob writes only tagged keys.
fn declared_catalog(declared: &Declared, address: &Address) -> Result<Catalog> {
    catalog(&declared.schema, &declared.with, layout(declared.tagged || address.is_cluster()))
}

pub(crate) fn layout(tagged: bool) -> Layout {
    if tagged { Layout::Tagged } else { Layout::Plain }
}

/// Schemas as one catalog.
pub(crate) fn catalog(files: &[PathBuf], with: &[String], layout: Layout) -> Result<Catalog> {
    let mut schemas = if with.is_empty() || !files.is_empty() { schemas(files)? } else { Vec::new() };
    let mut libraries = Vec::new();
    for choice in with {
        libraries.extend(ready::chosen(choice)?);
    }
    for schema in schemas.iter_mut().chain(&mut libraries) {
        schema.apply_env(&|name| std::env::var(name).ok())?;
    }
    Ok(Catalog::with_libraries(schemas, libraries, layout)?)
}

async fn audit(arguments: &AuditArgs) -> Result<Exit> {
    let baseline = arguments.baseline.as_deref().map(read_baseline).transpose()?;
    let declared = &arguments.declared;
    let (catalog, report) = match (&arguments.rdb, &arguments.url) {
        (Some(path), _) => {
            let catalog = catalog(&declared.schema, &declared.with, layout(declared.tagged))?;
            let file = fs::File::open(path).with_context(|| path.display().to_string())?;
            let report = audit_rdb(BufReader::new(file), &catalog, arguments.database.unwrap_or(0));
            (catalog, report.with_context(|| path.display().to_string())?)
        }
        (None, None) => {
            let Some(server) = Remote::chosen(&arguments.server)? else {
                cli::usage_error(&["schema", "audit"], "give the URL of a Redis, --rdb, or --server");
            };
            refuse_redis_options(arguments);
            server::audit(&server).await?
        }
        (None, Some(url)) => {
            if arguments.database.is_some() {
                cli::usage_error(
                    &["schema", "audit"],
                    "--database is for --rdb; the database of a server is part of its URL: redis://host:6379/1",
                );
            }
            let address = address(url)?;
            let catalog = declared_catalog(declared, &address)?;
            let options = AuditOptions { pace: pace(arguments.pace), sampling: sampling(&arguments.sample) };
            let report = run_audit(&address, &catalog, options).await?;
            (catalog, report)
        }
    };
    let report = match &arguments.history {
        Some(path) => remember(path, report)?,
        None => report,
    };
    let report = match baseline {
        Some(baseline) => baseline.only_new(report),
        None => report,
    };
    print(&match ListFormat::of(arguments.format) {
        Some(format) => render(format, "hob schema audit", &audit_entries(&report, &catalog)),
        None if matches!(arguments.format, ReportFormat::Json) => report.json(),
        None => report.text(),
    })?;
    Ok(Exit::by(report.worst()))
}

/// A server audits its own keys, at its own pace.
fn refuse_redis_options(arguments: &AuditArgs) {
    let declared = &arguments.declared;
    let own = declared.schema.is_empty() && declared.with.is_empty() && !declared.tagged;
    if !own || arguments.pace.is_some() || arguments.sample.sample.is_some() {
        cli::usage_error(
            &["schema", "audit"],
            "--schema, --with, --tagged, --pace and --sample are for a Redis; a server checks all keys against its schemas",
        );
    }
}

async fn run_audit(address: &Address, catalog: &Catalog, options: AuditOptions) -> Result<AuditReport> {
    let store = connect(address).await?;
    let bar = Bar::new();
    let report =
        hob_schema_audit::audit(&store, catalog, options, &mut |progress| bar.show(progress)).await?;
    bar.clear();
    Ok(report)
}

/// Adds a report to a history, and what has grown to the report.
fn remember(path: &Path, mut report: AuditReport) -> Result<AuditReport> {
    let entry = HistoryEntry::new(&report, unix_ms() / 1_000);
    report.growth = History::append(path, entry)?.growth();
    Ok(report)
}

fn history(path: &Path, format: HistoryFormat) -> Result<Exit> {
    ensure!(path.exists(), "{} does not exist; `hob schema audit --history FILE` writes it", path.display());
    let history = History::load(path)?;
    print(&match format {
        HistoryFormat::Json => serde_json::to_string_pretty(&history.growth())?,
        HistoryFormat::Text => match history.entries().len() {
            0 | 1 => "the history needs at least two audits to compare\n".to_owned(),
            _ => growth_text(&history.growth()),
        },
    })
}

fn read_baseline(path: &Path) -> Result<Baseline> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Baseline::from_json(&text).with_context(|| path.display().to_string())
}

async fn clean(arguments: &CleanArgs) -> Result<Exit> {
    let address = address(&arguments.url)?;
    let catalog = declared_catalog(&arguments.declared, &address)?;
    let action = match (arguments.repair_ttl, arguments.idle_hours) {
        (true, _) => CleanAction::RepairTtl,
        (false, Some(hours)) => CleanAction::DeleteIdle(Duration::from_secs(hours * 3600)),
        (false, None) => CleanAction::Delete,
    };
    let options = CleanOptions { action, pace: pace(arguments.pace), apply: arguments.apply };
    let store = connect(&address).await?;
    let bar = Bar::new();
    let mut progress = |progress: &Progress| bar.show(progress);
    let report = hob_schema_audit::clean(&store, &catalog, &arguments.family, options, &mut progress).await?;
    bar.clear();
    print(&report.text())
}

fn pace(keys_per_second: Option<u32>) -> Pace {
    keys_per_second.map_or(Pace::Full, Pace::KeysPerSecond)
}

/// The part of the keys to check. Each audit chooses other keys, unless a seed is given.
fn sampling(arguments: &SampleArgs) -> Option<Sampling> {
    // Short enough to copy.
    let seed = || RandomState::new().hash_one(0_u8) >> 32;
    let size = arguments.sample?;
    Some(Sampling { size, seed: arguments.sample_seed.unwrap_or_else(seed) })
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
