//! `hob doctor`: looks at what Hob stands on, and says what could be better.
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

/// How often a server is asked, to know how long it takes.
const QUESTIONS: usize = 50;

/// Clocks that differ by more make people misread times; nothing else depends on them.
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// A store that takes longer than this holds up requests.
const SLOW: Duration = Duration::from_millis(10);

/// Every connection, file and socket takes one.
const FEW_FILES: u64 = 4096;

pub(crate) fn run(file: Option<&Path>) -> Result<Exit> {
    let loaded = config::load(file)?;
    let runtime = tokio::runtime::Runtime::new().context("could not start the runtime")?;
    let mut report = Report::default();
    runtime.block_on(async {
        look_at_process(&mut report);
        for variable in loaded.unknown_variables() {
            report.advise("config", &format!("unknown environment variable {variable}"));
        }
        look_at_store(&mut report, &loaded.config).await;
        look_at_database(&mut report, &loaded.config).await;
    });
    Ok(report.end())
}

/// What was found, printed as it is found.
#[derive(Default)]
struct Report {
    advice: usize,
    wrong: usize,
}

impl Report {
    fn fact(&mut self, about: &str, text: &str) {
        println!("  ok      {about:10} {text}");
    }

    fn advise(&mut self, about: &str, text: &str) {
        self.advice += 1;
        println!("  advice  {about:10} {text}");
    }

    fn wrong(&mut self, about: &str, text: &str) {
        self.wrong += 1;
        println!("  wrong   {about:10} {text}");
    }

    fn end(self) -> Exit {
        match (self.wrong, self.advice) {
            (0, 0) => Exit::Clean,
            (0, _) => Exit::Warnings,
            _ => Exit::Errors,
        }
    }
}

fn look_at_process(report: &mut Report) {
    report.fact("hob", env!("CARGO_PKG_VERSION"));
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(files) if files < FEW_FILES => report.advise(
            "files",
            &format!("only {files} may be open at once: raise the limit (ulimit -n) to {FEW_FILES} or more"),
        ),
        Some(files) => report.fact("files", &format!("{files} may be open at once")),
        None => report.fact("files", "any number may be open at once"),
    }
}

async fn look_at_store(report: &mut Report, config: &Config) {
    let address = match config.redis.address() {
        Ok(address) => address,
        Err(error) => return report.wrong("the store", &format!("{error:#}")),
    };
    if address == Address::Embedded {
        return report.fact("the store", "embedded in the server: nothing to connect to, one node only");
    }
    let masters = match Store::connect(&address).await {
        Ok(store) => store.masters().await,
        Err(error) => Err(error),
    };
    match masters {
        Ok(masters) => {
            for master in masters {
                look_at_master(report, &master).await;
            }
        }
        Err(error) => report.wrong("the store", &format!("{address}: {error}")),
    }
}

async fn look_at_master(report: &mut Report, master: &Store) {
    if let Err(error) = ask_master(report, master).await {
        report.wrong("the store", &format!("{}: {error}", master.name()));
    }
}

async fn ask_master(report: &mut Report, master: &Store) -> hob_store::Result<()> {
    let name = master.name();
    let info: String = master.run(cmd("INFO")).await?;
    let info: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    look_at_version(report, name, &info);
    look_at_memory(report, name, &info);

    let mut times = Vec::with_capacity(QUESTIONS);
    for _ in 0..QUESTIONS {
        let asked = Instant::now();
        master.ping().await?;
        times.push(asked.elapsed());
    }
    say_latency(report, "the store", name, times);

    let before = SystemTime::now();
    let asked = Instant::now();
    let (seconds, micros): (u64, u64) = master.run(cmd("TIME")).await?;
    let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
    say_clock(report, "the store", name, theirs, before, asked.elapsed());
    Ok(())
}

