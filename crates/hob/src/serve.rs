//! `hob serve`: opens what the systems stand on, serves until it is told to stop, and stops in order.

pub(crate) mod foundation;
pub(crate) mod http;
mod log;
mod metrics;
mod relay;
#[cfg(test)]
mod route_table;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hob_service::{Task, nodes};
use hob_web::{App, Stage, Web};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::ServeOptions;
use crate::config::{self, Config, Loaded};
use crate::pages;
use crate::services::{Outlets, Services};
use foundation::Foundation;
use http::{Parts, Place};

/// How long background tasks may take to put down what they hold.
const TASKS_STOP_WITHIN: Duration = Duration::from_secs(10);
/// How long the end of the process waits for threads that are still at work, such as one with a client's script.
const THREADS_STOP_WITHIN: Duration = Duration::from_secs(1);

pub(crate) fn run(options: &ServeOptions, file: Option<&Path>) -> Result<()> {
    let loaded = config::load(file)?;
    let _log = log::start();
    for variable in loaded.unknown_variables() {
        tracing::warn!(variable, "unknown environment variable");
    }
    let runtime = tokio::runtime::Runtime::new().context("could not start the runtime")?;
    let served = runtime.block_on(serve(loaded, options, file));
    // Dropping the runtime would wait for these threads, and a script may never return from a call of Lua's library.
    runtime.shutdown_timeout(THREADS_STOP_WITHIN);
    served
}

async fn serve(loaded: Loaded, options: &ServeOptions, file: Option<&Path>) -> Result<()> {
    let stage = if options.demo { Stage::Demo } else { Stage::Real };
    // Before anything that counts: what counts earlier counts for nobody.
    let recorder = PrometheusBuilder::new().install_recorder().context("could not record metrics")?;
    metrics::describe();
    let socket = bind(options.listen.unwrap_or(loaded.config.server.listen), stage).await?;
    let demo_folder = match stage {
        Stage::Demo => Some(tempfile::tempdir().context("no temporary folder")?),
        Stage::Real => None,
    };
    let overrides = Overrides {
        options: options.clone(),
        listen: socket.local_addr()?,
        demo_folder: demo_folder.as_ref().map(|folder| folder.path().to_owned()),
    };
    let config = overrides.apply(loaded.config.clone());
    let live = loaded.live(config.clone())?;
    let foundation = Foundation::open(&config, live.secrets.clone(), stage).await?;
    let context = foundation.context.clone();
    let web = Web::open(&context, live.server.clone())?;
    web.start();
    let demo = demo_folder.as_ref().map(tempfile::TempDir::path);
    let services = Services::open(&web, &live.services, &options.only, demo).await?;
    relay::start(&context, Outlets::new(&web, &services, Arc::clone(&live.services)));
    let place = Place::new(&config, &foundation, services.urls());
    let stopping = CancellationToken::new();
    let parts = Parts {
        context: context.clone(),
        engine: foundation.embedded.as_ref().map(|embedded| embedded.engine.clone()),
        stopping: stopping.clone(),
        metrics: recorder,
    };
    let pages = pages::around(&services, &web, &foundation.keys, &place)?;
    let app = App::new(&web, pages.merge(http::routes(parts)), stage);

    // Before anybody is told where it is, and could ask it to stop.
    let signals = Signals::listen()?;
    place.announce();
    start_background(foundation, services.names(), stopping.clone());
    let reload = Reload { overrides, file: file.map(Path::to_owned), last: loaded, web, live };
    tokio::spawn(signals.heed(stopping.clone(), reload));
    app.serve(socket, stopping).await;
    for task in context.tasks.stop(TASKS_STOP_WITHIN).await {
        tracing::warn!(task, "a background task did not stop in time");
    }
    context.database.close().await;
    Ok(())
}

fn start_background(foundation: Foundation, roles: Vec<String>, stopping: CancellationToken) {
    let Foundation { context, keys, embedded } = foundation;
    if let Some(embedded) = embedded {
        let engine = embedded.engine;
        tokio::spawn(async move { engine.keep_swept().await });
        tokio::spawn(embedded.listener.serve(stopping.cancelled_owned()));
    }
    let tasks = context.tasks.clone();
    tasks.spawn("node", move |task: Task| {
        nodes::keep_alive(context.clone(), keys.clone(), roles.clone(), task)
    });
}

async fn bind(address: SocketAddr, stage: Stage) -> Result<TcpListener> {
    let bound = match TcpListener::bind(address).await {
        Err(error) if error.kind() == ErrorKind::AddrInUse && stage == Stage::Demo => {
            TcpListener::bind(SocketAddr::new(address.ip(), 0)).await
        }
        bound => bound,
    };
    bound.with_context(|| format!("could not listen on {address}"))
}

/// What goes on top of every configuration that this process reads: its flags, and what was decided at its start and
/// cannot change while it runs.
struct Overrides {
    options: ServeOptions,
    /// The address that is bound. What a reloaded file says of it must not decide who may come in.
    listen: SocketAddr,
    demo_folder: Option<PathBuf>,
}

impl Overrides {
    fn apply(&self, mut config: Config) -> Config {
        let options = &self.options;
        config.server.listen = self.listen;
        config.redis.store_listen = options.store_listen.unwrap_or(config.redis.store_listen);
        config.redis.store_memory_mib = options.store_memory_mib.unwrap_or(config.redis.store_memory_mib);
        if let Some(url) = &options.redis {
            config.redis.url = Some(url.clone().into());
        }
        config.database = options.database.over(config.database);
        if let (Some(folder), None) = (&self.demo_folder, &options.database.address) {
            config.database.url = folder.join("hob.db").display().to_string().into();
        }
        config
    }
}

/// Reads the configuration again.
struct Reload {
    overrides: Overrides,
    file: Option<PathBuf>,
    last: Loaded,
    web: Web,
    live: config::Live,
}

impl Reload {
    /// Replaces what may change while the process runs. An error changes nothing.
    fn again(&mut self) {
        match self.try_again() {
            Ok(()) => tracing::info!("configuration reloaded"),
            Err(error) => tracing::error!(%error, "configuration not reloaded"),
        }
    }

    fn try_again(&mut self) -> Result<()> {
        let loaded = config::reload(self.file.as_deref(), &self.last)?;
        let config = self.overrides.apply(loaded.config.clone());
        self.web.check_reload(&config.server)?;
        self.live.replace(config, &loaded)?;
        self.last = loaded;
        Ok(())
    }
}

/// SIGINT and SIGTERM stop the server, SIGHUP makes it read its configuration again.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> Result<Signals> {
        let listen = |kind| signal(kind).context("could not listen for signals");
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    async fn heed(mut self, stopping: CancellationToken, mut reload: Reload) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => break,
                _ = self.terminate.recv() => break,
                _ = self.hang_up.recv() => reload.again(),
            }
        }
        tracing::info!("stopping");
        stopping.cancel();
    }
}
