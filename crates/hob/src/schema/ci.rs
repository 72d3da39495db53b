//! `hob schema ci`: lint, diff, and an audit of a throw-away server after the project's own tests.

use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// How long a throw-away server may take to start.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Servers to look for, in this order.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// A Redis or Valkey server with an empty store, stopped when dropped.
pub(super) struct ThrowAwayServer {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl ThrowAwayServer {
    /// Starts the given program, or the first that is installed, and waits until it answers.
    pub(super) fn start(program: Option<&str>) -> Result<ThrowAwayServer> {
        let programs = program.map_or_else(|| PROGRAMS.to_vec(), |program| vec![program]);
        for program in &programs {
            if let Some(server) = Self::launch(program)? {
                return Ok(server);
            }
        }
        bail!("cannot find {}; install it, or name it with --server", programs.join(" or "))
    }

    fn launch(program: &str) -> Result<Option<ThrowAwayServer>> {
        let folder = tempfile::tempdir().context("cannot create a folder for the server")?;
        let port = TcpListener::bind("127.0.0.1:0").context("cannot find a free port")?.local_addr()?.port();
        let started = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let process = match started {
            Ok(process) => process,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot start {program}")),
        };
        let mut server = ThrowAwayServer { process, port, _folder: folder };
        server.wait_until_it_listens(program)?;
        Ok(Some(server))
    }

    fn wait_until_it_listens(&mut self, program: &str) -> Result<()> {
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Some(status) = self.process.try_wait().context("cannot wait for the server")? {
                bail!("{program} stopped: {status}");
            }
            if started.elapsed() > START_LIMIT {
                bail!("{program} did not start within {} s", START_LIMIT.as_secs());
            }
            // Redis does not tell when it is ready, so the port is tried until it answers.
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for ThrowAwayServer {
    fn drop(&mut self) {
        // It may have stopped already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the project's tests against a server. Their output goes to stderr, so that stdout has only the report.
pub(super) fn run_tests(command: &[String], url: &str) -> Result<()> {
    let Some((program, arguments)) = command.split_first() else {
        bail!("no command to run; add it after `--`");
    };
    let output = std::io::stderr().as_fd().try_clone_to_owned().context("cannot use stderr")?;
    let status = Command::new(program)
        .args(arguments)
        .env("REDIS_URL", url)
        .stdout(output)
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    if !status.success() {
        bail!("{program} failed ({status}); the audit needs the keys of a successful run");
    }
    Ok(())
}
