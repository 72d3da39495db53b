//! The two servers, on free ports of loopback, gone when dropped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// The release build of `hob`, with its embedded store and SQLite.
pub(crate) struct Hob {
    child: Child,
    listen: SocketAddr,
    _folder: TempDir,
}

impl Hob {
    pub(crate) fn start() -> Result<Hob> {
        let folder = tempfile::tempdir()?;
        let any = "127.0.0.1:0";
        let mut child = Command::new(binary()?)
            .current_dir(&folder)
            .env("HOB_LOG", "error")
            .args(["serve", "--listen", any, "--store-listen", any])
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("a pipe")?).lines().map_while(Result::ok);
        let mut listen = None;
        // All that it announces, or it would talk into a pipe that nobody holds.
        for line in lines {
            listen = listen.or_else(|| line.strip_prefix("Hob is on http://")?.parse().ok());
            if line.contains("/metrics") {
                break;
            }
        }
        let listen = listen.context("hob did not say where it listens")?;
        Ok(Hob { child, listen, _folder: folder })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.listen)
    }

    pub(crate) fn processes(&self) -> Vec<u32> {
        vec![self.child.id()]
    }

    /// The body of an answer, as `wrk` gets it: not compressed.
    pub(crate) fn get(&self, path: &str) -> Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.listen)?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.listen)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no head")?;
        if !answer.starts_with(b"HTTP/1.0 200") {
            bail!("{path}: {}", String::from_utf8_lossy(&answer[..head]));
        }
        Ok(answer.split_off(head + 4))
    }
}

impl Drop for Hob {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn binary() -> Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("hob");
    if beside.exists() { Ok(beside) } else { bail!("build it first: cargo build --release -p hob") }
}

/// nginx with one file, as many workers as Hob has threads.
pub(crate) struct Nginx {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Nginx {
    pub(crate) fn start(body: &[u8]) -> Result<Nginx> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("file"), body)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let configuration = folder.path().join("nginx.conf");
        std::fs::write(&configuration, text(folder.path(), port))?;
        let child = Command::new("nginx")
            .args(["-e", "stderr", "-c"])
            .arg(&configuration)
            .spawn()
            .context("nginx is missing: apt-get install nginx-light")?;
        let nginx = Nginx { child, port, _folder: folder };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if begun.elapsed() > Duration::from_secs(20) {
                bail!("nginx did not start");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(nginx)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/file", self.port)
    }

    /// The master and its workers.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let master = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children"));
        let children = children.unwrap_or_default();
        std::iter::once(master).chain(children.split_whitespace().filter_map(|id| id.parse().ok())).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Asked, not killed: a master that is killed leaves its workers behind.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

fn text(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "daemon off; worker_processes 2; pid {folder}/pid; error_log stderr crit; user root;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; default_type text/html;\n\
         client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;\n\
         uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;\n\
         server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
}
