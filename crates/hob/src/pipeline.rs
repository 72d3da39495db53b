//! `hob pipeline`: runs a plan in the terminal, with an embedded engine and a database file next to the plan; or on a
//! server.

mod server;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use hob_database::{Address, Database, PageRequest};
use hob_net::Outbound;
use hob_pipeline::plan::{Plan, Sink};
use hob_pipeline::run::{Run, RunAction, RunState};
use hob_pipeline::{Config, FailureClass, ItemState, MIGRATIONS, Output, Pipelines, Progress, Runs};
use hob_schema::Layout;
use hob_service::config::{Hosts, SecretEntry, SecretName, SecretRef, Secrets, SecretsConfig};
use hob_service::{Live, NodeName, Section as _, ServiceContext};
use hob_store::{Address as StoreAddress, Store};
use hob_web::{Changes, Service as _};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::cli::{self, PipelineCommand};
use crate::config;
use crate::exit::Exit;
use crate::remote::Remote;
use server::ServerPlan;

/// How often progress is read.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The quotas of the plans in a folder.
const QUOTA_FILE: &str = "hob-quotas.db";
const STOP_TIMEOUT: Duration = Duration::from_secs(40);

pub(crate) fn run(command: &PipelineCommand, file: Option<&Path>) -> Result<Exit> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        match command {
            PipelineCommand::Run { plan, secret, dry_run, again, fresh, quota_file, server } => {
                let restart = match (again, fresh) {
                    (_, true) => Restart::Always,
                    (true, false) => Restart::Completed,
                    (false, false) => Restart::Never,
                };
                if let Some(server) = Remote::chosen(server)? {
                    refuse_local_options(secret, quota_file.as_deref());
                    let plan = ServerPlan::read(&server, plan)?;
                    return if *dry_run { plan.cost().await } else { plan.run(restart).await };
                }
                let (secrets, outbound) = (secrets(secret, file)?, config::terminal_outbound(file)?);
                let config = config::terminal_pipeline(file)?;
                // The estimate needs a database, but must not leave one behind.
                let scratch = tempfile::tempdir().context("cannot create a temporary folder")?;
                let database = if *dry_run { scratch.path().join("hob.db") } else { database_file(plan) };
                let mut local = LocalPlan::open(plan, &database).await?;
                local.config = Config { folder: local.folder.clone(), ..config };
                local.outbound = outbound;
                if let Some(quota_file) = quota_file {
                    local.quota_file.clone_from(quota_file);
                }
                if *dry_run {
                    if !local.quota_file.is_file() {
                        local.quota_file = scratch.path().join(QUOTA_FILE);
                    }
                    return local.cost(secrets).await;
                }
                local.run(secrets, restart).await
            }
            PipelineCommand::Status { plan } => LocalPlan::open_existing(plan).await?.status().await,
            PipelineCommand::Pause { plan } => {
                LocalPlan::open_existing(plan).await?.apply(RunAction::Pause).await
            }
            PipelineCommand::Resume { plan } => {
                LocalPlan::open_existing(plan).await?.apply(RunAction::Resume).await
            }
            PipelineCommand::Failed { plan } => LocalPlan::open_existing(plan).await?.failed().await,
            PipelineCommand::Replay { plan, class } => {
                LocalPlan::open_existing(plan).await?.replay(class.as_deref()).await
            }
        }
    })
}

/// The server has its own secrets and quotas.
fn refuse_local_options(secrets: &[String], quota_file: Option<&Path>) {
    let usage_error = |message: &str| cli::usage_error(&["pipeline", "run"], message);
    if !secrets.is_empty() {
        usage_error("--secret is for runs without a server; a server has its own, under [secrets]");
    }
    if quota_file.is_some() {
        usage_error("--quota-file is for runs without a server; plans on a server share their quotas");
    }
}

/// Prints how many calls a run makes, and how long its quota lets them take.
fn print_cost(items: Option<u64>, calls: Option<u64>, duration: Option<Duration>, following: &[String]) {
    match (items, calls, duration) {
        (Some(items), Some(calls), Some(Duration::ZERO)) => {
            print(&format!("{items} items, {calls} calls; the quota allows them at once"));
        }
        (Some(items), Some(calls), Some(duration)) => {
            let time = HumanDuration(duration);
            print(&format!("{items} items, {calls} calls; the quota allows them in about {time}"));
        }
        _ => print("the source is a listing; its length is unknown before the run"),
    }
    if !following.is_empty() {
        let steps = following.join(", ");
        print(&format!(
            "further calls for items that follow from them ({steps}); their number is unknown before the run"
        ));
    }
}

