//! The arguments of `hob schema`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use hob_schema::code::Language;
use hob_schema_audit::SampleSize;

use super::ServerArgs;

/// The format of a report.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReportFormat {
    Text,
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// JUnit XML, for test reports
    Junit,
    /// Annotations of GitHub Actions
    Github,
}

/// The format of a comparison.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum HistoryFormat {
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
        format: ReportFormat,
    },
    /// Compare two versions of a schema: which edits are compatible, need a migration, or break programs
    ///
    /// `readers`: programs with the old schema read what they do not expect. `writers`: they write what the new schema
    /// forbids. `data`: existing keys break the new schema.
    ///
    /// Exit status: 0 compatible, 1 failure, 2 usage error, 3 needs a migration, 4 breaking.
    Diff {
        /// The old and the new version, as a path or git:REVISION:PATH; with --against, only new versions
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
        /// The old version: a path, git:REVISION:PATH, or git:REVISION for the files of the same names
        #[arg(long, value_name = "VERSION")]
        against: Option<String>,
        #[arg(long, value_enum, default_value = "text")]
        format: ReportFormat,
    },
    /// Run lint, diff, and an audit after your own tests, which write to a throw-away Redis
    ///
    /// Starts redis-server or valkey-server on a free port and runs the command with its address in REDIS_URL. The audit
    /// then checks the keys that the command has left there.
    ///
    /// Exit status: 0 no findings, 1 failure (also of the command), 2 usage error, 3 warnings, 4 errors.
    Ci(CiArgs),
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
    /// Write typed keys for another language: source files without dependencies
    Keys {
        /// Schema files; Hob's own if none is given
        files: Vec<PathBuf>,
        /// typescript, python or go
        #[arg(long)]
        language: Language,
        /// Write one file per schema into this folder, instead of all to stdout
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
    /// Print the JSON Schema of the file format, for editors
    Json,
    /// Print a line for Redis's ACL file: a user that may access the declared keys and channels only
    ///
    /// The user cannot log in until you add a password at the end of the line, as `>password` or `#sha256`.
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
    /// List ready-made schemas of libraries such as BullMQ and Celery, or print one
    Ready { name: Option<String> },
    /// Propose a schema file from a sample of the keys of a Redis; read-only
    Infer(InferArgs),
    /// Check the keys of a Redis against schemas; read-only
    Audit(AuditArgs),
    /// Show what has grown between the audits of a history file, which `audit --history` writes
    History {
        file: PathBuf,
        #[arg(long, value_enum, default_value = "text")]
        format: HistoryFormat,
    },
    /// Keep running: audit a Redis again and again, check keys soon after they are written, and serve metrics; read-only
    ///
    /// Logs each new kind of finding once, and runs until SIGTERM or Ctrl-C. Keys are checked soon after a write if the
    /// server has keyspace notifications (`notify-keyspace-events`); otherwise the next audit finds them.
    Watch(WatchArgs),
    /// Delete the keys of a declared family, or add missing TTLs; a dry run without --apply
    Clean(CleanArgs),
    /// Check every write on its way to a Redis: a proxy that counts, logs or refuses what breaks the schemas
    ///
    /// Prints the address for clients and runs until SIGTERM or Ctrl-C, then prints what it has found.
    ///
    /// Exit status: 0 no violations, 1 failure, 2 usage error, 3 only warnings, 4 errors.
    Proxy(ProxyArgs),
}

#[derive(Args, Debug)]
pub(crate) struct InferArgs {
    /// redis://, rediss://, redis+sentinel:// or redis+cluster://; without a scheme, redis://
    pub(crate) url: String,
    /// The name of the proposed schema
    #[arg(long, default_value = "inferred")]
    pub(crate) name: String,
    /// Maximum number of keys to sample
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: u64,
    /// Maximum time to take the sample, in seconds
    #[arg(long, default_value_t = 1, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
}

