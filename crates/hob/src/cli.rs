//! The command line.

mod schema;
mod server;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use hob_service::Period;
use hob_web::Scope;

use crate::services;
pub(crate) use schema::{
    AuditArgs, CiArgs, CleanArgs, Declared, HistoryFormat, InferArgs, ProxyArgs, ProxyMode, ReportFormat,
    SampleArgs, SchemaCommand, WatchArgs,
};
pub(crate) use server::{LoginArgs, ServerArgs};

/// The version, and for a released program the commit and its date, which `cargo xtask dist` sets.
pub(crate) const VERSION: &str = match option_env!("HOB_BUILD") {
    Some(build) => build,
    None => concat!(env!("CARGO_PKG_VERSION"), " (development build)"),
};

#[derive(Debug, Parser)]
#[command(name = "hob", version = VERSION, about, max_term_width = 100)]
pub(crate) struct Cli {
    /// Configuration file [default: hob.toml, if it exists]
    #[arg(long, global = true, env = "HOB_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    Serve(crate::serve::Options),
    /// Write a hob.toml: asks for what the options do not say
    ///
    /// Without a terminal, settings that the options do not say have their defaults.
    Init(crate::init::Options),
    /// Check, show or generate the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Check the connections, versions, clocks, latency and memory of Redis and the database
    ///
    /// Exit status: 0 no findings, 1 failure, 3 warnings, 4 errors.
    Doctor,
    /// Sign in to a server: `token`, `uptime`, `load`, `pipeline` and `schema audit` then talk to it
    ///
    /// Asks for an API token, or reads it from standard input, checks it, and saves it in a file that only this user can read.
    Login(LoginArgs),
    /// Forget the server and the token of `hob login`; the token stays valid until it is revoked
    Logout,
    /// Create, list and revoke API tokens
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Check a target, and manage monitors
    Uptime {
        #[command(subcommand)]
        command: UptimeCommand,
    },
    /// Print a shell completion script
    Completions { shell: clap_complete::Shell },
    /// Write the manual pages into a folder
    Man { folder: PathBuf },
    /// Print the version, with the commit and its date
    Version,
    /// Run pipelines, without a server or on one
    ///
    /// Without a server, progress is stored next to the plan, in FILE.hob.db.
    Pipeline {
        #[command(subcommand)]
        command: PipelineCommand,
    },
    /// Back up, restore, migrate or copy the database
    Database {
        #[command(subcommand)]
        command: DatabaseCommand,
    },
    /// Run load tests against an HTTP server
    ///
    /// Exit status: 0 all thresholds passed, 1 failure, 2 usage error, 3 interrupted, 4 a threshold failed.
    Load {
        #[command(subcommand)]
        command: LoadCommand,
    },
    /// Check Redis key schemas, and check any Redis against them
    ///
    /// Exit status: 0 no findings, 1 failure, 2 usage error, 3 warnings, 4 errors.
    Schema {
        #[command(subcommand)]
        command: SchemaCommand,
    },
    /// Start a Redis for tests: it enforces schemas, and tests control its clock and faults
    ///
    /// Prints its address, and at its end the changes that broke the schemas. Tests send HOB CLOCK, HOB FAULT and HOB RESET.
    ///
    /// Exit status: 0 no findings, 1 failure (also of the command), 2 usage error, 4 a change broke a schema.
    TestRedis(crate::test_redis::Options),
}

