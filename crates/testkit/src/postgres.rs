//! A PostgreSQL server that can be stopped, killed, frozen and disconnected.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::Process;
use crate::process::port::{Port, PortTaken, with_free_ports};
use crate::process::program;
use crate::tls::Identity;
use crate::wait::wait_until;

/// The account of the Debian package. PostgreSQL refuses to run as root, so the server runs under it if the tests run as
/// root.
const ACCOUNT: &str = "postgres";

/// The superuser of the database.
const SUPERUSER: &str = "postgres";

/// Without fsync a commit survives `kill -9`, but not a power failure.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    // In the data folder, so that a killed server leaves nothing behind.
    "dynamic_shared_memory_type=mmap",
    "min_wal_size=2MB",
    "wal_level=minimal",
    "max_wal_senders=0",
    "lc_messages=C",
];

/// A PostgreSQL server on 127.0.0.1 without authentication.
#[derive(Debug)]
pub struct Postgres {
    // Dropped first: the process ends before its port and its folder are released.
    process: Process,
    port: Port,
    tls: Option<Identity>,
    folder: TempDir,
}

#[derive(Clone, Copy)]
enum Transport {
    Plain,
    /// Plain or encrypted, as the client chooses.
    Tls,
}

impl Postgres {
    pub fn start() -> Self {
        let template = template();
        with_free_ports(|| Self::launch(&template, Transport::Plain))
    }

    /// Starts a server that also accepts TLS, at [`tls_url`](Self::tls_url).
    pub fn start_with_tls() -> Self {
        let template = template();
        with_free_ports(|| Self::launch(&template, Transport::Tls))
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{}/postgres", self.port())
    }

