//! `hob test-redis`: a Redis for tests that enforces a schema, with a clock and faults that tests control.

mod clock;
mod control;
mod guard;
mod proxy;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use hob_engine::{Clock, Config, Engine, Listener};
use hob_schema::Catalog;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Declared;
use crate::exit::Exit;
use crate::schema::{self, print};
use clock::TestClock;
use control::Control;
use guard::Violations;

#[derive(Args, Debug)]
#[command(mut_arg("schema", |schema| schema.required_unless_present("with").help("A schema file; may be repeated")))]
pub(crate) struct Options {
    #[command(flatten)]
    declared: Declared,
    /// The port on the loopback interface; 0 chooses a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Run this command with the address in REDIS_URL, and end with it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<Exit> {
    let Declared { schema, with, tagged } = &options.declared;
    let catalog = schema::catalog(schema, with, schema::layout(*tagged))?;
    tokio::runtime::Runtime::new().context("cannot start the runtime")?.block_on(serve(options, catalog))
}

async fn serve(options: &Options, catalog: Catalog) -> Result<Exit> {
    let violations = Arc::new(Violations::default());
    let clock = TestClock::default();
    let engine = Engine::new(Config {
        clock: Clock::Driven(clock.driven()),
        guard: Some(guard::new(catalog, Arc::clone(&violations))),
        ..Config::default()
    });
    let inner = Listener::bind(engine.clone(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let engine_address = inner.address().context("the engine does not listen")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))
        .await
        .with_context(|| format!("cannot listen on port {}", options.port))?;
    let url = format!("redis://{}", listener.local_addr()?);
    let control = Arc::new(Control::new(engine.clone(), clock.clone(), Arc::clone(&violations)));
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    print(&url)?;
    let ended = tokio::select! {
        () = inner.serve(std::future::pending()) => None,
        () = engine.keep_swept() => None,
        () = clock.run() => None,
        () = accept(&listener, &control, engine_address) => None,
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        status = command(&options.command, &url) => Some(status?),
    };
    print(&violations.report())?;
    match ended {
        Some(status) if !status.success() => bail!("the command failed ({status})"),
        // Without a command, a signal is the usual end.
        None if !options.command.is_empty() => bail!("stopped by a signal before the command had ended"),
        _ if violations.is_empty() => Ok(Exit::Clean),
        _ => Ok(Exit::Errors),
    }
}

async fn accept(listener: &TcpListener, control: &Arc<Control>, engine: SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let control = Arc::clone(control);
                // A connection that fails ends; its client sees that it was closed.
                tokio::spawn(async move { drop(proxy::serve(&control, client, engine).await) });
            }
            // Most likely out of file descriptors: wait for connections to close.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Runs the command; without one, waits for a signal.
async fn command(words: &[String], url: &str) -> Result<ExitStatus> {
    let Some((program, arguments)) = words.split_first() else {
        return std::future::pending().await;
    };
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).env("REDIS_URL", url).kill_on_drop(true);
    command.status().await.with_context(|| format!("cannot run {program}"))
}
