//! The engine's listener in a separate process, so that its CPU time can be measured.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use bench_kit::Process;
use hob_engine::{Engine, Listener};

pub(crate) struct EngineProcess {
    pub(crate) process: Process,
    pub(crate) port: u16,
}

impl EngineProcess {
    pub(crate) fn start() -> Result<EngineProcess> {
        let mut process = Process::own(&["serve"])?;
        let port = process.first_line()?.parse()?;
        Ok(EngineProcess { process, port })
    }
}

/// The child process: prints its port and serves until its input closes.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = Listener::bind(Engine::default(), SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        println!("{}", listener.address().context("no TCP address")?.port());
        listener.serve(std::future::pending()).await;
        Ok(())
    })
}
