//! Starts `hob`, reads its addresses from its output, and sends it HTTP requests.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use hob_testkit::{LIMIT, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) fn hob() -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_hob")))
}

/// Another build of `hob`.
pub(crate) fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    let ours = |name: &str| {
        ["HOB_", "REDIS_", "MESSAGE_RATE_", "OTEL_"].iter().any(|start| name.starts_with(start))
            || ["DATABASE_URL", "CALL_LIMIT_PER_HOUR", "COURTLISTENER_SAFETY_BUFFER"].contains(&name)
    };
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    // Otherwise commands would talk to the server of a user who has signed in.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// The name of a server's log in its folder.
pub(crate) const LOG: &str = "log";

/// A running server, killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) listen: SocketAddr,
    pub(crate) store_port: Option<u16>,
    /// The address of the gateway, if it has an upstream.
    pub(crate) gateway: Option<SocketAddr>,
    pub(crate) folder: TempDir,
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Server {
    /// The URL of a path on this server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.listen)
    }

    /// Starts `hob serve` on free ports.
    pub(crate) fn start(arguments: &[&str]) -> Server {
        Server::start_on("127.0.0.1:0", arguments)
    }

    /// Starts `hob serve` on free ports, with variables in its environment.
    pub(crate) fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Server {
        Server::launch("127.0.0.1:0", |command| command.args(arguments).envs(variables.iter().copied()))
    }

    /// Starts `hob serve` at an address with this text in its `hob.toml` and its log in a file.
    pub(crate) fn start_configured(address: &str, config: &str) -> Server {
        Server::launch(address, |command| {
            let folder = command.get_current_dir().expect("no working directory").to_owned();
            std::fs::write(folder.join("hob.toml"), config).expect("cannot write to the temporary folder");
            command.stderr(File::create(folder.join(LOG)).expect("cannot write to the temporary folder"))
        })
    }

    /// Starts `hob serve` on free ports, with its log in a file.
    pub(crate) fn start_logged(arguments: &[&str]) -> Server {
        Server::launch("127.0.0.1:0", |command| {
            let folder = command.get_current_dir().expect("no working directory").to_owned();
            command.args(arguments);
            command.stderr(File::create(folder.join(LOG)).expect("cannot write to the temporary folder"))
        })
    }

    /// Starts `hob serve` with the same address for both listeners.
    pub(crate) fn start_on(address: &str, arguments: &[&str]) -> Server {
        Server::launch(address, |command| command.args(arguments))
    }

    /// Starts `hob serve` with a command that `prepare` completes.
    pub(crate) fn launch(address: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Server {
        Server::launch_as(hob(), address, prepare)
    }

    /// Starts `serve` of a program, with arguments that `prepare` completes.
    pub(crate) fn launch_as(
        mut command: Command,
        address: &str,
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Server {
        let ports = ["--listen", address, "--embedded-listen", address];
        // The server creates its database in its working directory.
        let folder = tempfile::tempdir().expect("cannot create a temporary folder");
        command.current_dir(&folder).arg("serve").args(ports).stdout(Stdio::piped());
        // Otherwise demos that start at the same time could all find the default port of the gateway free.
        command.env("HOB_GATEWAY_LISTEN", "127.0.0.1:0");
        let mut child = prepare(&mut command).spawn().expect("cannot start hob");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is not a pipe")).lines();
        let (mut listen, mut store_port, mut gateway) = (None, None, None);
        // The URL of the metrics is in the last line of the startup message.
        while let Some(Ok(line)) = lines.next() {
            if let Some((_, address)) = line.strip_prefix("Hob is on ").and_then(|url| url.split_once("://"))
            {
                listen = Some(address.parse().expect("invalid address"));
            }
            if let Some((_, port)) = line.split_once("redis-cli -p ") {
                store_port = Some(port.parse().expect("invalid port"));
            }
            if let Some((_, address)) = line.split_once("gateway     http://") {
                gateway = Some(address.parse().expect("invalid address"));
            }
            if line.contains("/metrics") {
                break;
            }
        }
        let listen = listen.expect("hob did not print its address");
        Server { child, listen, store_port, gateway, folder }
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.try_get(path).expect("no response from the server")
    }

    pub(crate) fn try_get(&self, path: &str) -> std::io::Result<Response> {
        self.try_get_with(&format!("Host: {}", self.listen), path)
    }

    /// Sends a GET request with these headers instead of the default `Host`.
    pub(crate) fn get_with(&self, header: &str, path: &str) -> Response {
        self.try_get_with(header, path).expect("no response from the server")
    }

    fn try_get_with(&self, header: &str, path: &str) -> std::io::Result<Response> {
        send(self.listen, &format!("GET {path} HTTP/1.1\r\n{header}\r\nConnection: close\r\n\r\n"))
    }

    pub(crate) async fn wait_for_status(&self, path: &str, status: u16) {
        wait_for(format!("{path} to respond with {status}"), LIMIT, async || {
            self.try_get(path).is_ok_and(|response| response.status == status)
        })
        .await;
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Response {
        post(self.listen, path, body).expect("no response from the server")
    }

    pub(crate) fn put(&self, path: &str, body: &str) -> Response {
        send_json(self.listen, "PUT", path, body).expect("no response from the server")
    }

    pub(crate) fn patch(&self, path: &str, body: &str) -> Response {
        send_json(self.listen, "PATCH", path, body).expect("no response from the server")
    }

    pub(crate) fn delete(&self, path: &str) -> Response {
        send_json(self.listen, "DELETE", path, "").expect("no response from the server")
    }

    /// Posts JSON with this token.
    pub(crate) fn post_as(&self, token: &str, path: &str, body: &str) -> Response {
        let head = format!("Authorization: Bearer {token}\r\nContent-Type: application/json");
        let rest = format!("Host: {}\r\nContent-Length: {}\r\nConnection: close", self.listen, body.len());
        send(self.listen, &format!("POST {path} HTTP/1.1\r\n{head}\r\n{rest}\r\n\r\n{body}"))
            .expect("no response from the server")
    }

    /// The log of a server that [`start_configured`](Self::start_configured) or [`start_logged`](Self::start_logged)
    /// started.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(LOG)).expect("cannot read the log")
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the server is not running");
        self.child.wait().expect("cannot wait for the server");
    }

    /// Sends SIGHUP, which reloads the configuration.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the server is not running");
    }

    /// Sends SIGTERM and waits for the exit.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.child.wait().expect("cannot wait for the server")
    }
}

/// Posts JSON to an address.
pub(crate) fn post(listen: SocketAddr, path: &str, body: &str) -> std::io::Result<Response> {
    send_json(listen, "POST", path, body)
}

fn send_json(listen: SocketAddr, method: &str, path: &str, body: &str) -> std::io::Result<Response> {
    let length = body.len();
    send(
        listen,
        &format!(
            "{method} {path} HTTP/1.1\r\nHost: {listen}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ),
    )
}

pub(crate) fn send(listen: SocketAddr, request: &str) -> std::io::Result<Response> {
    let mut stream = TcpStream::connect(listen)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok(Response { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The single line that a failed command printed to stderr.
#[track_caller]
pub(crate) fn stderr_line(output: &Output) -> String {
    assert!(!output.status.success(), "the command did not fail");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}