/// The database of a plan, next to it.
fn database_file(plan: &Path) -> PathBuf {
    plan.with_extension("hob.db")
}

/// Which runs are followed by a new one instead of being resumed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Restart {
    Never,
    Completed,
    /// Unfinished ones, too. They are cancelled.
    Always,
}

/// A plan file and its database.
struct LocalPlan {
    plan: Plan,
    path: PathBuf,
    folder: PathBuf,
    lock: PathBuf,
    quota_file: PathBuf,
    config: Config,
    database: Database,
    runs: Runs,
    outbound: Outbound,
}

impl LocalPlan {
    /// Opens a plan whose database exists: it has run before.
    async fn open_existing(path: &Path) -> Result<Self> {
        let file = database_file(path);
        if !file.is_file() {
            bail!("the plan has not run yet: there is no {}", file.display());
        }
        Self::open(path, &file).await
    }

    async fn open(path: &Path, file: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let plan = Plan::parse(&text).map_err(|bad| anyhow!("{}: {bad}", path.display()))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let database = Database::open(&Address::sqlite(file), &[MIGRATIONS]).await;
        let database = database.with_context(|| format!("cannot open {}", file.display()))?;
        let runs = Runs::new(&database);
        Ok(Self {
            plan,
            path: path.to_owned(),
            folder: folder.to_owned(),
            lock: path.with_extension("hob.lock"),
            quota_file: folder.join(QUOTA_FILE),
            config: Config::default(),
            database,
            runs,
            outbound: Outbound::default(),
        })
    }

    async fn pipelines(&self, secrets: Secrets) -> Result<(ServiceContext, Pipelines)> {
        let store = Store::connect(&StoreAddress::Embedded).await?;
        let mut context =
            ServiceContext::new(store, Layout::Plain, self.database.clone(), NodeName::random());
        context.secrets = secrets;
        context.outbound = self.outbound.clone();
        let config = Live::fixed(self.config.clone());
        let pipelines = Pipelines::open_with_file(&context, config, &self.quota_file).await?;
        Ok((context, pipelines))
    }

    async fn cost(&self, secrets: Secrets) -> Result<Exit> {
        let (_, pipelines) = self.pipelines(secrets).await?;
        let cost = pipelines.cost(&self.plan).await?;
        print_cost(cost.items, cost.calls, cost.duration, &cost.following);
        Ok(Exit::Clean)
    }

    async fn run(&self, secrets: Secrets, restart: Restart) -> Result<Exit> {
        let lock =
            File::create(&self.lock).with_context(|| format!("cannot write {}", self.lock.display()))?;
        // A lock, because two processes would each use the whole quota.
        if lock.try_lock().is_err() {
            bail!("another process is running this plan");
        }
        let (context, pipelines) = self.pipelines(secrets).await?;
        pipelines.put_plan(&self.plan.text).await?;
        pipelines.check_secrets(&self.plan)?;
        let run = self.start_or_resume(&pipelines, restart).await?;
        pipelines.start(&Changes::detached(&context));
        let ended = tokio::select! {
            ended = watch(&pipelines, &run) => ended,
            _ = tokio::signal::ctrl_c() => Ok(()),
        };
        let late = context.tasks.stop(STOP_TIMEOUT).await;
        ended?;
        let (run, progress) = (self.runs.run(&run.id).await?, self.runs.progress(&run.id).await?);
        let dead_letters = progress.of(ItemState::Quarantined);
        print(&format!(
            "{} is {}: {} of {} items done, {dead_letters} dead letters, {} calls{}",
            run.id,
            run.state,
            progress.of(ItemState::Done),
            progress.total(),
            run.calls,
            if run.state == RunState::Running { "; run the same command to resume" } else { "" },
        ));
        self.print_outputs(&run, dead_letters).await?;
        print_trouble(&run);
        self.database.close().await;
        if !late.is_empty() {
            bail!("these tasks did not stop in time: {}", late.join(", "));
        }
        let complete = run.state == RunState::Completed && dead_letters == 0;
        Ok(if complete { Exit::Clean } else { Exit::Warnings })
    }

