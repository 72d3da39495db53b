//! The proxies that are compared, each with one worker.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use bench_kit::{Nginx, Process, free_address, node_modules, wait_for};
use tempfile::TempDir;

use crate::store::Store;

const EXPRESS: [&str; 4] =
    ["express@5.1.0", "express-rate-limit@8.1.0", "rate-limit-redis@4.2.3", "redis@5.9.0"];

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) process: Process,
    _folder: Option<TempDir>,
}

impl Peer {
    pub(crate) fn all(upstream: SocketAddr, store: &Store) -> Result<Vec<Self>> {
        Ok(vec![
            nginx("nginx, bare", upstream, "", "")?,
            nginx(
                "nginx, limit_req",
                upstream,
                "limit_req_zone $binary_remote_addr zone=all:10m rate=1000000r/s;",
                "limit_req zone=all burst=100000 nodelay;",
            )?,
            haproxy(upstream)?,
            express(upstream, store)?,
            hob("Hob, leased", upstream, store, "leased")?,
            hob("Hob, exact", upstream, store, "exact")?,
        ])
    }
}

fn nginx(name: &'static str, upstream: SocketAddr, http: &str, limit: &str) -> Result<Peer> {
    let http = format!(
        "upstream behind {{ server {upstream}; keepalive 256; keepalive_requests 100000000; }}\n{http}"
    );
    let server = format!(
        "location / {{ {limit} proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr; }}"
    );
    let Nginx { process, address, folder } = Nginx::start(1, &http, &server, &[])?;
    Ok(Peer { name, address, process, _folder: Some(folder) })
}

fn haproxy(upstream: SocketAddr) -> Result<Peer> {
    let (folder, address) = (tempfile::tempdir()?, free_address()?);
    let text = format!(
        "global\n nbthread 1\n maxconn 4096\n\
         defaults\n mode http\n timeout connect 3s\n timeout client 60s\n timeout server 60s\n http-reuse always\n\
         frontend all\n bind {address}\n stick-table type ip size 100k expire 30s store http_req_rate(1s)\n\
         http-request track-sc0 src\n\
         http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 1000000 }}\n option forwardfor\n\
         default_backend behind\nbackend behind\n server one {upstream}\n"
    );
    let file = folder.path().join("haproxy.cfg");
    std::fs::write(&file, text)?;
    let process = Process::start(Command::new("haproxy").arg("-db").arg("-f").arg(&file))
        .context("apt-get install haproxy")?;
    wait_for(address)?;
    Ok(Peer { name: "HAProxy, stick table", address, process, _folder: Some(folder) })
}

fn express(upstream: SocketAddr, store: &Store) -> Result<Peer> {
    let modules = node_modules("express", &EXPRESS)?;
    let (folder, address) = (tempfile::tempdir()?, free_address()?);
    let file = folder.path().join("proxy.js");
    std::fs::write(&file, include_str!("express.js"))?;
    let mut node = Command::new("node");
    node.env("NODE_PATH", modules).env("NODE_ENV", "production").arg(&file);
    node.arg(address.port().to_string())
        .arg(upstream.port().to_string())
        .arg(store.address.port().to_string());
    let process = Process::start(&mut node).context("apt-get install nodejs npm")?;
    wait_for(address)?;
    Ok(Peer { name: "Express 5, express-rate-limit", address, process, _folder: Some(folder) })
}

fn hob(name: &'static str, upstream: SocketAddr, store: &Store, exactness: &str) -> Result<Peer> {
    let address = free_address()?;
    // Each gateway has its own instance name, so that commands can be attributed to it.
    let toml = format!(
        "listen = \"{address}\"\nupstream = [\"http://{upstream}\"]\ncount_loopback = true\ninstance = \"{exactness}\"\n\
         routes = [\"/api/things/:id\"]\n[[rules]]\nname = \"{exactness}\"\nwindows = \"1000000/1s burst 2000000\"\n\
         exactness = \"{exactness}\"\n"
    );
    let mut command = Command::new(std::env::current_exe()?);
    // One worker, as for the other proxies.
    command.env("TOKIO_WORKER_THREADS", "1").stdout(Stdio::piped());
    let redis = format!("redis://{}", store.address);
    let mut process = Process::start(command.args(["gateway", &toml, &redis]))?;
    process.first_line()?;
    Ok(Peer { name, address, process, _folder: None })
}
