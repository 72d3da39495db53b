//! `hob doctor`: checks the process, Redis and the database.
#![expect(clippy::print_stdout, reason = "the answer of a command")]

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use hob_database::{Database, PerDialect, Query, Read, sql};
use hob_store::{Address, Store, cmd};

use crate::config::{self, Config};
use crate::database;
use crate::exit::Exit;

/// The number of pings to measure latency.
const PINGS: usize = 50;

/// With a larger difference of the clocks, displayed times are misleading. Nothing else depends on the clocks.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// A slower server delays requests.
const SLOW_RESPONSE: Duration = Duration::from_millis(10);

/// Every connection and file needs a file descriptor.
const MIN_OPEN_FILES: u64 = 4096;

pub(crate) fn run(file: Option<&Path>) -> Result<Exit> {
    let loaded = config::load(file)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let mut report = Report::default();
    runtime.block_on(async {
        check_process(&mut report);
        for variable in loaded.unknown_variables() {
            report.warn("config", &format!("unknown environment variable {variable}"));
        }
        for contradiction in loaded.contradictions() {
            report.warn("config", contradiction);
        }
        check_store(&mut report, &loaded.config).await;
        check_database(&mut report, &loaded.config).await;
    });
    Ok(report.end())
}

/// Prints findings and counts them.
#[derive(Default)]
struct Report {
    warnings: usize,
    errors: usize,
}

impl Report {
    fn ok(&mut self, about: &str, text: &str) {
        println!("  ok       {about:9} {text}");
    }

    fn warn(&mut self, about: &str, text: &str) {
        self.warnings += 1;
        println!("  warning  {about:9} {text}");
    }

    fn error(&mut self, about: &str, text: &str) {
        self.errors += 1;
        println!("  error    {about:9} {text}");
    }

    fn end(self) -> Exit {
        match (self.errors, self.warnings) {
            (0, 0) => Exit::Clean,
            (0, _) => Exit::Warnings,
            _ => Exit::Errors,
        }
    }
}

fn check_process(report: &mut Report) {
    report.ok("hob", env!("CARGO_PKG_VERSION"));
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(files) if files < MIN_OPEN_FILES => report.warn(
            "files",
            &format!("the limit is {files} open files; raise it to {MIN_OPEN_FILES} or more (ulimit -n)"),
        ),
        Some(files) => report.ok("files", &format!("the limit is {files} open files")),
        None => report.ok("files", "the number of open files is not limited"),
    }
}

async fn check_store(report: &mut Report, config: &Config) {
    let address = match config.redis.address() {
        Ok(address) => address,
        Err(error) => return report.error("redis", &format!("{error:#}")),
    };
    if address == Address::Embedded {
        return report.ok("redis", "the embedded engine; suitable for a single node only");
    }
    let masters = match Store::connect(&address).await {
        Ok(store) => store.masters().await,
        Err(error) => Err(error),
    };
    match masters {
        Ok(masters) => {
            for master in masters {
                check_master(report, &master).await;
            }
        }
        Err(error) => report.error("redis", &format!("{address}: {error}")),
    }
}

async fn check_master(report: &mut Report, master: &Store) {
    if let Err(error) = query_master(report, master).await {
        report.error("redis", &format!("{}: {error}", master.name()));
    }
}

async fn query_master(report: &mut Report, master: &Store) -> hob_store::Result<()> {
    let name = master.name();
    let info: String = master.run(cmd("INFO")).await?;
    let info: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    check_version(report, name, &info);
    check_memory(report, name, &info);

    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let asked = Instant::now();
        master.ping().await?;
        times.push(asked.elapsed());
    }
    report_latency(report, "redis", name, times);

    let before = SystemTime::now();
    let asked = Instant::now();
    let (seconds, micros): (u64, u64) = master.run(cmd("TIME")).await?;
    let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
    report_clock(report, "redis", name, theirs, before, asked.elapsed());
    Ok(())
}

/// The oldest version that `cargo xtask versions` tests.
const MIN_REDIS: (u32, u32) = (6, 2);

fn is_older(version: &str, than: (u32, u32)) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < than
}

