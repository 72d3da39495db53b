//! `hob serve`: opens store and database, starts the services, serves until a signal, and shuts down.

#[cfg(test)]
mod api_names;
pub(crate) mod backends;
mod backups;
pub(crate) mod http;
pub(crate) mod log;
mod metrics;
mod relay;
#[cfg(test)]
mod route_table;
#[cfg(test)]
mod safe_methods;
mod systemd;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hob_engine::Engine;
use hob_net::Network;
use hob_service::{Task, nodes};
use hob_web::{App, DataKind, Web};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::{DatabaseOptions, service_names};
use crate::config::{self, Config, Loaded};
use crate::pages;
use crate::services::{EventHandlers, Services};
use backends::Backends;
use http::{Endpoints, StatusState};

/// How long background tasks may take to stop.
const TASK_STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for blocking threads, such as one that runs a script of a Redis client.
const THREAD_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Flags override the environment and hob.toml.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Address of the API and the console [default: 127.0.0.1:7070] [env: HOB_LISTEN]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Address of the embedded engine for Redis clients [default: 127.0.0.1:7379] [env: HOB_EMBEDDED_LISTEN]
    #[arg(long, value_name = "ADDRESS")]
    embedded_listen: Option<SocketAddr>,

    /// Redis URL: redis://, rediss://, redis+cluster://, redis+sentinel:// or embedded:// [default: embedded://]
    /// [env: HOB_REDIS_URL]
    #[arg(long, value_name = "URL")]
    redis: Option<String>,

    #[command(flatten)]
    database: DatabaseOptions,

    /// Memory limit of the embedded engine in MiB [default: 512] [env: HOB_EMBEDDED_MEMORY_MIB]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    embedded_memory_mib: Option<u32>,

    /// Run only these services on this node, separated by commas [default: all] [env: HOB_NODE_SERVICES]
    #[arg(long, value_delimiter = ',', value_name = "SERVICES", value_parser = service_names())]
    only: Vec<String>,

    /// Start with demo data and a temporary database, which is deleted at the end; uses free ports if the usual ones
    /// are taken
    #[arg(long)]
    demo: bool,
}

pub(crate) fn run(options: &Options, file: Option<&Path>) -> Result<()> {
    let loaded = config::load(file)?;
    loaded.check_files(services_of(options, &loaded))?;
    let _log = log::start();
    for variable in loaded.unknown_variables() {
        tracing::warn!(variable, "unknown environment variable ignored");
    }
    for contradiction in loaded.contradictions() {
        tracing::warn!(%contradiction, "settings contradict each other");
    }
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let served = runtime.block_on(serve(loaded, options, file));
    // Dropping the runtime would wait for these threads, and a script may never return from a Lua library call.
    runtime.shutdown_timeout(THREAD_STOP_TIMEOUT);
    served
}

async fn serve(loaded: Loaded, options: &Options, file: Option<&Path>) -> Result<()> {
    let data = if options.demo { DataKind::Demo } else { DataKind::Real };
    // Before the first metric is recorded.
    let recorder = metrics::install()?;
    let socket = bind(options.listen.unwrap_or(loaded.config.server.listen), data).await?;
    let demo_folder = match data {
        DataKind::Demo => Some(tempfile::tempdir().context("cannot create a temporary folder")?),
        DataKind::Real => None,
    };
    let overrides = Overrides {
        options: options.clone(),
        listen: socket.local_addr()?,
        demo_folder: demo_folder.as_ref().map(|folder| folder.path().to_owned()),
    };
    let config = overrides.apply(loaded.config.clone());
    loaded.check_access(&config)?;
    let live = loaded.live(config.clone())?;
    let backends = Backends::open(&config, &live, data).await?;
    let context = backends.context.clone();
    let web = Web::open_with(&context, live.server.clone(), live.sign_in.clone())?;
    web.start();
    let demo = demo_folder.as_ref().map(tempfile::TempDir::path);
    let services = Services::open(&web, &live.services, services_of(options, &loaded), demo).await?;
    metrics::start_at_zero(&services);
    metrics::start_upkeep(&recorder, &context.tasks);
    backups::start(&context, &config.database);
    relay::start(&context, EventHandlers::new(&web, &services, Arc::clone(&live.services)));
    let endpoints = Endpoints::new(&config, &backends, services.urls());
    let stopping = CancellationToken::new();
    let status = StatusState {
        context: context.clone(),
        engine: backends.embedded.as_ref().map(|embedded| embedded.engine.clone()),
        stopping: stopping.clone(),
        metrics: recorder,
        services: services.clone(),
    };
    let pages = pages::routes(&services, &web, &backends.keys, &endpoints)?;
    let app = App::new(&web, pages.merge(http::routes(status)), data);

    // Before the address is printed: from then on, signals are expected.
    let signals = Signals::listen()?;
    endpoints.announce();
    let engine = backends.embedded.as_ref().map(|embedded| embedded.engine.clone());
    start_background(backends, services.names(), &web, stopping.clone());
    let reload = Reload { overrides, file: file.map(Path::to_owned), last: loaded, web, engine, live };
    tokio::spawn(signals.handle(stopping.clone(), reload));
    systemd::ready();
    app.serve(socket, stopping).await;
    for task in context.tasks.stop(TASK_STOP_TIMEOUT).await {
        tracing::warn!(task, "background task did not stop in time");
    }
    // The last requests have ended, and so have their spans.
    context.tracer.stop().await;
    context.database.close().await;
    Ok(())
}