fn look_at_version(report: &mut Report, name: &str, info: &HashMap<&str, &str>) {
    let (kind, version) = match (info.get("valkey_version"), info.get("redis_version")) {
        (Some(version), _) => ("Valkey", *version),
        (None, Some(version)) => ("Redis", *version),
        (None, None) => return report.advise("the store", &format!("{name} does not say what it is")),
    };
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    if major < 6 {
        report.wrong("the store", &format!("{name} is {kind} {version}: at least 6.0 is needed"));
    } else {
        report.fact("the store", &format!("{name} is {kind} {version}"));
    }
}

fn look_at_memory(report: &mut Report, name: &str, info: &HashMap<&str, &str>) {
    const MIB: f64 = 1024.0 * 1024.0;
    let number = |field: &str| info.get(field).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let (used, most) = (number("used_memory"), number("maxmemory"));
    let policy = info.get("maxmemory_policy").copied().unwrap_or("noeviction");
    let of = if most > 0.0 { format!(" of {:.0} MiB", most / MIB) } else { String::new() };
    report.fact("memory", &format!("{name} uses {:.1} MiB{of}", used / MIB));
    if most > 0.0 && policy != "noeviction" {
        report.advise(
            "memory",
            &format!(
                "{name} evicts keys ({policy}): what it drops is rebuilt, but set maxmemory-policy noeviction"
            ),
        );
    }
    if most > 0.0 && used > 0.8 * most {
        report.advise("memory", &format!("{name} is at {:.0} % of its memory", 100.0 * used / most));
    }
}

async fn look_at_database(report: &mut Report, config: &Config) {
    let database = match database::open_existing(&config.database).await {
        Ok(database) => database,
        Err(error) => return report.advise("database", &format!("{error:#}; hob serve creates it")),
    };
    if let Err(error) = ask_database(report, &database).await {
        report.wrong("database", &format!("{}: {error}", database.address()));
    }
    database.close().await;
}

async fn ask_database(report: &mut Report, database: &Database) -> Result<(), hob_database::Error> {
    const VERSION: PerDialect =
        PerDialect { sqlite: "SELECT 'SQLite ' || sqlite_version()", postgres: "SELECT version()" };
    let name = database.address().to_string();
    let version: Query<(String,)> = sql(VERSION);
    let (version,) = database.one(version).await?;
    let version: Vec<&str> = version.split(' ').take(2).collect();
    report.fact("database", &format!("{name} is {}", version.join(" ")));

    let mut times = Vec::with_capacity(QUESTIONS);
    for _ in 0..QUESTIONS {
        let asked = Instant::now();
        database.ping().await?;
        times.push(asked.elapsed());
    }
    say_latency(report, "database", &name, times);

    let (before, asked) = (SystemTime::now(), Instant::now());
    let now = database.read(|snapshot| async move { Ok::<_, hob_database::Error>(snapshot.now()) }).await?;
    let theirs = SystemTime::from(now).duration_since(UNIX_EPOCH).unwrap_or_default();
    say_clock(report, "database", &name, theirs, before, asked.elapsed());

    let backlog = hob_database::outbox::backlog(database).await?;
    let waiting = backlog.unnumbered + backlog.unpublished;
    report.fact("outbox", &format!("{waiting} events wait to be published"));
    Ok(())
}

fn say_latency(report: &mut Report, about: &str, name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (median, worst) = (times[times.len() / 2], times[times.len() * 98 / 100]);
    let text = format!("{name} answers in {median:.1?}, 98 % within {worst:.1?}");
    match worst > SLOW {
        true => report.advise(about, &format!("{text}: put it nearer")),
        false => report.fact(about, &text),
    }
}

fn say_clock(
    report: &mut Report,
    about: &str,
    name: &str,
    theirs: Duration,
    before: SystemTime,
    took: Duration,
) {
    // Half of the round trip is as good a guess as any at when they looked.
    let ours = before.duration_since(UNIX_EPOCH).unwrap_or_default() + took / 2;
    let apart = ours.abs_diff(theirs);
    let text = format!("{name}'s clock and ours are {apart:.1?} apart");
    match apart > CLOCKS_APART + took {
        true => report.advise(about, &format!("{text}: set them by NTP")),
        false => report.fact(about, &text),
    }
}
