//! The two servers, which listen on free loopback ports and are stopped when dropped.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail};
use bench_kit::{Nginx, Process, hob};
use tempfile::TempDir;

/// The release build of `hob`, with its embedded store and SQLite.
pub(crate) struct Hob {
    pub(crate) process: Process,
    listen: SocketAddr,
    _folder: TempDir,
}

impl Hob {
    pub(crate) fn start() -> Result<Hob> {
        let folder = tempfile::tempdir()?;
        let any = "127.0.0.1:0";
        let mut command = hob()?;
        command.current_dir(&folder).args(["serve", "--listen", any, "--embedded-listen", any]);
        let mut process = Process::start(&mut command)?;
        let listen = process.line(|line| line.strip_prefix("Hob is on http://")?.parse().ok())?;
        Ok(Hob { process, listen, _folder: folder })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.listen)
    }

    /// The body of a response without compression, as `wrk` receives it.
    pub(crate) fn get(&self, path: &str) -> Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.listen)?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.listen)?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response)?;
        let head = response.windows(4).position(|four| four == b"\r\n\r\n").context("no head")?;
        if !response.starts_with(b"HTTP/1.0 200") {
            bail!("{path}: {}", String::from_utf8_lossy(&response[..head]));
        }
        Ok(response.split_off(head + 4))
    }
}

/// nginx with one file, and with the same number of workers as Hob has threads.
pub(crate) fn nginx(body: &[u8]) -> Result<Nginx> {
    Nginx::start(2, "sendfile on; tcp_nopush on;", "", &[("file", body)])
}
