//! Server processes, and what the kernel says of them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use hob_engine::{Engine, Listener};

/// The engine's listener in a process of its own, so that its processor time can be told apart.
pub(crate) struct EngineProcess {
    child: Child,
    pub(crate) port: u16,
}

impl EngineProcess {
    pub(crate) fn start() -> Result<EngineProcess> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no pipe")?).read_line(&mut line)?;
        Ok(EngineProcess { child, port: line.trim().parse()? })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the child does: prints its port, and serves until its input ends.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = Listener::bind(Engine::default(), SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        println!("{}", listener.address().context("a TCP address")?.port());
        let input_ends = tokio::task::spawn_blocking(|| std::io::stdin().lines().count());
        listener.serve(async { drop(input_ends.await) }).await;
        Ok(())
    })
}

/// Processor time used so far, in seconds.
pub(crate) fn cpu_s(pid: u32) -> Result<f64> {
    const TICKS_PER_S: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit(')').next().context("a process has a name")?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / TICKS_PER_S)
}

/// Resident memory, in bytes.
pub(crate) fn resident(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse::<f64>()? * 1024.0)
}
