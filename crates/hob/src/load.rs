//! `hob load`: runs a plan from the terminal, without a server or on one, and compares runs.

mod compare;
mod server;

use std::ffi::OsStr;
use std::fs;
use std::io::IsTerminal;
use std::path::Path;

use anyhow::{Context, Result, bail};
use hob_load::generator::{DryRun, Targets};
use hob_load::plan::{Format, LoadModel, Plan};
use hob_load::{LocalRun, Report, Totals};
use hob_net::Outbound;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{self, LoadCommand, LoadRunArgs, LoadTargets, QuickArgs};
use crate::config;
use crate::exit::Exit;
use crate::remote::Remote;

pub(crate) fn run(command: &LoadCommand, file: Option<&Path>) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    match command {
        LoadCommand::Run(arguments) => match Remote::chosen(&arguments.server)? {
            Some(server) => runtime.block_on(server::run(&server, arguments)),
            None => runtime.block_on(run_plan(arguments, config::terminal_outbound(file)?)),
        },
        LoadCommand::Compare(arguments) => runtime.block_on(compare::run(arguments)),
        LoadCommand::Quick(arguments) => runtime.block_on(quick(arguments, config::terminal_outbound(file)?)),
        LoadCommand::Check { plan, dry_run, targets } => {
            let targets = targets.targets(config::terminal_outbound(file)?);
            let plan = read(plan)?;
            match check(&plan, &targets) {
                Exit::Clean if *dry_run => runtime.block_on(try_steps(plan, &targets)),
                exit => Ok(exit),
            }
        }
    }
}

fn check(plan: &Plan, targets: &Targets) -> Exit {
    let run_types: Vec<&str> = plan.run_types.iter().map(|run_type| run_type.name.as_str()).collect();
    let seconds = plan.duration().as_secs();
    print(&format!(
        "{}: {} steps, {seconds} s, run types: {}",
        plan.name,
        plan.steps.len(),
        run_types.join(", ")
    ));
    let refused = (0..plan.run_types.len()).find_map(|run_type| targets.check(plan, run_type).err());
    match refused {
        None => Exit::Clean,
        Some(refused) => {
            print(&format!("A run would be refused: {refused}"));
            Exit::Warnings
        }
    }
}

/// Sends each request of a plan once.
async fn try_steps(plan: Plan, targets: &Targets) -> Result<Exit> {
    let result = DryRun::run(plan, 0, targets).await?;
    for step in &result.steps {
        let outcome = step.failure.clone().unwrap_or_else(|| "passed".to_owned());
        let status = step.status.map_or_else(String::new, |status| format!(" {status}"));
        print(&format!(
            "{}: {} {}{status} {:.1} ms: {outcome}",
            step.step, step.method, step.url, step.duration_ms
        ));
        for check in &step.checks {
            print(&format!("  {}: {}", if check.passed { "holds" } else { "does not hold" }, check.check));
        }
        for value in &step.values {
            print(&format!("  {} = {}", value.name, value.value.as_deref().unwrap_or("(not found)")));
        }
    }
    if !result.skipped.is_empty() {
        print(&format!("Not run after a failure: {}", result.skipped.join(", ")));
    }
    Ok(if result.passed() { Exit::Clean } else { Exit::Errors })
}

impl LoadTargets {
    fn targets(&self, outbound: Outbound) -> Targets {
        Targets { hosts: self.allow.clone(), max_rate: f64::from(self.max_rate), outbound }
    }
}

async fn run_plan(arguments: &LoadRunArgs, outbound: Outbound) -> Result<Exit> {
    if arguments.runners.is_some() {
        cli::usage_error(&["load", "run"], "--runners is for runs on a server; see --server");
    }
    let plan = read(&arguments.plan)?;
    let run_type = match &arguments.run_type {
        None => 0,
        Some(name) => plan.run_type(name).with_context(|| format!("the plan has no run type {name:?}"))?,
    };
    let (report, ended) =
        run_locally(plan, run_type, &arguments.targets, arguments.threads, outbound).await?;
    print(&report.text());
    write_reports(&report, arguments)?;
    Ok(exit(&report, ended))
}

/// Writes the report into the files that the options name.
fn write_reports(report: &Report, arguments: &LoadRunArgs) -> Result<()> {
    write(arguments.out.as_deref(), || Ok(report.html()))?;
    write(arguments.json.as_deref(), || Ok(serde_json::to_string_pretty(report)?))?;
    write(arguments.junit.as_deref(), || Ok(report.junit()))
}

fn exit(report: &Report, ended: RunEnd) -> Exit {
    match ended {
        RunEnd::Interrupted => Exit::Warnings,
        RunEnd::Completed if !report.passed() => Exit::Errors,
        RunEnd::Completed => Exit::Clean,
    }
}

