//! `hob load run --server`: saves a plan on a server, queues a run, and waits for its report.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hob_load::plan::{Format, Plan};
use hob_load::{Report, RunState};
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::json;

use super::{RunEnd, exit, print, read_plan, write_reports};
use crate::cli::{self, LoadRunArgs};
use crate::exit::Exit;
use crate::remote::Remote;

/// How often the state of a run is read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A plan in the list of plans.
#[derive(Deserialize)]
struct PlanItem {
    id: i64,
    name: String,
}

/// A saved plan.
#[derive(Deserialize)]
struct SavedPlan {
    id: i64,
    version: u32,
    format: Format,
    source: String,
    files: BTreeMap<String, String>,
}

/// A run.
#[derive(Deserialize)]
struct Run {
    id: String,
    state: RunState,
    message: String,
}

/// A plan file, and the files that it refers to.
struct PlanFile {
    plan: Plan,
    source: String,
    format: Format,
    files: BTreeMap<String, String>,
}

pub(super) async fn run(server: &Remote, arguments: &LoadRunArgs) -> Result<Exit> {
    refuse_local_options(arguments);
    let file = PlanFile::read(&arguments.plan)?;
    if let Some(name) = &arguments.run_type {
        file.plan.run_type(name).with_context(|| format!("the plan has no run type {name:?}"))?;
    }
    let plan = save(server, &file).await?;
    let request = json!({ "run_type": arguments.run_type, "runners": arguments.runners });
    let run: Run = server.post(&["load", "plans", &plan.to_string(), "runs"], &request).await?;
    if !arguments.wait {
        print(&format!("Queued run {}: {}", run.id, server.page(&["load", "runs", &run.id])));
        return Ok(Exit::Clean);
    }
    let (run, ended) = wait_for_end(server, run).await?;
    let report = match (run.state, run_report(server, &run.id).await) {
        (RunState::Completed | RunState::Cancelled, Ok(report)) => report,
        // A run that misses a threshold has failed.
        (RunState::Failed, Ok(report)) if !report.passed() => report,
        // Cancelled before it started.
        (RunState::Cancelled, Err(_)) => return Ok(Exit::Warnings),
        (RunState::Completed, Err(error)) => return Err(error),
        (state, _) => bail!("run {} is {state}: {}", run.id, run.message),
    };
    print(&report.text());
    write_reports(&report, arguments)?;
    Ok(exit(&report, ended))
}

/// The report of a run, also for `hob load compare`.
pub(super) async fn run_report(server: &Remote, id: &str) -> Result<Report> {
    server.get_patiently(&["load", "runs", id, "report"]).await.with_context(|| format!("run {id}"))
}

/// The server decides which hosts may be tested, and how many threads it uses.
fn refuse_local_options(arguments: &LoadRunArgs) {
    let usage_error = |message: &str| cli::usage_error(&["load", "run"], message);
    if !arguments.targets.allow.is_empty() {
        usage_error("--allow is for runs without a server; on a server, [load] hosts lists the hosts");
    }
    if arguments.threads.is_some() {
        usage_error(
            "--threads is for runs without a server; on a server, --runners sets the number of nodes",
        );
    }
    let reports = arguments.out.is_some() || arguments.json.is_some() || arguments.junit.is_some();
    if reports && !arguments.wait {
        usage_error("a report needs the end of the run: add --wait");
    }
}

impl PlanFile {
    fn read(path: &Path) -> Result<PlanFile> {
        let files = RefCell::new(BTreeMap::new());
        let plan = read_plan(path, &|name, text| drop(files.borrow_mut().insert(name, text)))?;
        let source = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let is_json =
            path.extension().and_then(OsStr::to_str).is_some_and(|end| end.eq_ignore_ascii_case("json"));
        let format = if is_json { Format::Json } else { Format::Toml };
        Ok(PlanFile { plan, source, format, files: files.into_inner() })
    }
}

/// Saves a new version of the plan with this name, or a new plan, and returns its id. A plan that has not changed keeps its
/// version.
async fn save(server: &Remote, file: &PlanFile) -> Result<i64> {
    let plans: Vec<PlanItem> = server.list(server.url(&["load", "plans"])).await?;
    let body = |version: Option<u32>| json!({ "source": file.source, "format": file.format, "files": file.files, "version": version });
    let Some(known) = plans.iter().find(|plan| plan.name == file.plan.name) else {
        let saved: SavedPlan = server.post(&["load", "plans"], &body(None)).await?;
        return Ok(saved.id);
    };
    let id = known.id.to_string();
    let saved: SavedPlan = server.get(&["load", "plans", &id]).await?;
    let same = (saved.format, &saved.source, &saved.files) == (file.format, &file.source, &file.files);
    if !same {
        let _: SavedPlan = server.put(&["load", "plans", &id], &body(Some(saved.version))).await?;
    }
    Ok(saved.id)
}

/// Waits until the run has ended. The first Ctrl-C cancels it.
async fn wait_for_end(server: &Remote, mut run: Run) -> Result<(Run, RunEnd)> {
    let id = run.id.clone();
    let bar = ProgressBar::new_spinner();
    let mut ended = RunEnd::Completed;
    while !run.state.is_final() {
        bar.set_message(format!("run {id} is {}", run.state));
        bar.tick();
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            _ = tokio::signal::ctrl_c(), if ended == RunEnd::Completed => {
                ended = RunEnd::Interrupted;
                // The run may have ended in the meantime.
                let _: Result<Run> = server.post(&["load", "runs", &id, "cancel"], &json!({})).await;
            }
        }
        run = server.get_patiently(&["load", "runs", &id]).await?;
    }
    bar.finish_and_clear();
    if run.state == RunState::Cancelled {
        ended = RunEnd::Interrupted;
    }
    Ok((run, ended))
}
