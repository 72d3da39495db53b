//! prometheus-blackbox-exporter, called over persistent connections.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench_kit::{Process, cpu, free_address, wait_for};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::CONCURRENCY;
use crate::figures::Figures;

/// The same as Hob's check: a 2xx status on a new connection.
const CONFIG: &str = "modules:\n  http_2xx:\n    prober: http\n    timeout: 10s\n";

pub(crate) struct Exporter {
    process: Process,
    address: SocketAddr,
    _folder: TempDir,
}

impl Exporter {
    pub(crate) fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("blackbox.yml");
        std::fs::write(&config, CONFIG)?;
        let address = free_address()?;
        let mut command = Command::new("prometheus-blackbox-exporter");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--web.listen-address={address}")).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(&mut command).context("apt-get install prometheus-blackbox-exporter")?;
        wait_for(address)?;
        Ok(Self { process, address, _folder: folder })
    }

    pub(crate) async fn measure(&self, target: &str, seconds: u64) -> Result<Figures> {
        let before = cpu(self.process.id())?;
        let started = Instant::now();
        let end = started + Duration::from_secs(seconds);
        let mut clients = JoinSet::new();
        for _ in 0..CONCURRENCY {
            clients.spawn(send_probes(self.address, format!("/probe?module=http_2xx&target={target}"), end));
        }
        let mut latencies = Vec::new();
        while let Some(result) = clients.join_next().await {
            latencies.extend(result??);
        }
        Figures::new(latencies, started.elapsed(), cpu(self.process.id())? - before)
    }
}

async fn send_probes(exporter: SocketAddr, path: String, end: Instant) -> Result<Vec<Duration>> {
    let stream = TokioIo::new(TcpStream::connect(exporter).await?);
    let (mut sender, connection) = http1::handshake(stream).await?;
    tokio::spawn(connection);
    let mut latencies = Vec::new();
    while Instant::now() < end {
        let request = Request::get(path.as_str()).header("host", "exporter").body(Empty::<Bytes>::new())?;
        let started = Instant::now();
        let body = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
        latencies.push(started.elapsed());
        if !String::from_utf8_lossy(&body).contains("probe_success 1") {
            bail!("a probe of the exporter failed");
        }
    }
    Ok(latencies)
}