#[derive(Debug, Subcommand)]
pub(crate) enum PipelineCommand {
    /// Run a plan; after Ctrl-C, the same command resumes it
    ///
    /// With --server, saves the plan on the server, runs it there and waits for its end. Ctrl-C stops waiting, not the run.
    ///
    /// After a completed run, --again starts a new one. Each run writes its own files; the output of earlier runs is kept.
    /// Plans with the same quota share its calls if they share the quota file.
    ///
    /// Exit status: 0 all items done, 3 some items failed or the run was stopped.
    Run {
        plan: PathBuf,
        /// A secret of the plan, as NAME=env:VARIABLE or NAME=file:PATH; may be repeated
        #[arg(long, value_name = "SECRET")]
        secret: Vec<String>,
        /// Show the estimated number of calls without running
        #[arg(long)]
        dry_run: bool,
        /// Start a new run although the last one is completed
        #[arg(long)]
        again: bool,
        /// Cancel an unfinished run and start a new one
        #[arg(long)]
        fresh: bool,
        /// Database file with the calls of all plans that share quotas [default: hob-quotas.db next to the plan]
        #[arg(long, value_name = "FILE")]
        quota_file: Option<PathBuf>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show the progress of the newest run
    Status { plan: PathBuf },
    /// Pause a run in another terminal
    Pause { plan: PathBuf },
    /// Allow the next `run` to resume a paused run
    Resume { plan: PathBuf },
    /// List dead letters: items that failed for good
    Failed { plan: PathBuf },
    /// Retry dead letters
    Replay {
        plan: PathBuf,
        /// Only errors of this class: network, server, throttled, client or parse
        #[arg(long)]
        class: Option<String>,
    },
}

/// The database.
#[derive(Args, Clone, Debug)]
pub(crate) struct DatabaseOptions {
    /// SQLite file or postgres:// URL [default: hob-data/hob.db] [env: HOB_DATABASE_URL]
    #[arg(long = "database", value_name = "URL")]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration; report mistakes with file, line and field
    ///
    /// Exit status: 0 valid, 1 invalid, 3 valid with warnings.
    Check,
    /// Show all settings and their sources; secrets are masked
    Show,
    /// Print a hob.toml with all settings and their defaults
    Example,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DatabaseCommand {
    /// Back up a database that is in use into a file
    ///
    /// The file is a complete SQLite database, also if the database is PostgreSQL.
    Backup {
        #[command(flatten)]
        database: DatabaseOptions,
        /// File to write; must not exist
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Restore a backup into a file that does not exist, or into an empty PostgreSQL database
    ///
    /// Checks the backup first, and applies pending migrations. Nodes must not run.
    Restore {
        #[command(flatten)]
        database: DatabaseOptions,
        /// Backup to restore
        backup: PathBuf,
    },
    /// Apply the pending migrations of this version, as `hob serve` does when it starts
    Migrate {
        #[command(flatten)]
        database: DatabaseOptions,
        /// Only list them
        #[arg(long)]
        dry_run: bool,
    },
    /// Copy all data into an empty database, for example from SQLite to PostgreSQL
    Copy {
        #[command(flatten)]
        database: DatabaseOptions,
        /// Target: SQLite file or postgres:// URL
        #[arg(long, value_name = "URL")]
        to: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it
    Create(NewTokenArgs),
    /// List tokens; their secrets are not stored
    List {
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Revoke a token and end its sessions
    Revoke {
        id: String,
        #[command(flatten)]
        server: ServerArgs,
    },
}

#[derive(Args, Debug)]
pub(crate) struct NewTokenArgs {
    /// Owner or purpose
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Scope: `admin`, `<service>:read` or `<service>:write`, `*` for all services; may be repeated
    #[arg(long, required = true)]
    pub(crate) scope: Vec<Scope>,
    /// Lifetime, such as 90d or 12h [default: does not expire]
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires: Option<Period>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

fn name(text: &str) -> Result<String, &'static str> {
    let fits = (1..=100).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if fits { Ok(text.to_owned()) } else { Err("must have 1 to 100 characters") }
}

#[derive(Debug, Subcommand)]
pub(crate) enum UptimeCommand {
    /// Check a target once, and show the time of each phase
    ///
    /// Exit status: 0 up, 1 failure, 2 usage error, 4 down.
    Check(CheckArgs),
    /// Create and update monitors from a YAML file, and show the changes
    ///
    /// Writes to the database; running servers apply the changes within seconds. With --server, the server applies them.
    /// Idempotent.
    Apply(ApplyArgs),
    /// List monitors and their states
    ///
    /// Reads monitors from the database, and states from Redis or from the embedded engine of a server on this machine.
    /// With --server, asks the server for both.
    /// Exit status: 0 no monitor is down, 4 a monitor is down.
    List {
        #[command(flatten)]
        server: ServerArgs,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ApplyArgs {
    /// YAML file: `monitors:` with a monitor for each id, in the format of the API
    #[arg(value_name = "FILE.yaml")]
    pub(crate) file: PathBuf,
    /// Show the changes without applying them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Delete monitors that are not in the file
    #[arg(long)]
    pub(crate) prune: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// URL; HOST:PORT for tcp and certificate; host name for dns
    #[arg(value_name = "URL")]
    pub(crate) target: String,
    #[arg(long, value_enum, default_value = "http")]
    pub(crate) kind: CheckKind,
    /// Assertion, such as 'status in 200..299', 'latency < 500ms', 'json $.ok == true'
    #[arg(long = "assert", value_name = "EXPRESSION")]
    pub(crate) assertions: Vec<hob_uptime::monitor::assertion::Assertion>,
    /// Timeout
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(crate) timeout: Period,
    /// HTTP method
    #[arg(long, default_value = "GET")]
    pub(crate) method: String,
    /// HTTP header; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// HTTP request body
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// Maximum number of redirects
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    pub(crate) redirects: u8,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CheckKind {
    Http,
    Tcp,
    Dns,
    Certificate,
}

fn header(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[derive(Debug, Subcommand)]
pub(crate) enum LoadCommand {
    /// Run a plan, without a server or on one
    ///
    /// With --server, saves the plan on the server and queues a run there; --wait waits for its end and reports it. Ctrl-C
    /// cancels the run.
    Run(LoadRunArgs),
    /// Compare two runs: report files (`run --json`), or ids of runs on a server
    ///
    /// Exit status: 0 compared, 1 failure, 2 usage error, 4 slower or more failures than --max-increase allows.
    Compare(LoadCompareArgs),
    /// Request one URL repeatedly
    Quick(QuickArgs),
    /// Validate a plan, and show what it would do
    ///
    /// Exit status: 0 a run would start, 1 the plan is invalid, 3 a run would be refused because of its target, 4 a request of
    /// the dry run failed.
    Check {
        /// Plan: TOML (`.toml`) or JSON (`.json`)
        plan: PathBuf,
        /// Send each request once with one user, and show status, time, checks and extracted values
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        targets: LoadTargets,
    },
}

#[derive(Args, Debug)]
pub(crate) struct LoadRunArgs {
    /// Plan: TOML (`.toml`) or JSON (`.json`)
    pub(crate) plan: PathBuf,
    /// Run type [default: the first one of the plan]
    #[arg(long = "type", value_name = "NAME")]
    pub(crate) run_type: Option<String>,
    /// Write the report as an HTML file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the thresholds as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) targets: LoadTargets,
    /// Number of threads [default: one per core]
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: Option<u32>,
    /// Wait for the end of a run on a server, and report it
    #[arg(long, help_heading = "Server")]
    pub(crate) wait: bool,
    /// Number of nodes of the server that generate the load [default: 1]
    #[arg(long, value_name = "COUNT", help_heading = "Server", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) runners: Option<u32>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Args, Debug)]
pub(crate) struct LoadCompareArgs {
    /// The run to compare with: a report file, or the id of a run on a server
    #[arg(value_name = "A")]
    pub(crate) before: String,
    /// The run to judge
    #[arg(value_name = "B")]
    pub(crate) after: String,
    /// Exit with 4 if p95, p99 or the share of failed requests grew by more than this many per cent, in total or of a step
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    pub(crate) max_increase: Option<f64>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

fn percentage(text: &str) -> Result<f64, &'static str> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    number.ok().filter(|value| (0.0..=10_000.0).contains(value)).ok_or("write per cent, such as 10 or 2.5%")
}

#[derive(Args, Debug)]
pub(crate) struct QuickArgs {
    /// URL: http:// or https://
    pub(crate) url: String,
    /// Maximum number of connections
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) connections: u32,
    /// Duration
    #[arg(short, long, default_value = "10s")]
    pub(crate) duration: hob_service::Period,
    /// Requests per second, independent of response times [default: as many as the server answers]
    #[arg(short, long)]
    pub(crate) rate: Option<f64>,
    #[command(flatten)]
    pub(crate) targets: LoadTargets,
    /// Number of threads [default: one per core]
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: Option<u32>,
}

/// The hosts that may be tested.
#[derive(Args, Debug)]
pub(crate) struct LoadTargets {
    /// Allow a host other than this machine; may be repeated
    #[arg(long, value_name = "HOST")]
    pub(crate) allow: Vec<String>,
    /// Maximum requests per second to such a host
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_rate: u32,
}

/// Reports arguments that the parser accepted but that do not fit together, like the parser itself, and exits with 2.
pub(crate) fn usage_error(subcommands: &[&str], message: &str) -> ! {
    let mut command = Cli::command();
    command.build();
    let mut named = &mut command;
    for name in subcommands {
        named = named.find_subcommand_mut(name).unwrap_or_else(|| unreachable!("there is no command {name}"));
    }
    named.error(ErrorKind::ValueValidation, message).exit()
}

pub(crate) fn service_names() -> PossibleValuesParser {
    services::ALL.iter().map(hob_web::Registration::name).into()
}