    /// Resumes the newest run, or starts a new one.
    async fn start_or_resume(&self, pipelines: &Pipelines, restart: Restart) -> Result<Run> {
        let mut newest = self.runs.newest(&self.plan.name).await?;
        if let Some(run) = &mut newest
            && matches!(run.state, RunState::Running | RunState::Paused)
        {
            if restart != Restart::Always {
                print(&format!("Continuing run {}.", run.id));
                if run.text != self.plan.text {
                    print(
                        "The plan has changed; this run keeps the plan that it started with (--fresh starts a new run).",
                    );
                }
                return Ok(self.runs.apply(&run.id, RunAction::Resume).await?);
            }
            *run = pipelines.apply(&run.id, RunAction::Cancel).await?;
        }
        if let Some(run) = newest.as_ref().filter(|run| run.state == RunState::Completed)
            && restart == Restart::Never
        {
            let path = self.path.display();
            bail!("run {} is completed; `hob pipeline run --again {path}` starts a new one", run.id);
        }
        if let Some(run) = newest {
            print(&format!("Run {} is {}. Its output is kept:", run.id, run.state));
            self.print_files(&run).await?;
        }
        let run = pipelines.start_run(&self.plan.name, None).await?;
        print(&format!("Starting run {}.", run.id));
        Ok(run)
    }

    /// Prints the output files of a run.
    async fn print_files(&self, run: &Run) -> Result<Vec<Output>> {
        let mut outputs = self.runs.outputs(&run.id).await?;
        outputs.retain(|output| !output.file.is_empty());
        for output in &outputs {
            let path = self.folder.join(&output.file);
            print(&format!("  {}: {} lines in {}", output.sink, output.rows, path.display()));
        }
        Ok(outputs)
    }

    /// Prints the output files of a run and the links to them.
    async fn print_outputs(&self, run: &Run, dead_letters: u64) -> Result<()> {
        for output in self.print_files(run).await? {
            let Some(Sink::JsonLines { path }) = self.plan.sinks.get(&output.sink) else { continue };
            let Some(path) = path.link().map(|link| self.folder.join(link)) else { continue };
            let Ok(target) = std::fs::read_link(&path) else { continue };
            let ours = Path::new(&output.file).file_name();
            if ours == Some(target.as_os_str()) {
                print(&format!("  {} links to it", path.display()));
            } else if run.state == RunState::Completed && dead_letters > 0 {
                print(&format!(
                    "  {} still links to {}, the output of a run without dead letters",
                    path.display(),
                    target.display()
                ));
            }
        }
        Ok(())
    }

    async fn newest(&self) -> Result<Run> {
        let run = self.runs.newest(&self.plan.name).await?;
        run.ok_or_else(|| anyhow!("plan {} has no runs", self.plan.name))
    }

    async fn status(&self) -> Result<Exit> {
        let run = self.newest().await?;
        let progress = self.runs.progress(&run.id).await?;
        print(&format!("{} is {}, {} calls", run.id, run.state, run.calls));
        for (step, state, count) in &progress.steps {
            print(&format!("  {step:<20} {state:<12} {count:>9}"));
        }
        self.print_files(&run).await?;
        for (class, state, count) in &progress.failures {
            print(&format!("  failed: {class:<12} {state:<12} {count:>9}"));
        }
        print_trouble(&run);
        Ok(Exit::Clean)
    }

    async fn apply(&self, action: RunAction) -> Result<Exit> {
        let run = self.runs.apply(&self.newest().await?.id, action).await?;
        print(&format!("{} is {}", run.id, run.state));
        Ok(Exit::Clean)
    }

    async fn failed(&self) -> Result<Exit> {
        let run = self.newest().await?;
        let mut request = PageRequest::first(500);
        loop {
            let page = self.runs.items(&run.id, Some(ItemState::Quarantined), None, &request).await?;
            for item in page.rows {
                let class = item.class.map_or("", FailureClass::as_str);
                print(&format!("{}\t{}\t{class}\t{}\t{}", item.step, item.key, item.attempts, item.error));
            }
            match page.next {
                Some(next) => request = PageRequest::first(500).after(next),
                None => return Ok(Exit::Clean),
            }
        }
    }

