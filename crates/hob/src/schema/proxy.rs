//! `hob schema proxy`: checks every write on its way to a Redis.

use std::time::Duration;

use anyhow::Result;
use hob_schema_proxy::{Mode, Options, Proxy, Slots, Totals, UndeclaredScriptKeys};
use tokio::signal::unix::{SignalKind, signal};

use super::{address, catalog, layout, metrics, print};
use crate::cli::{self, ProxyArgs, ProxyMode};
use crate::exit::Exit;
use crate::serve::log;

pub(super) fn run(arguments: &ProxyArgs) -> Result<Exit> {
    let _log = log::start();
    super::wait(serve(arguments))
}

async fn serve(arguments: &ProxyArgs) -> Result<Exit> {
    let declared = &arguments.declared;
    let upstream = address(&arguments.upstream)?;
    let tagged = declared.tagged || upstream.is_cluster();
    if arguments.report_every.is_zero() {
        cli::usage_error(&["schema", "proxy"], "--report-every must not be zero");
    }
    let options = Options {
        listen: arguments.listen,
        upstream,
        mode: match arguments.mode {
            ProxyMode::Observe => Mode::Observe,
            ProxyMode::Warn => Mode::Warn,
            ProxyMode::Enforce => Mode::Enforce,
        },
        slots: if tagged { Slots::One } else { Slots::Any },
        undeclared_script_keys: if arguments.strict_scripts {
            UndeclaredScriptKeys::Always
        } else {
            UndeclaredScriptKeys::IfWritten
        },
        grace: arguments.grace,
        reads_per_second: arguments.reads_per_second,
        max_connections: arguments.max_clients.get(),
    };
    let catalog = catalog(&declared.schema, &declared.with, layout(tagged))?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let listener = match arguments.metrics {
        Some(address) => Some(metrics::listen(address).await?),
        None => None,
    };
    let proxy = Proxy::start(catalog, options).await?;
    let totals = proxy.totals();
    let served = totals.clone();
    print(&format!("redis://{}", proxy.address()))?;
    for (server, address) in proxy.servers() {
        print(&format!("  {server} is at {address}"))?;
    }
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = log_totals(&totals, arguments.report_every) => {}
        () = metrics::serve(listener, move || served.metrics()) => {}
    }
    proxy.stop().await;
    print(&totals.report())?;
    Ok(Exit::by(totals.worst()))
}

async fn log_totals(totals: &Totals, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        totals.log();
    }
}