/// The names of the services that this node runs; all if it is empty.
fn services_of<'a>(options: &'a Options, loaded: &'a Loaded) -> &'a [String] {
    if options.only.is_empty() { &loaded.config.node.services } else { &options.only }
}

fn start_background(backends: Backends, roles: Vec<String>, web: &Web, stopping: CancellationToken) {
    let Backends { context, keys, embedded } = backends;
    if let Some(embedded) = embedded {
        let engine = embedded.engine;
        tokio::spawn(async move { engine.keep_swept().await });
        let listener = embedded.listener.with_throttle(web.auth_throttle().clone());
        tokio::spawn(listener.serve(stopping.cancelled_owned()));
    }
    let tasks = context.tasks.clone();
    tasks.spawn("node", move |task: Task| {
        nodes::keep_alive(context.clone(), keys.clone(), roles.clone(), task)
    });
}

async fn bind(address: SocketAddr, data: DataKind) -> Result<TcpListener> {
    let bound = match TcpListener::bind(address).await {
        Err(error) if error.kind() == ErrorKind::AddrInUse && data == DataKind::Demo => {
            TcpListener::bind(SocketAddr::new(address.ip(), 0)).await
        }
        bound => bound,
    };
    bound.with_context(|| format!("cannot listen on {address}"))
}

/// Overrides of every loaded configuration: flags, and values that are fixed at the start.
struct Overrides {
    options: Options,
    /// The bound address. A reloaded address must not change whether an admin token is required.
    listen: SocketAddr,
    demo_folder: Option<PathBuf>,
}

impl Overrides {
    fn apply(&self, mut config: Config) -> Config {
        let options = &self.options;
        config.server.listen = self.listen;
        config.redis.embedded_listen = options.embedded_listen.unwrap_or(config.redis.embedded_listen);
        config.redis.embedded_memory_mib =
            options.embedded_memory_mib.unwrap_or(config.redis.embedded_memory_mib);
        if let Some(url) = &options.redis {
            config.redis.url = Some(url.clone().into());
        }
        config.database = options.database.apply_to(config.database);
        if let (Some(folder), None) = (&self.demo_folder, &options.database.address) {
            config.database.url = folder.join("hob.db").display().to_string().into();
        }
        if self.demo_folder.is_some() {
            // The targets of the demo are servers on loopback.
            let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            config.outbound.allow.extend(loopback.map(Network::from));
        }
        config
    }
}

/// Reloads the configuration.
struct Reload {
    overrides: Overrides,
    file: Option<PathBuf>,
    last: Loaded,
    web: Web,
    engine: Option<Engine>,
    live: config::Live,
}

impl Reload {
    /// Applies the settings that can be reloaded. On an error, nothing changes.
    fn reload(&mut self) {
        match self.try_reload() {
            Ok(()) => tracing::info!("configuration reloaded"),
            Err(error) => {
                tracing::error!(%error, "failed to reload the configuration, keeping the current one");
            }
        }
    }

    fn try_reload(&mut self) -> Result<()> {
        let loaded = config::reload(self.file.as_deref(), &self.last)?;
        let config = self.overrides.apply(loaded.config.clone());
        self.web.check_reload(&config.server, &config.sign_in)?;
        let admin = config.server.admin()?;
        self.live.replace(config, &loaded)?;
        // A token that was removed is an error above, or there was none.
        if let (Some(engine), Some(admin)) = (&self.engine, admin) {
            engine.set_password(Some(admin.reveal().to_owned()));
        }
        self.last = loaded;
        Ok(())
    }
}

/// SIGINT and SIGTERM stop the server, SIGHUP reloads the configuration.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> Result<Signals> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    async fn handle(mut self, stopping: CancellationToken, mut reload: Reload) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => break,
                _ = self.terminate.recv() => break,
                _ = self.hang_up.recv() => reload.reload(),
            }
        }
        tracing::info!("server is stopping");
        systemd::stopping();
        stopping.cancel();
    }
}
