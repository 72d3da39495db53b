//! `hob load`: load tests from the terminal, without a server.

use std::fs;
use std::io::IsTerminal;
use std::path::Path;

use anyhow::{Context, Result, bail};
use hob_load::generator::Targets;
use hob_load::plan::{Format, Load, Plan};
use hob_load::{LocalRun, Report, Tally};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{LoadCommand, LoadRunArgs, LoadTargets, QuickArgs};
use crate::exit::Exit;

pub(crate) fn run(command: &LoadCommand) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("could not start the runtime")?;
    match command {
        LoadCommand::Run(arguments) => runtime.block_on(run_plan(arguments)),
        LoadCommand::Quick(arguments) => runtime.block_on(quick(arguments)),
        LoadCommand::Check { plan } => check(plan),
    }
}

fn check(path: &Path) -> Result<Exit> {
    let plan = read(path)?;
    let kinds: Vec<&str> = plan.run_types.iter().map(|kind| kind.name.as_str()).collect();
    let seconds = plan.duration().as_secs();
    say(&format!(
        "{}: {} steps, {seconds} s, kinds of runs: {}",
        plan.name,
        plan.steps.len(),
        kinds.join(", ")
    ));
    Ok(Exit::Clean)
}

async fn run_plan(arguments: &LoadRunArgs) -> Result<Exit> {
    let plan = read(&arguments.plan)?;
    let kind = match &arguments.run_type {
        None => 0,
        Some(name) => plan.run_type(name).with_context(|| format!("the plan has no kind of run {name:?}"))?,
    };
    let (report, ended) = drive(plan, kind, &arguments.targets).await?;
    say(&report.text());
    write(arguments.out.as_deref(), || Ok(report.html()))?;
    write(arguments.json.as_deref(), || Ok(serde_json::to_string_pretty(&report)?))?;
    write(arguments.junit.as_deref(), || Ok(report.junit()))?;
    Ok(match ended {
        Ended::Interrupted => Exit::Warnings,
        _ if !report.passed() => Exit::Errors,
        Ended::Whole | Ended::Aborted => Exit::Clean,
    })
}

async fn quick(arguments: &QuickArgs) -> Result<Exit> {
    let lasting = arguments.duration.get();
    if lasting.is_zero() || lasting > Plan::LONGEST {
        bail!("--duration is more than nothing and at most a day");
    }
    let load = match arguments.rate {
        Some(rate) if rate > 0.0 && rate <= Plan::MOST_RATE => {
            Load::rate(rate, lasting, arguments.connections)
        }
        Some(_) => bail!("--rate is more than 0 and at most {}", Plan::MOST_RATE),
        None => Load::users(arguments.connections, lasting),
    };
    let plan = Plan::quick(&arguments.url, load).map_err(anyhow::Error::msg)?;
    let (report, _) = drive(plan, 0, &arguments.targets).await?;
    say(&report.text());
    Ok(Exit::Clean)
}

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Whole,
    Aborted,
    Interrupted,
}

async fn drive(plan: Plan, kind: usize, options: &LoadTargets) -> Result<(Report, Ended)> {
    let targets = Targets { hosts: options.allow.clone(), most_rate: f64::from(options.most_rate) };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = options.threads.unwrap_or_else(|| u32::try_from(cores).unwrap_or(1));
    let mut run = LocalRun::start(plan, kind, &targets, threads).await?;
    let screen = Screen::new(run.plan());
    let mut interrupted = false;
    loop {
        tokio::select! {
            second = run.next() => match second {
                Some(tally) => {
                    let tally = tally.clone();
                    screen.show(run.plan(), &tally);
                }
                None => break,
            },
            _ = tokio::signal::ctrl_c(), if !interrupted => {
                interrupted = true;
                run.stop();
            }
        }
    }
    screen.done();
    let ended = match (interrupted, run.aborted()) {
        (true, _) => Ended::Interrupted,
        (_, Some(_)) => Ended::Aborted,
        _ => Ended::Whole,
    };
    Ok((run.report(), ended))
}

fn read(path: &Path) -> Result<Plan> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let format =
        if path.extension().is_some_and(|ending| ending == "json") { Format::Json } else { Format::Toml };
    let beside = |name: &str| {
        let file = path.with_file_name(name);
        fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
    };
    Plan::read_with(&text, format, &beside).map_err(|mistake| {
        let at = mistake.at;
        anyhow::anyhow!("{}:{}:{}: {}", path.display(), at.line, at.column, mistake.what())
    })
}

fn write(path: Option<&Path>, text: impl FnOnce() -> Result<String>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, text()?).with_context(|| format!("could not write {}", path.display()))
}

/// The run as it goes, for a person; nothing where stderr is a file or a pipe.
struct Screen(Option<ProgressBar>);

impl Screen {
    fn new(plan: &Plan) -> Self {
        let make = || {
            let style = ProgressStyle::with_template("{bar:30} {pos} of {len} s  {msg}");
            let bar = ProgressBar::new(plan.duration().as_secs());
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        };
        Self(std::io::stderr().is_terminal().then(make))
    }

    fn show(&self, plan: &Plan, tally: &Tally) {
        let (Some(bar), Some(point)) = (&self.0, tally.points().last()) else { return };
        let latency = &point.latency;
        let mut text = format!(
            "{} users  {}/s  p50 {:.2} ms  p99 {:.2} ms  {} failed",
            point.users,
            point.requests,
            latency.p50,
            latency.p99,
            tally.failed()
        );
        for verdict in tally.verdicts(plan) {
            let sign = if verdict.met { '✓' } else { '✗' };
            text.push_str(&format!("\n  {sign} {}  (is {})", verdict.threshold, verdict.measured()));
        }
        bar.set_position(u64::from(tally.seconds()));
        bar.set_message(text);
    }

    fn done(self) {
        if let Some(bar) = self.0 {
            bar.finish_and_clear();
        }
    }
}

#[expect(clippy::print_stdout, reason = "the answer of a command")]
fn say(text: &str) {
    println!("{}", text.trim_end());
}
