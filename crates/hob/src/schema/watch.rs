//! `hob schema watch`: audits a Redis again and again, and serves metrics.

use anyhow::Result;
use hob_schema_audit::{AuditOptions, Pace, Watch, WatchOptions};
use tokio::signal::unix::{SignalKind, signal};

use super::{address, declared_catalog, metrics, print, sampling, wait};
use crate::cli::{self, WatchArgs};
use crate::exit::Exit;
use crate::serve::log;

pub(super) fn run(arguments: &WatchArgs) -> Result<Exit> {
    let _log = log::start();
    wait(watch(arguments))
}

async fn watch(arguments: &WatchArgs) -> Result<Exit> {
    if arguments.every.is_zero() {
        cli::usage_error(&["schema", "watch"], "--every must not be zero");
    }
    let address = address(&arguments.url)?;
    let catalog = declared_catalog(&arguments.declared, &address)?;
    let options = WatchOptions {
        every: arguments.every,
        audit: AuditOptions {
            pace: Pace::KeysPerSecond(arguments.pace),
            sampling: sampling(&arguments.sample),
        },
        grace: arguments.grace,
        reads_per_second: arguments.reads_per_second,
        history: arguments.history.clone(),
    };
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let listener = match arguments.metrics {
        Some(address) => Some(metrics::listen(address).await?),
        None => None,
    };
    let watch = Watch::connect(&address, catalog, options).await?;
    let served = watch.clone();
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = watch.run() => {}
        () = metrics::serve(listener, move || served.metrics()) => {}
    }
    print(&watch.last_report().unwrap_or_else(|| "no audit was completed\n".to_owned()))
}