/// The schemas that declare the keys of a server.
#[derive(Args, Debug)]
pub(crate) struct Declared {
    /// A schema file; may be repeated; Hob's own if no schema is given
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Vec<PathBuf>,
    /// A ready-made schema, or NAME=PREFIX; may be repeated; `hob schema ready` lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) with: Vec<String>,
    /// The keys have hash tags (implied by redis+cluster://)
    #[arg(long)]
    pub(crate) tagged: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AuditArgs {
    /// redis://, rediss://, redis+sentinel:// or redis+cluster://; without a scheme, redis://
    ///
    /// Without it: the Redis of the server that is set with --server, HOB_SERVER or `hob login`.
    pub(crate) url: Option<String>,
    /// Audit an RDB file (dump.rdb) instead of a server
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "pace", "sample"])]
    pub(crate) rdb: Option<PathBuf>,
    /// The database in the RDB file
    ///
    /// The database of a server is part of its URL: redis://host:6379/1
    #[arg(long, value_name = "NUMBER", requires = "rdb")]
    pub(crate) database: Option<u64>,
    #[command(flatten)]
    pub(crate) declared: Declared,
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ReportFormat,
    /// An earlier report in JSON; its findings are reported again only if they concern more keys
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Maximum number of keys to check per second, to limit the load on the server [default: no limit]
    #[arg(long, value_name = "KEYS_PER_SECOND", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pace: Option<u32>,
    #[command(flatten)]
    pub(crate) sample: SampleArgs,
    /// Append a line with the sizes and findings to this file, and report what has grown since earlier audits
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// A part of the keys.
#[derive(Args, Debug)]
pub(crate) struct SampleArgs {
    /// Check only a part of the keys, such as 1% or 10000, and estimate the rest [default: all keys]
    #[arg(long, value_name = "SIZE")]
    pub(crate) sample: Option<SampleSize>,
    /// The seed of an earlier sample, to check the same keys [default: random]
    #[arg(long, value_name = "NUMBER", requires = "sample")]
    pub(crate) sample_seed: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// redis://, rediss://, redis+sentinel:// or redis+cluster://; without a scheme, redis://
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) declared: Declared,
    /// The time from the start of an audit to the start of the next
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = hob_units::parse_duration)]
    pub(crate) every: Duration,
    /// Maximum number of keys to audit per second
    #[arg(long, value_name = "KEYS_PER_SECOND", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pace: u32,
    #[command(flatten)]
    pub(crate) sample: SampleArgs,
    /// Append a line for each audit to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// Serve Prometheus metrics at http://ADDRESS/metrics
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// How long after a write a key is read
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = hob_units::parse_duration)]
    pub(crate) grace: Duration,
    /// Maximum number of written keys to read per second, on each server
    #[arg(long, value_name = "KEYS", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) reads_per_second: u32,
}

#[derive(Args, Debug)]
#[command(mut_arg("schema", |schema| schema.required(true).help("A schema file; may be repeated")))]
pub(crate) struct CiArgs {
    #[command(flatten)]
    pub(crate) declared: Declared,
    /// Also compare with an earlier version, as for `diff`
    #[arg(long, value_name = "VERSION")]
    pub(crate) against: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ReportFormat,
    /// The server to start [default: redis-server or valkey-server]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) server: Option<String>,
    /// The command that runs your tests
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct CleanArgs {
    /// redis://, rediss://, redis+sentinel:// or redis+cluster://; without a scheme, redis://
    pub(crate) url: String,
    /// The family: `typing`, or `chat.typing`
    #[arg(long)]
    pub(crate) family: String,
    #[command(flatten)]
    pub(crate) declared: Declared,
    /// Instead of deleting keys, set the longest TTL that the family allows on keys without a TTL
    #[arg(long, conflicts_with = "idle_hours")]
    pub(crate) repair_ttl: bool,
    /// Delete only keys that were not used for this many hours
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) idle_hours: Option<u64>,
    /// Maximum number of keys to scan per second
    #[arg(long, value_name = "KEYS_PER_SECOND", default_value = "10000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pace: Option<u32>,
    /// Change the keys
    #[arg(long)]
    pub(crate) apply: bool,
}

/// What a proxy does about a command that breaks the schemas.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ProxyMode {
    /// Count it
    Observe,
    /// Count and log it
    Warn,
    /// Count, log and refuse it
    Enforce,
}

#[derive(Args, Debug)]
#[command(mut_arg("schema", |schema| schema.required_unless_present("with").help("A schema file; may be repeated")))]
pub(crate) struct ProxyArgs {
    #[command(flatten)]
    pub(crate) declared: Declared,
    /// redis://, rediss:// or redis+cluster://; without a scheme, redis://
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: String,
    /// The address for clients; the servers of a Cluster get this port and the following ones
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6380")]
    pub(crate) listen: SocketAddr,
    #[arg(long, value_enum, default_value = "observe")]
    pub(crate) mode: ProxyMode,
    /// Serve Prometheus metrics at http://ADDRESS/metrics
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Treat undeclared keys of scripts as violations even if the script does not write them
    #[arg(long)]
    pub(crate) strict_scripts: bool,
    /// How long after a write a key is read, to find what the command did not show
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = hob_units::parse_duration)]
    pub(crate) grace: Duration,
    /// Maximum number of keys to read per second, on each server
    #[arg(long, value_name = "KEYS", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) reads_per_second: u32,
    /// Maximum number of clients
    #[arg(long, value_name = "CLIENTS", default_value = "10000")]
    pub(crate) max_clients: NonZeroUsize,
    /// Log the totals this often
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = hob_units::parse_duration)]
    pub(crate) report_every: Duration,
}
