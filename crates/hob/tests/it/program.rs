//! Starts `hob`, reads where it listens, and asks it over HTTP.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use hob_testkit::{LIMIT, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) fn hob() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hob"));
    let ours = |name: &str| {
        ["HOB_", "REDIS_", "MESSAGE_RATE_"].iter().any(|start| name.starts_with(start))
            || name == "DATABASE_URL"
    };
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    command
}

/// The name of a server's log in its folder.
const LOG: &str = "log";

/// A running server, killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) listen: SocketAddr,
    pub(crate) store_port: Option<u16>,
    pub(crate) folder: TempDir,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Server {
    /// Where a page of it is.
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
            let folder = command.get_current_dir().expect("it runs in its folder").to_owned();
            std::fs::write(folder.join("hob.toml"), config).expect("a file in a temporary folder");
            command.stderr(File::create(folder.join(LOG)).expect("a file in a temporary folder"))
        })
    }

    /// Starts `hob serve` with both ports asked for at one address.
    pub(crate) fn start_on(address: &str, arguments: &[&str]) -> Server {
        Server::launch(address, |command| command.args(arguments))
    }

    /// Starts `hob serve` with whatever `prepare` adds to the command.
    pub(crate) fn launch(address: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Server {
        let ports = ["--listen", address, "--embedded-listen", address];
        // The database goes below the folder that the server was started in.
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = hob();
        command.current_dir(&folder).arg("serve").args(ports).stdout(Stdio::piped());
        let mut child = prepare(&mut command).spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (mut listen, mut store_port) = (None, None);
        // The last line that is announced is where the metrics are.
        while let Some(Ok(line)) = lines.next() {
            if let Some(address) = line.strip_prefix("Hob is on http://") {
                listen = Some(address.parse().expect("an address"));
            }
            if let Some((_, port)) = line.split_once("redis-cli -p ") {
                store_port = Some(port.parse().expect("a port"));
            }
            if line.contains("/metrics") {
                break;
            }
        }
        let listen = listen.expect("it says where it listens");
        Server { child, listen, store_port, folder }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.try_get(path).expect("the server answers")
    }

    pub(crate) fn try_get(&self, path: &str) -> std::io::Result<Answer> {
        self.try_get_with(&format!("Host: {}", self.listen), path)
    }

    /// Asks with a header of one's choice.
    pub(crate) fn get_with(&self, header: &str, path: &str) -> Answer {
        self.try_get_with(header, path).expect("the server answers")
    }

    fn try_get_with(&self, header: &str, path: &str) -> std::io::Result<Answer> {
        ask(self.listen, &format!("GET {path} HTTP/1.1\r\n{header}\r\nConnection: close\r\n\r\n"))
    }

    pub(crate) async fn wait_for_status(&self, path: &str, status: u16) {
        wait_for(format!("{path} to answer {status}"), LIMIT, async || {
            self.try_get(path).is_ok_and(|answer| answer.status == status)
        })
        .await;
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        post(self.listen, path, body).expect("the server answers")
    }

    /// Sends JSON with the admin token.
    pub(crate) fn post_as(&self, token: &str, path: &str, body: &str) -> Answer {
        let head = format!("Authorization: Bearer {token}\r\nContent-Type: application/json");
        let rest = format!("Host: {}\r\nContent-Length: {}\r\nConnection: close", self.listen, body.len());
        ask(self.listen, &format!("POST {path} HTTP/1.1\r\n{head}\r\n{rest}\r\n\r\n{body}"))
            .expect("the server answers")
    }

    /// What a server that was [configured](Self::start_configured) has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(LOG)).expect("the log of a configured server")
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Asks it to read its configuration again.
    pub(crate) fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).expect("it runs");
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        self.child.wait().expect("it ends")
    }
}

/// Sends JSON to an address.
pub(crate) fn post(listen: SocketAddr, path: &str, body: &str) -> std::io::Result<Answer> {
    let length = body.len();
    ask(
        listen,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: {listen}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ),
    )
}

fn ask(listen: SocketAddr, request: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(listen)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok(Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The one line that a command which failed says on stderr.
#[track_caller]
pub(crate) fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "it should have failed");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}
