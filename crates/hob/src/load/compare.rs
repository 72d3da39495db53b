//! `hob load compare`: two runs side by side, from report files or from a server.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use hob_load::{Comparison, Report};

use super::{print, server};
use crate::cli::LoadCompareArgs;
use crate::exit::Exit;
use crate::remote::Remote;

pub(super) async fn run(arguments: &LoadCompareArgs) -> Result<Exit> {
    let remote = Remote::chosen(&arguments.server)?;
    let before = report(remote.as_ref(), &arguments.before).await?;
    let after = report(remote.as_ref(), &arguments.after).await?;
    let comparison = Comparison::new(&before, &after);
    print(&format!("A  {}\nB  {}\n", title(&arguments.before, &before), title(&arguments.after, &after)));
    print(&comparison.text());
    let Some(max_increase) = arguments.max_increase else { return Ok(Exit::Clean) };
    let regressions = comparison.regressions(max_increase);
    regressions.iter().for_each(|line| print(&format!("✗ {line}")));
    if regressions.is_empty() {
        print(&format!("✓ nothing grew by more than {max_increase} %"));
        return Ok(Exit::Clean);
    }
    Ok(Exit::Errors)
}

/// A report file, or else the report of a run on the server.
async fn report(remote: Option<&Remote>, name: &str) -> Result<Report> {
    let path = Path::new(name);
    match remote {
        Some(remote) if !path.is_file() => server::run_report(remote, name).await,
        None if !path.exists() => {
            bail!("there is no report file {name}; for a run on a server, set --server or HOB_SERVER")
        }
        _ => {
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
            serde_json::from_str(&text)
                .with_context(|| format!("{name} is not a report of `hob load run --json`"))
        }
    }
}

fn title(name: &str, report: &Report) -> String {
    let Report { name: plan, run_type, requests, seconds, .. } = report;
    format!("{name}: {plan} ({run_type}), {requests} requests in {seconds} s")
}
