//! `hob serve`: opens what the systems stand on, serves until it is told to stop, and stops in order.

use std::io::{ErrorKind, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use hob_house::{Task, nodes};
use hob_web::{App, Stage, Web};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::ServeOptions;
use crate::config::{self, Config};
use crate::foundation::Foundation;
use crate::http::{self, Parts, Place};
use crate::systems::Systems;
use crate::{pages, relay};

/// How long background tasks may take to put down what they hold.
const TASKS_STOP_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn run(options: &ServeOptions, file: Option<&Path>) -> Result<()> {
    let config = options.over(config::load(file)?.config);
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("HOB_LOG").unwrap_or_else(|_| "info".into()),
        )
        .init();
    let runtime = tokio::runtime::Runtime::new().context("could not start the runtime")?;
    runtime.block_on(serve(config, options, file))
}

async fn serve(mut config: Config, options: &ServeOptions, file: Option<&Path>) -> Result<()> {
    let stage = if options.demo { Stage::Demo } else { Stage::Real };
    // Before anything that counts: what counts earlier counts for nobody.
    let metrics = PrometheusBuilder::new().install_recorder().context("could not record metrics")?;
    crate::meters::describe();
    let socket = bind(config.server.listen, stage).await?;
    config.server.listen = socket.local_addr()?;
    let demo_folder = match stage {
        Stage::Demo => Some(tempfile::tempdir().context("no temporary folder")?),
        Stage::Real => None,
    };
    if let (Some(folder), None) = (&demo_folder, &options.records.address) {
        config.records.url = folder.path().join("hob.db").display().to_string().into();
    }
    if let Some(folder) = &demo_folder {
        config.pipeline.folder = folder.path().join("pipelines");
    }
    let (live, replace) = config::live(config.clone());
    let foundation = Foundation::open(&config, live.secrets.clone(), stage).await?;
    let house = foundation.house.clone();
    let web = Web::open(&house, live.server.clone())?;
    web.start();
    let systems = Systems::open(&web, &live, &options.only, stage).await?;
    let roles = systems.roles();
    relay::start(&house, systems.outlets);
    let place = Place::new(&config, &foundation, systems.gateway);
    let stopping = CancellationToken::new();
    let parts = Parts {
        house: house.clone(),
        store: foundation.store.as_ref().map(|store| store.engine.clone()),
        stopping: stopping.clone(),
        metrics,
    };
    let pages =
        pages::around(systems.routes, &web, &foundation.keys, &place, systems.overview, systems.footprints)?;
    let app = App::new(&web, pages.merge(http::routes(parts)), stage);

    // Before anybody is told where it is, and could ask it to stop.
    let signals = Signals::listen()?;
    place.announce();
    start_background(foundation, roles, stopping.clone());
    let reload = Reload { options: options.clone(), file: file.map(Path::to_owned), replace };
    tokio::spawn(signals.heed(stopping.clone(), reload));
    app.serve(socket, stopping).await;
    for task in house.tasks.stop(TASKS_STOP_WITHIN).await {
        tracing::warn!(task, "a background task did not stop in time");
    }
    house.records.close().await;
    Ok(())
}

fn start_background(foundation: Foundation, roles: Vec<String>, stopping: CancellationToken) {
    let Foundation { house, keys, store } = foundation;
    if let Some(store) = store {
        let engine = store.engine;
        tokio::spawn(async move { engine.keep_swept().await });
        tokio::spawn(store.listener.serve(stopping.cancelled_owned()));
    }
    let tasks = house.tasks.clone();
    tasks
        .spawn("node", move |task: Task| nodes::keep_alive(house.clone(), keys.clone(), roles.clone(), task));
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

impl ServeOptions {
    /// The configuration with the flags on top.
    fn over(&self, mut config: Config) -> Config {
        config.server.listen = self.listen.unwrap_or(config.server.listen);
        config.hot.store_listen = self.store_listen.unwrap_or(config.hot.store_listen);
        config.hot.store_memory_mib = self.store_memory_mib.unwrap_or(config.hot.store_memory_mib);
        if let Some(url) = &self.hot {
            config.hot.url = Some(url.clone().into());
        }
        config.records = self.records.over(config.records);
        config
    }
}

/// Reads the configuration again.
struct Reload {
    options: ServeOptions,
    file: Option<PathBuf>,
    replace: config::Replace,
}

impl Reload {
    /// Puts what may change while it is in use into force. A mistake leaves everything as it was.
    fn again(&self) {
        match config::load(self.file.as_deref()) {
            Ok(loaded) => {
                self.replace.replace(self.options.over(loaded.config));
                tracing::info!("the configuration was read again");
            }
            Err(error) => tracing::error!(%error, "the configuration stays as it was"),
        }
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

    async fn heed(mut self, stopping: CancellationToken, reload: Reload) {
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