    async fn replay(&self, class: Option<&str>) -> Result<Exit> {
        let class = class
            .map(str::parse::<FailureClass>)
            .transpose()
            .map_err(|reason| anyhow!("--class: {reason}"))?;
        let items = self.runs.replay(&self.newest().await?.id, class).await?;
        print(&format!("{items} items will be retried; start them with `hob pipeline run`"));
        Ok(Exit::Clean)
    }
}

/// Shows the progress of a run until it ends or is paused.
async fn watch(pipelines: &Pipelines, run: &Run) -> Result<()> {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} items · {msg}")
        .context("invalid progress bar template")?;
    bar.set_style(style);
    let mut trouble = String::new();
    loop {
        let now = pipelines.run(&run.id).await?;
        show(&bar, &pipelines.progress(&run.id).await?, now.state);
        bar.set_message(message(pipelines, &now).await);
        // Without a terminal there is no bar.
        if now.trouble != trouble {
            bar.suspend(|| print_trouble(&now));
            trouble.clone_from(&now.trouble);
        }
        if now.state != RunState::Running {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A bar that has ended stays at its position: a run may stop before all items are done.
fn show(bar: &ProgressBar, progress: &Progress, state: RunState) {
    bar.set_length(progress.total());
    bar.set_position(progress.of(ItemState::Done) + progress.of(ItemState::Quarantined));
    if state != RunState::Running {
        bar.abandon();
    }
}

fn print_trouble(run: &Run) {
    if !run.trouble.is_empty() {
        print(&format!("  blocked: {}", run.trouble));
    }
}

/// Calls, remaining calls per window, and remaining time.
async fn message(pipelines: &Pipelines, run: &Run) -> String {
    let mut message = format!("{} calls", run.calls);
    let plan = Plan::parse(&run.text).ok();
    if let Some(plan) = &plan
        && let Ok(usage) = pipelines.quotas().usage(&plan.quota).await
    {
        for window in &usage.windows {
            message += &format!(
                " · {} of {} calls left per {}",
                window.left(),
                window.usable,
                HumanDuration(window.period)
            );
        }
        if let Some(until) = usage.blocked_until {
            message += &format!(" · API refuses calls for {}", HumanDuration(until.since(usage.now)));
        }
    }
    if let Ok(forecast) = pipelines.forecast(&run.id).await
        && let Some([_, expected, _]) = forecast.duration
    {
        message += &format!(" · {} remaining", HumanDuration(expected));
    }
    if !run.trouble.is_empty() {
        message += &format!(" · {}", run.trouble);
    }
    message
}

/// The secrets of the command line, or else those of the configuration. A plan may send secrets of the command line to
/// any host.
fn secrets(given: &[String], file: Option<&Path>) -> Result<Secrets> {
    if given.is_empty() {
        return Ok(Secrets::new(Live::fixed(config::load(file)?.config.secrets)));
    }
    let mut list: Vec<(SecretName, SecretEntry)> = Vec::new();
    for pair in given {
        // The error does not repeat the text, because it may be the secret itself.
        let (name, reference) = pair
            .split_once('=')
            .context("--secret must have the form NAME=env:VARIABLE or NAME=file:PATH")?;
        let from: SecretRef = reference.parse().context("--secret")?;
        from.read().with_context(|| format!("--secret {name}"))?;
        let entry = SecretEntry { from, services: vec![Config::NAME.to_owned()], hosts: Hosts::Any };
        list.push((name.parse().context("--secret")?, entry));
    }
    Ok(Secrets::new(Live::fixed(SecretsConfig::from_iter(list))))
}

#[expect(clippy::print_stdout, reason = "output of a command")]
fn print(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_of_a_paused_run_stays_at_its_position() {
        let bar = ProgressBar::hidden();
        let steps = vec![("s".to_owned(), ItemState::Done, 18), ("s".to_owned(), ItemState::Waiting, 31)];
        show(&bar, &Progress { steps, failures: Vec::new() }, RunState::Paused);
        assert_eq!((bar.position(), bar.length()), (18, Some(49)));
        assert!(bar.is_finished());
    }
}