    /// The URL for TLS. It verifies the certificate with the authority of the test.
    pub fn tls_url(&self) -> String {
        let identity = self.tls.as_ref();
        let authority = &identity.expect("the server was started with start_with_tls").authority;
        format!("{}?sslmode=verify-full&sslrootcert={}", self.url(), authority.display())
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Runs statements with psql and returns its output: one line per row, columns separated by `|`.
    pub fn psql(&self, statements: &str) -> String {
        self.try_psql(statements).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`psql`](Self::psql), for a server that may not answer.
    pub fn try_psql(&self, statements: &str) -> Result<String, String> {
        let output = Command::new(program::find_postgres("psql"))
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1"])
            .args(["--dbname", &self.url(), "--command", statements])
            .output()
            .unwrap_or_else(|error| panic!("cannot start psql: {error}"));
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(format!("psql ended ({}): {stderr}", output.status));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Fast shutdown: the server closes its connections and ends. Waits until it has ended.
    pub fn stop(&self) {
        self.process.stop(Signal::INT);
    }

    /// Kills the server and all its processes with SIGKILL.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Starts a stopped or killed server again, with its data, on the same port.
    pub fn restart(&self) {
        self.process.restart();
        self.wait_until_ready().unwrap_or_else(|PortTaken| panic!("port {} is no longer free", self.port()));
    }

    /// Suspends the server and all its processes: connections stay open, but get no response.
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

    /// Closes all client connections on the server, and returns how many there were.
    pub fn disconnect_clients(&self) -> usize {
        let closed = self.psql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        );
        closed.parse().expect("count() is a number")
    }

    fn launch(template: &Path, transport: Transport) -> Result<Self, PortTaken> {
        let folder = server_folder();
        let data = folder.path().join("data");
        copy(template, &data);
        let port = Port::reserve();
        let mut command = server_command("postgres");
        command.arg("-D").arg(&data).args(["-p", &port.number().to_string()]);
        command.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        let tls = match transport {
            Transport::Plain => None,
            Transport::Tls => Some(identity(folder.path())),
        };
        command.args(tls.iter().flat_map(tls_settings));
        let server = Self { process: Process::start(folder.path(), command), port, tls, folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Waits for the status file of the server, as `pg_ctl` does.
    fn wait_until_ready(&self) -> Result<(), PortTaken> {
        let status_file = self.folder.path().join("data/postmaster.pid");
        let id = self.process.id().to_string();
        wait_until(format_args!("PostgreSQL on port {} to be ready", self.port()), || {
            if let Some(status) = self.process.ended() {
                let log = self.process.log();
                assert!(log.contains("Address already in use"), "postgres ended ({status}):\n{log}");
                return Some(Err(PortTaken));
            }
            let status = fs::read_to_string(&status_file).unwrap_or_default();
            let mut lines = status.lines().map(str::trim);
            (lines.next() == Some(&id) && lines.next_back() == Some("ready")).then_some(Ok(()))
        })
    }
}

/// A killed server leaves a shared memory segment behind, of which a machine has a limited number. After `ipcrm` the
/// segment is deleted with the last process that uses it.
impl Drop for Postgres {
    fn drop(&mut self) {
        let status = fs::read_to_string(self.folder.path().join("data/postmaster.pid")).unwrap_or_default();
        // The seventh line has the key and the id of the segment.
        if let Some(id) = status.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            let _ = Command::new("ipcrm").args(["-m", id]).stderr(Stdio::null()).status();
        }
    }
}

/// An empty data folder, created once by `initdb`, which takes a second or more, and copied for every test.
fn template() -> PathBuf {
    let template = program::cache().join(format!("postgres-{}", version()));
    let lock = program::cache().join("postgres.lock");
    // Of the tests that start together, one creates the template and the others wait for it here.
    let held = fs::create_dir_all(program::cache()).and_then(|()| File::create(&lock)).and_then(|lock| {
        lock.lock()?;
        Ok(lock)
    });
    let _held = held.unwrap_or_else(|error| panic!("cannot lock {}: {error}", lock.display()));
    if !template.exists() {
        let folder = server_folder();
        initdb(&folder.path().join("data"));
        // Renamed when complete, so that a killed test does not leave a partial template.
        let partial = program::cache().join("postgres-partial");
        let _ = fs::remove_dir_all(&partial);
        copy(&folder.path().join("data"), &partial);
        fs::rename(&partial, &template)
            .unwrap_or_else(|error| panic!("cannot create {}: {error}", template.display()));
    }
    template
}

/// The version, such as `15.18`, from `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn version() -> String {
    let output = Command::new(program::find_postgres("postgres")).arg("--version").output();
    let output = output.unwrap_or_else(|error| panic!("cannot start postgres: {error}"));
    let line = String::from_utf8_lossy(&output.stdout);
    line.split_whitespace()
        .nth(2)
        .unwrap_or_else(|| panic!("unexpected output of postgres --version: {line:?}"))
        .to_owned()
}

fn initdb(data: &Path) {
    let output = server_command("initdb")
        .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"])
        .args(["--username", SUPERUSER, "--pgdata"])
        .arg(data)
        .output()
        .unwrap_or_else(|error| panic!("cannot start initdb: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "initdb ended ({}): {stderr}", output.status);
}

/// A server program, run as a user that PostgreSQL accepts.
fn server_command(name: &str) -> Command {
    let mut command = Command::new(program::find_postgres(name));
    if let Some((user, group)) = server_account() {
        command.uid(user).gid(group);
    }
    command.current_dir("/");
    command
}

/// A temporary folder that belongs to the server's user.
fn server_folder() -> TempDir {
    let folder = TempDir::new().unwrap_or_else(|error| panic!("cannot make a folder: {error}"));
    if let Some((user, group)) = server_account() {
        chown(folder.path(), Some(user), Some(group))
            .unwrap_or_else(|error| panic!("cannot give {} to {ACCOUNT}: {error}", folder.path().display()));
    }
    folder
}

/// A certificate whose key only the server's user can read, as PostgreSQL requires.
fn identity(folder: &Path) -> Identity {
    let identity = Identity::create(folder);
    let private = || -> std::io::Result<()> {
        fs::set_permissions(&identity.key, Permissions::from_mode(0o600))?;
        match server_account() {
            Some((user, group)) => chown(&identity.key, Some(user), Some(group)),
            None => Ok(()),
        }
    };
    private().unwrap_or_else(|error| {
        panic!("cannot set the owner and mode of {}: {error}", identity.key.display())
    });
    identity
}

fn tls_settings(identity: &Identity) -> [String; 6] {
    let setting = |name: &str, path: &Path| format!("{name}={}", path.display());
    let option = || "-c".to_owned();
    [
        option(),
        "ssl=on".to_owned(),
        option(),
        setting("ssl_cert_file", &identity.certificate),
        option(),
        setting("ssl_key_file", &identity.key),
    ]
}

/// Keeps owners and modes, which PostgreSQL checks.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status();
    let status = status.unwrap_or_else(|error| panic!("cannot start cp: {error}"));
    assert!(status.success(), "cannot copy {} to {}", from.display(), to.display());
}

/// The user and group to run as, when the tests run as root.
fn server_account() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let numbers = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_account = fields.next() == Some(ACCOUNT);
        let (user, group) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        is_account.then_some((user, group))
    });
    numbers.or_else(|| program::missing("the account `postgres`", "postgresql"))
}
