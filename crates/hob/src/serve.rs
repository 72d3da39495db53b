//! `hob serve`: opens hot state and the ports, serves until it is told to stop.

use std::io::{ErrorKind, IsTerminal};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hob_engine::{Engine, Listener};
use hob_hot::{Address, Hot};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::cli::ServeOptions;
use crate::config::{self, Config, HotConfig};
use crate::http::{self, Parts, Place};
use crate::records;

/// How long requests may go on once the server was told to stop.
const DRAIN: Duration = Duration::from_secs(10);

pub(crate) fn run(options: &ServeOptions, file: Option<&Path>) -> Result<()> {
    let config = options.over(config::load(file)?.config);
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("HOB_LOG").unwrap_or_else(|_| "info".into()),
        )
        .init();
    tokio::runtime::Runtime::new().context("could not start the runtime")?.block_on(serve(config, options))
}

async fn serve(mut config: Config, options: &ServeOptions) -> Result<()> {
    let (listen, demo) = (config.server.listen, options.demo);
    if !listen.ip().is_loopback() {
        bail!(
            "{listen} can be reached from elsewhere, and there is no sign-in yet: listen on a loopback address"
        );
    }
    // Before anything that counts: what counts earlier counts for nobody.
    let metrics = PrometheusBuilder::new().install_recorder().context("could not record metrics")?;
    let address = config.hot.address()?;
    let socket = bind(listen, demo).await?;
    let listen = socket.local_addr()?;
    let store = if address == Address::Embedded { Some(open_store(&config.hot, demo).await?) } else { None };
    let demo_folder = if demo { Some(tempfile::tempdir().context("no temporary folder")?) } else { None };
    if let (Some(folder), None) = (&demo_folder, &options.records.address) {
        config.records.url = folder.path().join("hob.db").display().to_string().into();
    }
    let records = records::open(&config.records).await?;
    let hot = match &store {
        Some(store) => Hot::embedded(&store.engine),
        None => Hot::open(&address).with_context(|| format!("could not open {address}"))?,
    };
    let place = Place {
        listen,
        store: store.as_ref().and_then(|store| store.listener.address()),
        hot: address.to_string(),
        records: records.address().to_string(),
        demo,
    };
    // Before anybody is told where it is, and could ask it to stop.
    let stop_signal = StopSignal::listen()?;
    announce(&place);

    let (stop, stopping) = watch::channel(false);
    let app = http::app(Parts {
        place,
        hot,
        records: records.clone(),
        store: store.as_ref().map(|store| store.engine.clone()),
        stopping: stopping.clone(),
        metrics,
    });
    if let Some(Store { engine, listener }) = store {
        tokio::spawn(async move { engine.keep_swept().await });
        tokio::spawn(listener.serve(stopped(stopping.clone())));
    }
    let serving = axum::serve(socket, app).with_graceful_shutdown(stopped(stopping));
    let ended = tokio::select! {
        served = serving.into_future() => served.context("the server failed"),
        () = told_to_stop(stop_signal, stop) => Ok(()),
    };
    records.close().await;
    ended
}

struct Store {
    engine: Engine,
    listener: Listener,
}

async fn open_store(config: &HotConfig, demo: bool) -> Result<Store> {
    const MIB: usize = 1024 * 1024;
    let max_memory_bytes = config.store_memory_mib as usize * MIB;
    let engine = Engine::new(hob_engine::Config { max_memory_bytes, ..hob_engine::Config::default() });
    let listener = match Listener::bind(engine.clone(), config.store_listen).await {
        Err(error) if error.kind() == ErrorKind::AddrInUse && demo => {
            Listener::bind(engine.clone(), SocketAddr::new(config.store_listen.ip(), 0)).await
        }
        bound => bound,
    };
    let listener =
        listener.with_context(|| format!("the store could not listen on {}", config.store_listen))?;
    Ok(Store { engine, listener })
}

impl HotConfig {
    pub(crate) fn address(&self) -> Result<Address> {
        match &self.url {
            Some(url) => url.reveal().parse().context("the address of hot state"),
            None => Address::from_env().context("the address of hot state"),
        }
    }
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

async fn bind(address: SocketAddr, demo: bool) -> Result<TcpListener> {
    let bound = match TcpListener::bind(address).await {
        Err(error) if error.kind() == ErrorKind::AddrInUse && demo => {
            TcpListener::bind(SocketAddr::new(address.ip(), 0)).await
        }
        bound => bound,
    };
    bound.with_context(|| format!("could not listen on {address}"))
}

#[expect(clippy::print_stdout, reason = "a person started this, and wants to know where to look")]
fn announce(place: &Place) {
    println!("Hob is on http://{}", place.listen);
    println!("  hot state   {}", place.hot);
    println!("  records     {}", place.records);
    if let Some(store) = place.store {
        println!("  redis-cli   redis-cli -p {}", store.port());
    }
    println!("  health      http://{}/readyz", place.listen);
    println!("  metrics     http://{}/metrics", place.listen);
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// SIGINT or SIGTERM.
struct StopSignal {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignal {
    fn listen() -> Result<StopSignal> {
        let listen = |kind| signal(kind).context("could not listen for signals");
        Ok(StopSignal {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn heard(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Waits for the signal, tells everybody, and then only so long as it must.
async fn told_to_stop(mut stop_signal: StopSignal, stop: watch::Sender<bool>) {
    stop_signal.heard().await;
    tracing::info!("stopping");
    stop.send_replace(true);
    tokio::time::sleep(DRAIN).await;
    tracing::warn!("some requests were cut off");
}
