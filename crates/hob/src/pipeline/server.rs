//! `hob pipeline run --server`: saves a plan on a server, runs it there, and waits for its end.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use hob_pipeline::plan::Plan;
use hob_pipeline::run::RunState;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Restart, print};
use crate::exit::Exit;
use crate::remote::Remote;

/// How often the progress is read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The answer to a saved plan: what a run costs.
#[derive(Deserialize)]
struct Cost {
    items: Option<u64>,
    calls: Option<u64>,
    seconds: Option<u64>,
    following: Vec<String>,
}

/// A run.
#[derive(Deserialize)]
struct Run {
    id: String,
    pipeline: String,
    state: RunState,
    calls: u64,
    trouble: Option<String>,
    #[serde(default)]
    items: Option<Items>,
    #[serde(default)]
    outputs: Option<Vec<Output>>,
}

/// Items by state.
#[derive(Clone, Copy, Default, Deserialize)]
struct Items {
    waiting: u64,
    claimed: u64,
    done: u64,
    quarantined: u64,
}

impl Items {
    fn total(self) -> u64 {
        self.waiting + self.claimed + self.done + self.quarantined
    }
}

#[derive(Deserialize)]
struct Output {
    sink: String,
    file: Option<String>,
    rows: u64,
}

pub(super) struct ServerPlan<'a> {
    server: &'a Remote,
    plan: Plan,
    path: &'a Path,
}

impl<'a> ServerPlan<'a> {
    pub(super) fn read(server: &'a Remote, path: &'a Path) -> Result<ServerPlan<'a>> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let plan = Plan::parse(&text).map_err(|bad| anyhow!("{}: {bad}", path.display()))?;
        Ok(ServerPlan { server, plan, path })
    }

    /// Prints the estimated number of calls.
    pub(super) async fn cost(&self) -> Result<Exit> {
        let cost: Cost = self.save(true).await?;
        let duration = cost.seconds.map(Duration::from_secs);
        super::print_cost(cost.items, cost.calls, duration, &cost.following);
        Ok(Exit::Clean)
    }

    pub(super) async fn run(&self, restart: Restart) -> Result<Exit> {
        let _: Cost = self.save(false).await?;
        let run = self.start_or_resume(restart).await?;
        let run = self.watch(&run.id).await?;
        let items = run.items.unwrap_or_default();
        print(&format!(
            "{} is {}: {} of {} items done, {} dead letters, {} calls{}",
            run.id,
            run.state,
            items.done,
            items.total(),
            items.quarantined,
            run.calls,
            if run.state == RunState::Running { "; it continues on the server" } else { "" },
        ));
        for Output { sink, file, rows } in run.outputs.iter().flatten() {
            if let Some(file) = file {
                print(&format!("  {sink}: {rows} lines in {file} on the server"));
            }
        }
        print_trouble(&run);
        let complete = run.state == RunState::Completed && items.quarantined == 0;
        Ok(if complete { Exit::Clean } else { Exit::Warnings })
    }

    async fn save(&self, dry_run: bool) -> Result<Cost> {
        let request = json!({ "source": self.plan.text, "dry_run": dry_run });
        let saved = self.server.post(&["pipelines"], &request).await;
        saved.with_context(|| self.path.display().to_string())
    }

    /// Resumes the newest run, or starts a new one.
    async fn start_or_resume(&self, restart: Restart) -> Result<Run> {
        let name = self.plan.name.to_string();
        let runs: Vec<Run> = self.server.list(self.server.url(&["pipelines", "runs"])).await?;
        // The newest comes first.
        let newest = runs.into_iter().find(|run| run.pipeline == name);
        match newest {
            Some(run) if run.state == RunState::Running && restart != Restart::Always => {
                print(&format!("Continuing run {}.", run.id));
                return Ok(run);
            }
            Some(run) if run.state == RunState::Paused && restart != Restart::Always => {
                print(&format!("Continuing run {}.", run.id));
                return self.act(&run.id, "resume").await;
            }
            Some(run) if matches!(run.state, RunState::Running | RunState::Paused) => {
                let run = self.act(&run.id, "cancel").await?;
                print(&format!("Run {} is {}.", run.id, run.state));
            }
            Some(run) if run.state == RunState::Completed && restart == Restart::Never => {
                let path = self.path.display();
                bail!("run {} is completed; `hob pipeline run --again {path}` starts a new one", run.id);
            }
            _ => {}
        }
        let run: Run = self.server.post(&["pipelines", &name, "runs"], &json!({})).await?;
        print(&format!("Starting run {}.", run.id));
        Ok(run)
    }

    async fn act(&self, id: &str, action: &str) -> Result<Run> {
        self.server.post(&["pipelines", "runs", id, action], &Value::Object(serde_json::Map::new())).await
    }

    /// Shows the progress of a run until it ends or is paused, or Ctrl-C.
    async fn watch(&self, id: &str) -> Result<Run> {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} items · {msg}");
        bar.set_style(style.context("invalid progress bar template")?);
        let mut trouble = None;
        let mut interrupted = false;
        loop {
            let run: Run = self.server.get_patiently(&["pipelines", "runs", id]).await?;
            let items = run.items.unwrap_or_default();
            bar.set_length(items.total());
            bar.set_position(items.done + items.quarantined);
            bar.set_message(format!("{} calls · {}", run.calls, HumanDuration(bar.elapsed())));
            // Without a terminal there is no bar.
            if run.trouble != trouble {
                bar.suspend(|| print_trouble(&run));
                trouble.clone_from(&run.trouble);
            }
            if run.state != RunState::Running || interrupted {
                bar.abandon();
                return Ok(run);
            }
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = tokio::signal::ctrl_c() => interrupted = true,
            }
        }
    }
}

fn print_trouble(run: &Run) {
    if let Some(trouble) = &run.trouble {
        print(&format!("  blocked: {trouble}"));
    }
}
