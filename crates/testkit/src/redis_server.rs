//! A redis-server that can be stopped, killed, frozen, flushed and disconnected.

pub(crate) mod cluster;
pub(crate) mod sentinel;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redis::{Client, Connection, FromRedisValue, RedisResult};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::Process;
use crate::process::port::{Port, PortTaken, with_free_ports};
use crate::process::program;
use crate::tls::Identity;
use crate::wait::wait_until;

/// How long a command of the testkit waits for its reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(15);

/// Options of a server. It always has a TCP port and a Unix socket.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    pub password: Option<String>,
    /// Also listen with TLS, on another port.
    pub tls: bool,
    /// Further arguments of redis-server, such as `["--maxmemory", "10mb"]`.
    pub arguments: Vec<String>,
}

/// Which connections to close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    Normal,
    PubSub,
}

/// A redis-server on 127.0.0.1, without persistence.
#[derive(Debug)]
pub struct RedisServer {
    // Dropped first: the process ends before its ports and its folder are released.
    process: Process,
    port: Port,
    tls: Option<(Port, Identity)>,
    password: Option<String>,
    folder: TempDir,
}

impl RedisServer {
    /// Starts a server with default options.
    pub fn start() -> Self {
        Self::start_with(&RedisOptions::default())
    }

    pub fn start_with(options: &RedisOptions) -> Self {
        with_free_ports(|| {
            let folder =
                tempfile::tempdir().unwrap_or_else(|error| panic!("cannot create a folder: {error}"));
            Self::launch(folder, Port::reserve(), options, &[])
        })
    }

    /// Starts a server in `folder`. `first` are its first arguments, such as a configuration file.
    pub(crate) fn launch(
        folder: TempDir,
        port: Port,
        options: &RedisOptions,
        first: &[&str],
    ) -> Result<Self, PortTaken> {
        let mut command = Command::new(program::find(&["redis-server"], "redis-server"));
        command.args(first).args(["--bind", "127.0.0.1", "--port", &port.number().to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--unixsocket"]).arg(socket(folder.path()));
        if let Some(password) = &options.password {
            command.args(["--requirepass", password]);
        }
        let tls = options.tls.then(|| (Port::reserve(), Identity::create(folder.path())));
        if let Some((port, identity)) = &tls {
            command.args(tls_arguments(port, identity));
        }
        command.args(&options.arguments);
        let process = Process::start(folder.path(), command);
        let server = Self { process, port, tls, password: options.password.clone(), folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// `redis://127.0.0.1:PORT/`, with the password if there is one.
    pub fn url(&self) -> String {
        format!("redis://{}127.0.0.1:{}/", self.credentials(), self.port())
    }

    /// `rediss://localhost:PORT/`, for a server started with TLS.
    pub fn tls_url(&self) -> String {
        let (port, _) = self.tls();
        format!("rediss://{}localhost:{}/", self.credentials(), port.number())
    }

    /// The authority to trust for [`tls_url`](Self::tls_url), in PEM.
    pub fn authority_pem(&self) -> &str {
        &self.tls().1.authority_pem
    }

    /// The URL of the Unix socket.
    pub fn unix_url(&self) -> String {
        let password = self.password.as_ref().map(|password| format!("?pass={password}"));
        format!("redis+unix://{}{}", socket(self.folder.path()).display(), password.unwrap_or_default())
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Opens a connection for the test itself.
    pub fn connect(&self) -> Connection {
        self.try_connect().unwrap_or_else(|error| panic!("cannot connect to {}: {error}", self.url()))
    }

    /// Sends one command, such as `["CONFIG", "SET", "maxmemory", "10mb"]`.
    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_command(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// As [`command`](Self::command), for a server that may close its connections.
    pub fn try_command<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.try_connect()?)
    }

    /// Stops the server with SIGTERM, and waits until it has ended.
    pub fn stop(&self) {
        self.process.stop(Signal::TERM);
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Starts a stopped or killed server again, empty, on the same port.
    pub fn restart(&self) {
        self.process.restart();
        self.wait_until_ready().unwrap_or_else(|PortTaken| panic!("port {} is no longer free", self.port()));
    }

    /// Suspends the server: connections stay open, but get no reply.
    pub fn freeze(&self) {
        self.process.freeze();
    }

    /// Resumes a frozen server.
    pub fn unfreeze(&self) {
        self.process.thaw();
    }

    /// Limits the size of the files that the server may write, as a full disk does, or removes the limit. The error says
    /// why this machine cannot do it.
    pub fn limit_file_size(&self, bytes: Option<u64>) -> Result<(), String> {
        self.process.limit_file_size(bytes)
    }

    /// Whether the process runs. A frozen one does.
    pub fn is_running(&self) -> bool {
        self.process.ended().is_none()
    }

    /// Deletes all data.
    pub fn flush_all(&self) {
        self.command::<()>(&["FLUSHALL"]);
    }

    /// Deletes all cached scripts.
    pub fn flush_scripts(&self) {
        self.command::<()>(&["SCRIPT", "FLUSH"]);
    }

    /// Closes connections on the server, and returns how many there were.
    pub fn disconnect_clients(&self, connections: Connections) -> usize {
        let kind = match connections {
            Connections::Normal => "normal",
            Connections::PubSub => "pubsub",
        };
        self.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])
    }

    /// Lets the server evict all keys that have a TTL, and no others. There is at least one.
    pub fn evict_keys(&self) {
        let evicted = || self.info("stats").get::<u64>("evicted_keys").unwrap_or_default();
        let before = evicted();
        self.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
        self.command::<()>(&["SET", "victim", "value", "PX", "900"]);
        self.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        // Refused, after the server has evicted what it can.
        assert!(self.try_command::<()>(&["SET", "other", "value"]).is_err(), "the server has enough memory");
        self.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
        assert!(evicted() > before, "nothing was evicted");
    }

    /// The fields of a section of `INFO`.
    pub fn info(&self, section: &str) -> redis::InfoDict {
        self.command(&["INFO", section])
    }

    /// Compares the process id, because another server might listen on the port.
    fn wait_until_ready(&self) -> Result<(), PortTaken> {
        wait_until(format_args!("redis-server on port {} to answer", self.port()), || {
            if let Some(status) = self.process.ended() {
                let log = self.process.log();
                assert!(log.contains("Address already in use"), "redis-server ended ({status}):\n{log}");
                return Ok(Err(PortTaken));
            }
            match self.try_command::<redis::InfoDict>(&["INFO", "server"]) {
                Ok(info) if info.get::<u32>("process_id") == Some(self.process.id()) => Ok(Ok(())),
                Ok(_) => Err("another server".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    fn try_connect(&self) -> RedisResult<Connection> {
        let connection = Client::open(self.url())?.get_connection_with_timeout(REPLY_TIMEOUT)?;
        connection.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(connection)
    }

    /// The credentials of a URL: `:password@`, or nothing.
    pub(crate) fn credentials(&self) -> String {
        self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default()
    }

    fn tls(&self) -> &(Port, Identity) {
        self.tls.as_ref().expect("the server was not started with RedisOptions::tls")
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("redis.sock")
}

fn tls_arguments(port: &Port, identity: &Identity) -> Vec<OsString> {
    vec![
        "--tls-port".into(),
        port.number().to_string().into(),
        "--tls-cert-file".into(),
        identity.certificate.as_os_str().to_owned(),
        "--tls-key-file".into(),
        identity.key.as_os_str().to_owned(),
        "--tls-ca-cert-file".into(),
        identity.authority.as_os_str().to_owned(),
        "--tls-auth-clients".into(),
        "no".into(),
    ]
}
