//! What can be asked of `hob`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use hob_service::Period;
use hob_web::Scope;

use crate::services;

#[derive(Debug, Parser)]
#[command(name = "hob", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    /// The configuration file; hob.toml when it is there and no other is named
    #[arg(long, global = true, env = "HOB_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    Serve(ServeOptions),
    /// Check and show the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Look at what Hob stands on: connections, versions, clocks, latency, memory; with advice
    ///
    /// Exits with 0 when all is well, 1 when it could not do its work, 3 when it has advice, 4 when something is
    /// wrong.
    Doctor,
    /// Make, list and revoke API tokens
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Look at targets, and at what watches them
    Uptime {
        #[command(subcommand)]
        command: UptimeCommand,
    },
    /// Print a script that completes `hob` in a shell
    Completions { shell: clap_complete::Shell },
    /// Carry out a pipeline here, without a server, and steer it
    ///
    /// What is done is kept beside the plan, in FILE.hob.db.
    Pipeline {
        #[command(subcommand)]
        command: PipelineCommand,
    },
    /// Look after the database
    Database {
        #[command(subcommand)]
        command: DatabaseCommand,
    },
    /// Put load on an HTTP server, and measure what it makes of it
    ///
    /// Exits with 0 when all thresholds of the plan were met, 1 when it could not do its work, 2 when it was called
    /// wrongly, 3 when it was interrupted, 4 when a threshold was missed.
    Load {
        #[command(subcommand)]
        command: LoadCommand,
    },
    /// Check key schemas, and any Redis against them
    ///
    /// Exits with 0 when all is well, 1 when it could not do its work, 2 when it was called wrongly, 3 when it
    /// found warnings, 4 when it found errors.
    Schema {
        #[command(subcommand)]
        command: SchemaCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PipelineCommand {
    /// Run a plan until it is done; Ctrl-C stops it, and the same command goes on where it was
    ///
    /// Once a run is completed, the same command starts a new one. Each run writes files of its own, and the output of
    /// earlier runs is kept.
    ///
    /// Exits with 0 when everything is done, 3 when some items were set aside or it was stopped before its end.
    Run {
        plan: PathBuf,
        /// A secret that the plan names, as often as needed: NAME=env:VARIABLE or NAME=file:PATH
        #[arg(long, value_name = "SECRET")]
        secret: Vec<String>,
        /// Only say what it would cost
        #[arg(long)]
        dry_run: bool,
        /// Start over, instead of going on with the plan as it was
        #[arg(long)]
        fresh: bool,
    },
    /// Say how far a plan's newest run is
    Status { plan: PathBuf },
    /// Let the run of another terminal pause
    Pause { plan: PathBuf },
    /// Let a paused run go on with the next `run`
    Resume { plan: PathBuf },
    /// List items that were set aside
    Failed { plan: PathBuf },
    /// Let items that were set aside be tried again
    Replay {
        plan: PathBuf,
        /// Only those of a class: network, server, throttled, client or parse
        #[arg(long)]
        class: Option<String>,
    },
}

/// Where the long-term truth is.
#[derive(Args, Clone, Debug)]
pub(crate) struct DatabaseOptions {
    /// Where the database is: a SQLite file, or postgres://… (also HOB_DATABASE_URL)
    #[arg(long = "database", value_name = "URL")]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say whether the configuration is well, or name the file, line and field that are not
    Check,
    /// Show what is in force, and where each setting comes from; secrets are masked
    Show,
    /// Print a hob.toml with every setting, explained
    Example,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DatabaseCommand {
    /// Write a copy of a SQLite file that is in use
    Backup {
        #[command(flatten)]
        database: DatabaseOptions,
        /// The file to write; it must not be there yet
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Copy everything into an empty database: SQLite to PostgreSQL, back, or to another of its kind
    Copy {
        #[command(flatten)]
        database: DatabaseOptions,
        /// The database to fill: a SQLite file, or postgres://…
        #[arg(long, value_name = "URL")]
        to: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it, once
    Create(NewTokenArgs),
    /// List all tokens; what they say is kept nowhere
    List,
    /// Make a token useless, and end the sessions that were begun with it
    Revoke { id: String },
}

#[derive(Args, Debug)]
pub(crate) struct NewTokenArgs {
    /// What it is for
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// A right that it gives: `admin`, `<service>:read` or `<service>:write`; as often as needed
    #[arg(long, required = true)]
    pub(crate) scope: Vec<Scope>,
    /// How long it is good: 90d, 12h; until it is revoked when not given
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires: Option<Period>,
}

fn name(text: &str) -> Result<String, &'static str> {
    let fits = (1..=100).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if fits { Ok(text.to_owned()) } else { Err("a name has 1 to 100 characters") }
}

#[derive(Debug, Subcommand)]
pub(crate) enum UptimeCommand {
    /// Check a target once, and show how long each part took
    ///
    /// Exits with 0 when it is up, 4 when it is down, 1 when it could not be checked, 2 when it was called wrongly.
    Check(CheckArgs),
    /// Make the monitors what a YAML file says, and show what that changes
    ///
    /// Works in the database: servers that run see it within seconds. Carrying it out again changes nothing.
    Apply(ApplyArgs),
    /// List the monitors, and how they are
    ///
    /// Reads the database, and the states from the store: from Redis, or from the store of the server that runs here.
    /// Exits with 0 when nothing is down, 4 when something is.
    List,
}

#[derive(Args, Debug)]
pub(crate) struct ApplyArgs {
    /// The file: `monitors:`, and below it a monitor for each id, as the API takes them
    #[arg(value_name = "FILE.yaml")]
    pub(crate) file: PathBuf,
    /// Only show what would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Remove monitors that the file does not name
    #[arg(long)]
    pub(crate) prune: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// A URL; HOST:PORT for tcp and certificate; a name for dns
    #[arg(value_name = "URL")]
    pub(crate) target: String,
    #[arg(long, value_enum, default_value = "http")]
    pub(crate) kind: CheckKind,
    /// What must hold, such as 'status in 200..299', 'latency < 500ms', 'json $.ok == true'
    #[arg(long = "assert", value_name = "EXPRESSION")]
    pub(crate) assertions: Vec<hob_uptime::monitor::assertion::Assertion>,
    /// How long it may take
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(crate) timeout: Period,
    /// The method of a request
    #[arg(long, default_value = "GET")]
    pub(crate) method: String,
    /// A header of a request
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// The body of a request
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// How many redirects are followed
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    pub(crate) redirects: u8,
    /// Write JSON
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

/// How an answer is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SchemaCommand {
    /// Check schema files for mistakes: patterns, TTLs, bounds, values, slots
    Lint {
        /// Schema files; Hob's own if none is given
        files: Vec<PathBuf>,
        #[arg(long, value_enum, default_value = "text")]
        format: Format,
    },
    /// Explain a lint rule and its remedy; without an id, list all rules
    Explain { id: Option<String> },
    /// Write schemas as Markdown pages
    Docs {
        /// Schema files; Hob's own if none is given
        files: Vec<PathBuf>,
        /// Write one page per schema into this folder, instead of all to stdout
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
    /// Print the JSON Schema of the file format, for editors
    Json,
    /// Print a line for Redis's ACL file: a user that may access the declared keys and channels only
    ///
    /// The user cannot log in until you add a password, as `>password` or `#sha256`.
    Acl {
        /// Schema files; Hob's own if none is given
        files: Vec<PathBuf>,
        /// The name of the user
        #[arg(long, default_value = "hob")]
        user: String,
        /// The keys have hash tags, as on a Cluster
        #[arg(long)]
        tagged: bool,
    },
    /// Propose a schema file from a sample of the keys of a Redis; read-only
    Infer(InferArgs),
    /// Check the keys of a Redis against schemas; read-only
    Audit(AuditArgs),
    /// Delete the keys of a declared family, or add missing TTLs; a dry run without --apply
    Clean(CleanArgs),
}

#[derive(Args, Debug)]
pub(crate) struct InferArgs {
    /// redis://, rediss://, redis+sentinel:// or redis+cluster://
    pub(crate) url: String,
    /// The name of the proposed schema
    #[arg(long, default_value = "inferred")]
    pub(crate) name: String,
    /// The most keys to sample
    #[arg(long, default_value_t = 20_000)]
    pub(crate) keys: u64,
    /// The longest time to sample
    #[arg(long, default_value_t = 1, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
}

#[derive(Args, Debug)]
pub(crate) struct AuditArgs {
    /// redis://, rediss://, redis+sentinel:// or redis+cluster://
    pub(crate) url: String,
    /// A schema file; may be repeated; Hob's own if none is given
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Vec<PathBuf>,
    /// The keys have hash tags (implied by redis+cluster://)
    #[arg(long)]
    pub(crate) tagged: bool,
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
    /// An earlier report in JSON; its findings are not reported again
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// The most keys to check per second, to spare other clients [default: no limit]
    #[arg(long, value_name = "KEYS_PER_SECOND", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pace: Option<u32>,
}

#[derive(Args, Debug)]
pub(crate) struct CleanArgs {
    /// redis://, rediss://, redis+sentinel:// or redis+cluster://
    pub(crate) url: String,
    /// The family: `typing`, or `chat.typing`
    #[arg(long)]
    pub(crate) family: String,
    /// A schema file; may be repeated; Hob's own if none is given
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Vec<PathBuf>,
    /// The keys have hash tags (implied by redis+cluster://)
    #[arg(long)]
    pub(crate) tagged: bool,
    /// Instead of deleting keys, give those without a TTL the longest that the family allows
    #[arg(long)]
    pub(crate) repair_ttl: bool,
    /// Delete only keys that were not used for this many hours
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) idle_hours: Option<u64>,
    /// The most keys to scan per second
    #[arg(long, value_name = "KEYS_PER_SECOND", default_value = "10000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pace: Option<u32>,
    /// Change the keys
    #[arg(long)]
    pub(crate) apply: bool,
}

/// Flags win over the environment, and this over hob.toml.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeOptions {
    /// Where the API and the console listen [default: 127.0.0.1:7070] (also HOB_LISTEN)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,

    /// Where the embedded store listens for redis-cli and other Redis clients [default: 127.0.0.1:7379]
    /// (also HOB_STORE_LISTEN)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) store_listen: Option<SocketAddr>,

    /// The Redis to use: redis://, rediss://, redis+cluster://, redis+sentinel://, or embedded://
    /// (also HOB_REDIS_URL, or REDIS_HOST, REDIS_PORT and REDIS_PASSWORD)
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,

    #[command(flatten)]
    pub(crate) database: DatabaseOptions,

    /// The most memory the embedded store may use, in MiB [default: 512] (also HOB_STORE_MEMORY_MIB)
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) store_memory_mib: Option<u32>,

    /// Run only these services on this node
    #[arg(long, value_delimiter = ',', value_name = "SERVICES", value_parser = service_names())]
    pub(crate) only: Vec<String>,

    /// Everything alive on loopback, the database in a temporary folder, gone when stopped; a port that is taken is
    /// replaced by a free one
    #[arg(long)]
    pub(crate) demo: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LoadCommand {
    /// Run a plan, without a server
    Run(LoadRunArgs),
    /// Request one URL over and over
    Quick(QuickArgs),
    /// Say whether a plan is right, and what it would do
    Check {
        /// The plan: TOML, or JSON if it is called so
        plan: PathBuf,
    },
}

#[derive(Args, Debug)]
pub(crate) struct LoadRunArgs {
    /// The plan: TOML, or JSON if it is called so
    pub(crate) plan: PathBuf,
    /// The kind of run; the plan's first when not said
    #[arg(long = "type", value_name = "NAME")]
    pub(crate) run_type: Option<String>,
    /// Write the report as one HTML file
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
}

#[derive(Args, Debug)]
pub(crate) struct QuickArgs {
    /// The URL: http:// or https://
    pub(crate) url: String,
    /// How many connections there are at most
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) connections: u32,
    /// For how long
    #[arg(short, long, default_value = "10s")]
    pub(crate) duration: hob_service::Period,
    /// Requests per second, whether the server keeps up or not; as many as it answers when not said
    #[arg(short, long)]
    pub(crate) rate: Option<f64>,
    #[command(flatten)]
    pub(crate) targets: LoadTargets,
}

/// Whom load may be put on.
#[derive(Args, Debug)]
pub(crate) struct LoadTargets {
    /// A host that is not this machine, and may be tested all the same; as often as needed
    #[arg(long, value_name = "HOST")]
    pub(crate) allow: Vec<String>,
    /// The most requests per second to such a host
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) most_rate: u32,
    /// Threads; one per core when not said
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: Option<u32>,
}

fn service_names() -> PossibleValuesParser {
    services::ALL.iter().map(hob_web::Registration::name).into()
}
