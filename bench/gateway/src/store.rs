//! The Redis that proxies with a shared limit use, and its command counts.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use bench_kit::{Process, free_address, output, wait_for};
use tempfile::TempDir;

pub(crate) struct Store {
    pub(crate) address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

/// Commands so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// Scripts; each is one message.
    pub(crate) sent: u64,
    /// All commands, including those called by scripts.
    pub(crate) ran: u64,
}

impl Store {
    pub(crate) fn start() -> Result<Self> {
        let (folder, address) = (tempfile::tempdir()?, free_address()?);
        let mut command = Command::new("redis-server");
        command.args(["--port", &address.port().to_string(), "--save", "", "--bind", "127.0.0.1", "--dir"]);
        let process = Process::start(command.arg(folder.path()).stdout(Stdio::null()))
            .context("apt-get install redis-server")?;
        wait_for(address)?;
        Ok(Self { address, _process: process, _folder: folder })
    }

    pub(crate) fn counts(&self) -> Result<Counts> {
        let port = self.address.port().to_string();
        let stats = output(Command::new("redis-cli").args(["-p", &port, "info", "commandstats"]))?;
        let mut counts = Counts { sent: 0, ran: 0 };
        for line in stats.lines() {
            let Some((name, rest)) =
                line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls="))
            else {
                continue;
            };
            let calls: u64 = rest.split(',').next().context("no count")?.parse()?;
            if name != "info" {
                counts.ran += calls;
            }
            if name == "evalsha" || name == "eval" {
                counts.sent += calls;
            }
        }
        Ok(counts)
    }
}
