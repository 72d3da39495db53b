//! The servers, and the Redis that each of them uses.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bench_kit::{Core, Process, built_by_cargo, free_address, hob, node_modules, wait_for};
use tempfile::TempDir;

use crate::member::MemberId;
use crate::protocol::{self, Protocol};

/// The server has one core for itself; the generator and Redis share the other.
const SERVER: Core = Core::First;
pub(crate) const OTHERS: Core = Core::Second;

const PACKAGES: [&str; 3] = ["socket.io@4.8.4", "@socket.io/redis-adapter@8.3.0", "redis@5.9.0"];

/// Which server is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    SocketIo,
    Socketioxide,
    Hob,
}

/// A chat server with its own Redis.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) redis: Redis,
    _folder: TempDir,
}

pub(crate) struct Redis {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    url: String,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::SocketIo, Self::Socketioxide, Self::Hob];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hob => "Hob",
            Self::SocketIo => "Socket.IO",
            Self::Socketioxide => "socketioxide",
        }
    }
}

impl Server {
    pub(crate) fn start(kind: Kind) -> Result<Self> {
        Self::start_with(kind, None)
    }

    /// Starts a server. Hob uses this database instead of SQLite.
    pub(crate) fn start_with(kind: Kind, database: Option<&str>) -> Result<Self> {
        let (redis, folder) = (Redis::start()?, tempfile::tempdir()?);
        match kind {
            Kind::Hob => Self::hob(redis, folder, database),
            Kind::SocketIo => {
                let mut command = SERVER.command("node");
                command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/socketio.js"));
                command.env("NODE_PATH", node_modules("socketio", &PACKAGES)?).env("NODE_ENV", "production");
                Self::socket_io(&mut command, redis, folder)
            }
            Kind::Socketioxide => {
                let package = concat!(env!("CARGO_MANIFEST_DIR"), "/socketioxide");
                let program = built_by_cargo("bench-chat-socketioxide", package)?;
                Self::socket_io(&mut SERVER.command(program), redis, folder)
            }
        }
    }

    /// Hob with limits that this load does not reach.
    fn hob(redis: Redis, folder: TempDir, database: Option<&str>) -> Result<Self> {
        let secret = folder.path().join("secret");
        std::fs::write(&secret, protocol::SECRET)?;
        let settings = format!(
            "[chat]\ntoken_secret = \"file:{}\"\nmessage_rate_limit = 1000000\nconnects_per_minute = 1000000\n\
             commands_per_second = 100000\n",
            secret.display()
        );
        std::fs::write(folder.path().join("hob.toml"), settings)?;
        let mut command = SERVER.command(hob()?.get_program());
        command.args(["serve", "--only", "chat", "--listen", "127.0.0.1:0", "--redis", &redis.url]);
        command.args(database.into_iter().flat_map(|url| ["--database", url]));
        command.current_dir(&folder).env("HOB_LOG", "error").stdout(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let address = process.line(|line| line.strip_prefix("Hob is on http://")?.parse().ok())?;
        Ok(Self { process, address, protocol: Protocol::Hob, redis, _folder: folder })
    }

    /// A program that takes the address of Redis, prints its own, and speaks the protocol of Socket.IO.
    fn socket_io(command: &mut Command, redis: Redis, folder: TempDir) -> Result<Self> {
        let mut process = Process::start(command.arg(&redis.url).stdout(Stdio::piped()))?;
        let address = process.first_line()?.parse().context("the server did not print its address")?;
        Ok(Self { process, address, protocol: Protocol::SocketIo, redis, _folder: folder })
    }

    /// Creates the rooms with their members, if the server requires it.
    pub(crate) fn open_rooms(&self, rooms: usize, members: usize) -> Result<()> {
        if matches!(self.protocol, Protocol::SocketIo) {
            return Ok(());
        }
        for room in 0..rooms {
            let member = |number| MemberId { room, number };
            let others: Vec<String> = (1..members).map(|number| member(number).user()).collect();
            let body = serde_json::json!({
                "id": member(0).room_name(), "title": "Room", "created_by": member(0).user(), "members": others,
            });
            self.post("/api/v1/chat/conversations", &body.to_string())?;
        }
        Ok(())
    }

    fn post(&self, path: &str, body: &str) -> Result<()> {
        let mut stream = TcpStream::connect(self.address)?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n",
            self.address
        );
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        if !response.starts_with("HTTP/1.1 201") {
            bail!("{path}: {response}");
        }
        Ok(())
    }
}

impl Redis {
    fn start() -> Result<Self> {
        let address = free_address()?;
        let mut command = OTHERS.command("redis-server");
        command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no"]).stdout(Stdio::null());
        let process = Process::start(&mut command).context("apt-get install redis-server")?;
        wait_for(address)?;
        Ok(Self { process, address, url: format!("redis://{address}/") })
    }
}

/// The number of commands that Redis receives in this time, without the commands called by scripts.
pub(crate) fn commands_sent(redis: SocketAddr, time: Duration) -> Result<usize> {
    let mut stream = TcpStream::connect(redis)?;
    stream.write_all(b"MONITOR\r\n")?;
    let (end, mut output) = (Instant::now() + time, Vec::new());
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        stream.set_read_timeout(Some(left))?;
        let mut part = [0; 64 * 1024];
        match stream.read(&mut part) {
            Ok(0) => bail!("Redis has closed the connection"),
            Ok(length) => output.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    let output = String::from_utf8_lossy(&output);
    let mut lines = output.lines();
    ensure!(lines.next() == Some("+OK"), "unexpected reply to MONITOR");
    Ok(lines.filter(|line| !line.contains(" lua] ")).count())
}
