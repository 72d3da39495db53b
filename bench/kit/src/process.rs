//! Child processes that listen on free loopback ports and are stopped when dropped.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The maximum time until a peer listens.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A child process. Dropping it stops the process and its children.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

/// A CPU core. The measured process and the load generator run on different cores.
#[derive(Clone, Copy, Debug)]
pub enum Core {
    First,
    Second,
}

impl Core {
    /// A command that runs `program` on this core.
    pub fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", self.number()]).arg(program);
        command
    }

    /// Pins this process, its threads, and its future child processes to this core.
    pub fn pin_this_process(self) -> Result<()> {
        let pid = std::process::id().to_string();
        output(Command::new("taskset").args(["-acp", self.number(), &pid])).map(drop)
    }

    /// Pins a running process and its children to this core.
    pub fn pin(self, process: &Process) -> Result<()> {
        for id in process.family() {
            output(Command::new("taskset").args(["-acp", self.number(), &id.to_string()]))?;
        }
        Ok(())
    }

    fn number(self) -> &'static str {
        match self {
            Self::First => "0",
            Self::Second => "1",
        }
    }
}

impl Process {
    /// Starts this program again with other arguments.
    pub fn own(arguments: &[&str]) -> Result<Self> {
        Self::start(Command::new(std::env::current_exe()?).args(arguments).stdout(Stdio::piped()))
    }

    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The first line of its output, which must be a pipe. Later output is discarded.
    pub fn first_line(&mut self) -> Result<String> {
        self.line(|line| Some(line.to_owned()))
    }

    /// The first result of `find` on the lines of the output.
    pub fn line<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let mut reader =
            BufReader::new(self.child.stdout.take().context("the output of the process is not a pipe")?);
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(
                reader.read_line(&mut line)? > 0,
                "the process ended before it printed the expected line"
            );
            if let Some(found) = find(line.trim()) {
                // Keep reading, or the process would block on a full pipe.
                std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
                return Ok(found);
            }
        }
    }

    /// The ids of the process and its children, such as the workers of a master process.
    pub fn family(&self) -> Vec<u32> {
        let mut family = vec![self.id()];
        let mut listed = 0;
        while let Some(process) = family.get(listed).copied() {
            let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
            family.extend(
                children.unwrap_or_default().split_whitespace().filter_map(|id| id.parse::<u32>().ok()),
            );
            listed += 1;
        }
        family
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGTERM first: a master that is killed with SIGKILL does not stop its workers.
        let family: Vec<String> = self.family().iter().map(u32::to_string).collect();
        let _ = Command::new("kill").args(&family).stderr(Stdio::null()).status();
        let signalled = Instant::now();
        while signalled.elapsed() < Duration::from_secs(5) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A free loopback address.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Waits until the address accepts connections.
pub fn wait_for(address: SocketAddr) -> Result<()> {
    let started = Instant::now();
    while TcpStream::connect(address).is_err() {
        if started.elapsed() > START_TIMEOUT {
            bail!("cannot connect to {address}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Runs a program until it exits; returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", error.lines().last().unwrap_or_default());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command for the `hob` binary of the same build as this program, which logs only errors.
pub fn hob() -> Result<Command> {
    let binary = std::env::current_exe()?.with_file_name("hob");
    ensure!(binary.exists(), "hob is not built; run cargo build --profile dist -p hob");
    let mut command = Command::new(binary);
    command.env("HOB_LOG", "error").stdout(Stdio::piped());
    Ok(command)
}