/// Reports wrong arguments of `hob load quick`.
fn usage_error(message: &str) -> ! {
    cli::usage_error(&["load", "quick"], message)
}

async fn quick(arguments: &QuickArgs, outbound: Outbound) -> Result<Exit> {
    let duration = arguments.duration.get();
    if duration.is_zero() || duration > Plan::MAX_DURATION {
        usage_error("--duration must be longer than 0 and at most a day");
    }
    let load = match arguments.rate {
        Some(rate) if rate > 0.0 && rate <= Plan::MAX_RATE => {
            LoadModel::rate(rate, duration, arguments.connections)
        }
        Some(_) => usage_error(&format!("--rate must be more than 0 and at most {}", Plan::MAX_RATE)),
        None => LoadModel::users(arguments.connections, duration),
    };
    let plan = Plan::quick(&arguments.url, load).unwrap_or_else(|error| usage_error(&error));
    let (report, ended) = run_locally(plan, 0, &arguments.targets, arguments.threads, outbound).await?;
    print(&report.text());
    Ok(exit(&report, ended))
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunEnd {
    /// At the end of the plan, or because a threshold aborted it.
    Completed,
    Interrupted,
}

async fn run_locally(
    plan: Plan,
    run_type: usize,
    options: &LoadTargets,
    threads: Option<u32>,
    outbound: Outbound,
) -> Result<(Report, RunEnd)> {
    let targets = options.targets(outbound);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = threads.unwrap_or_else(|| u32::try_from(cores).unwrap_or(1));
    let mut run = LocalRun::start(plan, run_type, &targets, threads).await?;
    let display = ProgressDisplay::new(run.plan());
    let mut interrupted = false;
    loop {
        tokio::select! {
            second = run.next() => match second {
                Some(totals) => {
                    let totals = totals.clone();
                    display.show(run.plan(), run_type, &totals);
                }
                None => break,
            },
            _ = tokio::signal::ctrl_c(), if !interrupted => {
                interrupted = true;
                run.stop();
            }
        }
    }
    display.done();
    if let Some(threshold) = run.aborted() {
        print(&format!("Aborted: threshold {threshold} was missed"));
    }
    let ended = if interrupted { RunEnd::Interrupted } else { RunEnd::Completed };
    Ok((Report::of(&run), ended))
}

fn read(path: &Path) -> Result<Plan> {
    read_plan(path, &|_, _| {})
}

/// Reads a plan, and passes on the name and the content of each file that it refers to.
fn read_plan(path: &Path, on_file: &dyn Fn(String, String)) -> Result<Plan> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let format = match path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase).as_deref() {
        Some("json") => Format::Json,
        Some("yaml" | "yml") => {
            bail!("{}: a plan is TOML (`.toml`) or JSON (`.json`); YAML is not supported", path.display())
        }
        _ => Format::Toml,
    };
    let beside = |name: &str| {
        let file = path.with_file_name(name);
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        on_file(name.to_owned(), text.clone());
        Ok(text)
    };
    Plan::read_with(&text, format, &beside).map_err(|mistake| {
        let at = mistake.at;
        anyhow::anyhow!("{}:{}:{}: {}", path.display(), at.line, at.column, mistake.what())
    })
}

fn write(path: Option<&Path>, text: impl FnOnce() -> Result<String>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, text()?).with_context(|| format!("cannot write {}", path.display()))
}

/// Shows the progress of a run on stderr, if that is a terminal.
struct ProgressDisplay(Option<ProgressBar>);

impl ProgressDisplay {
    fn new(plan: &Plan) -> Self {
        let make = || {
            let style = ProgressStyle::with_template("{bar:30} {pos} of {len} s  {msg}");
            let bar = ProgressBar::new(plan.duration().as_secs());
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        };
        Self(std::io::stderr().is_terminal().then(make))
    }

    fn show(&self, plan: &Plan, run_type: usize, totals: &Totals) {
        let (Some(bar), Some(point)) = (&self.0, totals.points().last()) else { return };
        let latency = &point.latency;
        let mut text = format!(
            "{} users  {}/s  p50 {:.2} ms  p99 {:.2} ms  {} failed",
            point.users,
            point.requests,
            latency.p50,
            latency.p99,
            totals.failed()
        );
        for result in totals.threshold_results(plan, run_type) {
            let sign = if result.met { '✓' } else { '✗' };
            text.push_str(&format!("\n  {sign} {}  (measured {})", result.threshold, result.measured()));
        }
        bar.set_position(u64::from(totals.seconds()));
        bar.set_message(text);
    }

    fn done(self) {
        if let Some(bar) = self.0 {
            bar.finish_and_clear();
        }
    }
}

#[expect(clippy::print_stdout, reason = "the output of a command")]
fn print(text: &str) {
    println!("{}", text.trim_end());
}