fn check_version(report: &mut Report, name: &str, info: &HashMap<&str, &str>) {
    let (kind, version) = match (info.get("valkey_version"), info.get("redis_version")) {
        (Some(version), _) => ("Valkey", *version),
        (None, Some(version)) => ("Redis", *version),
        (None, None) => return report.warn("redis", &format!("{name} does not report its version")),
    };
    if is_older(version, MIN_REDIS) {
        let (major, minor) = MIN_REDIS;
        let required = format!("version {major}.{minor} or later is required");
        report.error("redis", &format!("{name} is {kind} {version}; {required}"));
    } else {
        report.ok("redis", &format!("{name} is {kind} {version}"));
    }
}

fn check_memory(report: &mut Report, name: &str, info: &HashMap<&str, &str>) {
    const MIB: f64 = 1024.0 * 1024.0;
    let number = |field: &str| info.get(field).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let (used, most) = (number("used_memory"), number("maxmemory"));
    let policy = info.get("maxmemory_policy").copied().unwrap_or("noeviction");
    let of = if most > 0.0 { format!(" of {:.0} MiB", most / MIB) } else { String::new() };
    report.ok("memory", &format!("{name} uses {:.1} MiB{of}", used / MIB));
    if most > 0.0 && policy != "noeviction" {
        let reason = "limits, quotas and schedules may be lost when the memory is full";
        let remedy = "set maxmemory-policy noeviction";
        report.warn("memory", &format!("{name} evicts keys ({policy}): {reason}; {remedy}"));
    }
    if most > 0.0 && used > 0.8 * most {
        report.warn("memory", &format!("{name} uses {:.0} % of its memory", 100.0 * used / most));
    }
}

async fn check_database(report: &mut Report, config: &Config) {
    let database = match database::open_existing(&config.database).await {
        Ok(database) => database,
        Err(error) => return report.warn("database", &format!("{error:#}")),
    };
    if let Err(error) = query_database(report, &database).await {
        report.error("database", &format!("{}: {error}", database.address()));
    }
    database.close().await;
}

async fn query_database(report: &mut Report, database: &Database) -> Result<(), hob_database::Error> {
    const VERSION: PerDialect =
        PerDialect { sqlite: "SELECT 'SQLite ' || sqlite_version()", postgres: "SELECT version()" };
    let name = database.address().to_string();
    let version: Query<(String,)> = sql(VERSION);
    let (version,) = database.one(version).await?;
    let version: Vec<&str> = version.split(' ').take(2).collect();
    report.ok("database", &format!("{name} is {}", version.join(" ")));

    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let asked = Instant::now();
        database.ping().await?;
        times.push(asked.elapsed());
    }
    report_latency(report, "database", &name, times);

    let (before, asked) = (SystemTime::now(), Instant::now());
    let now = database.read(|snapshot| async move { Ok::<_, hob_database::Error>(snapshot.now()) }).await?;
    let theirs = SystemTime::from(now).duration_since(UNIX_EPOCH).unwrap_or_default();
    report_clock(report, "database", &name, theirs, before, asked.elapsed());

    let backlog = hob_database::outbox::backlog(database).await?;
    let waiting = backlog.unnumbered + backlog.unpublished;
    report.ok("outbox", &format!("{waiting} events are waiting to be published"));
    Ok(())
}

fn report_latency(report: &mut Report, about: &str, name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (median, worst) = (times[times.len() / 2], times[times.len() * 98 / 100]);
    let text = format!("{name} responds in {median:.1?} (median), {worst:.1?} (98th percentile)");
    match worst > SLOW_RESPONSE {
        true => report.warn(about, &format!("{text}; use a server with less latency")),
        false => report.ok(about, &text),
    }
}

fn report_clock(
    report: &mut Report,
    about: &str,
    name: &str,
    theirs: Duration,
    before: SystemTime,
    took: Duration,
) {
    // Assume that the server read its clock in the middle of the round trip.
    let ours = before.duration_since(UNIX_EPOCH).unwrap_or_default() + took / 2;
    let apart = ours.abs_diff(theirs);
    let text = format!("the clock of {name} differs by {apart:.1?}");
    match apart > MAX_CLOCK_SKEW + took {
        true => report.warn(about, &format!("{text}; synchronize the clocks with NTP")),
        false => report.ok(about, &text),
    }
}
