//! `hob uptime list`: the monitors as the records have them.
#![expect(clippy::print_stdout, reason = "the answer of a command")]

use std::path::Path;

use anyhow::{Context, Result};
use hob_uptime::monitor::Monitor;
use hob_uptime::{incident, monitor};
use hob_web::Time;

use crate::config;
use crate::exit::Exit;
use crate::records;

/// Exits with 4 when something is down.
pub(crate) fn run(file: Option<&Path>) -> Result<Exit> {
    let config = config::load(file)?.config;
    let runtime = tokio::runtime::Runtime::new().context("could not start the runtime")?;
    runtime.block_on(async {
        let records = records::open_existing(&config.records).await?;
        let monitors = monitor::all(&records).await?;
        let open = incident::open(&records).await?;
        println!("{:24}  {:24}  {:11}  {:8}  target", "id", "name", "kind", "every");
        for monitor in &monitors {
            let down = open.iter().find(|incident| incident.monitor_id == monitor.id);
            let state = match down {
                Some(incident) => format!("  DOWN since {}: {}", Time(incident.opened_at), incident.message),
                None if monitor.spec.paused => "  paused".to_owned(),
                None => String::new(),
            };
            println!("{}{state}", line(monitor));
        }
        records.close().await;
        Ok(if open.is_empty() { Exit::Clean } else { Exit::Errors })
    })
}

fn line(monitor: &Monitor) -> String {
    let spec = &monitor.spec;
    let every = format!("{} s", spec.interval_s);
    format!(
        "{:24}  {:24}  {:11}  {every:8}  {}",
        monitor.id.as_str(),
        spec.name,
        spec.kind.as_str(),
        spec.target
    )
}
