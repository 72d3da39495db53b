//! A PostgreSQL server, and the ways to hurt it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::Process;
use crate::process::port::{Port, Taken, until_free};
use crate::process::program;
use crate::tls::Identity;
use crate::wait::until;

/// The account that Debian's package makes, under which the server runs when the tests run as root, whom
/// PostgreSQL refuses.
const ACCOUNT: &str = "postgres";

/// The database's superuser, its name the same on every machine.
const SUPERUSER: &str = "postgres";

/// Without fsync a commit survives `kill -9`, which is all that a test does, but not a power cut.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    // In its own folder, so that one that is killed leaves nothing behind.
    "dynamic_shared_memory_type=mmap",
    "min_wal_size=2MB",
    "wal_level=minimal",
    "max_wal_senders=0",
    "lc_messages=C",
];

/// A PostgreSQL of one's own on 127.0.0.1 that trusts everybody.
#[derive(Debug)]
pub struct Postgres {
    // Ends before its port and its folder are given back.
    process: Process,
    port: Port,
    tls: Option<Identity>,
    folder: TempDir,
}

#[derive(Clone, Copy)]
enum Transport {
    Plain,
    /// Plain or encrypted, as the client likes.
    Tls,
}

impl Postgres {
    pub fn start() -> Self {
        let template = template();
        until_free(|| Self::launch(&template, Transport::Plain))
    }

    /// A server that can be reached by [`tls_url`](Self::tls_url) as well.
    pub fn start_with_tls() -> Self {
        let template = template();
        until_free(|| Self::launch(&template, Transport::Tls))
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{}/postgres", self.port())
    }

    /// The server over TLS, its certificate checked against the test's own authority.
    pub fn tls_url(&self) -> String {
        let identity = self.tls.as_ref();
        let authority = &identity.expect("it was started with start_with_tls").authority;
        format!("{}?sslmode=verify-full&sslrootcert={}", self.url(), authority.display())
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Runs statements with psql, and answers with what it prints: a line per row, columns apart by `|`.
    pub fn psql(&self, statements: &str) -> String {
        let output = Command::new(program::find_postgres("psql"))
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1"])
            .args(["--dbname", &self.url(), "--command", statements])
            .output()
            .unwrap_or_else(|error| panic!("cannot start psql: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "psql ended ({}): {said}", output.status);
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Asks the server to end at once, its connections closed, and waits until it has.
    pub fn stop(&self) {
        self.process.stop(Signal::INT);
    }

    /// `kill -9` for the server and all its processes.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Starts a stopped or killed server again, with its data, on the same port.
    pub fn restart(&self) {
        self.process.restart();
        self.wait_until_ready().unwrap_or_else(|Taken| panic!("port {} is no longer free", self.port()));
    }

    /// SIGSTOP for the server and all its processes: connections stay open, nothing is answered.
    pub fn freeze(&self) {
        self.process.freeze();
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// Closes all clients' connections from the server's side, and answers how many there were.
    pub fn cut(&self) -> usize {
        let closed = self.psql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        );
        closed.parse().expect("count() is a number")
    }

    fn launch(template: &Path, transport: Transport) -> Result<Self, Taken> {
        let folder = own_folder();
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

    /// The server notes its number and how far it is in a file, which `pg_ctl` too waits for.
    fn wait_until_ready(&self) -> Result<(), Taken> {
        let note = self.folder.path().join("data/postmaster.pid");
        let id = self.process.id().to_string();
        until(format_args!("PostgreSQL on port {} to be ready", self.port()), || {
            if let Some(status) = self.process.ended() {
                let log = self.process.log();
                assert!(log.contains("Address already in use"), "postgres ended ({status}):\n{log}");
                return Some(Err(Taken));
            }
            let note = fs::read_to_string(&note).unwrap_or_default();
            let mut lines = note.lines().map(str::trim);
            (lines.next() == Some(&id) && lines.next_back() == Some("ready")).then_some(Ok(()))
        })
    }
}

/// A server that is killed leaves a segment of shared memory behind, and a machine has only so many. Told to go, the
/// segment goes with the last process that uses it.
impl Drop for Postgres {
    fn drop(&mut self) {
        let note = fs::read_to_string(self.folder.path().join("data/postmaster.pid")).unwrap_or_default();
        // The seventh line is the segment's key and its id.
        if let Some(id) = note.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            let _ = Command::new("ipcrm").args(["-m", id]).stderr(Stdio::null()).status();
        }
    }
}

/// A new database, made once by `initdb`, which takes a second or more, and copied by every test after that.
fn template() -> PathBuf {
    let template = program::store().join(format!("postgres-{}", version()));
    let lock = program::store().join("postgres.lock");
    // Of all the tests that start together, one makes the template and the others wait for it here.
    let held = fs::create_dir_all(program::store()).and_then(|()| File::create(&lock)).and_then(|lock| {
        lock.lock()?;
        Ok(lock)
    });
    let _held = held.unwrap_or_else(|error| panic!("cannot lock {}: {error}", lock.display()));
    if !template.exists() {
        let folder = own_folder();
        initdb(&folder.path().join("data"));
        // Half a copy must not pass for a template when the test is killed meanwhile.
        let half = program::store().join("postgres-half");
        let _ = fs::remove_dir_all(&half);
        copy(&folder.path().join("data"), &half);
        fs::rename(&half, &template)
            .unwrap_or_else(|error| panic!("cannot create {}: {error}", template.display()));
    }
    template
}

/// Such as `15.18`, from `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn version() -> String {
    let output = Command::new(program::find_postgres("postgres")).arg("--version").output();
    let output = output.unwrap_or_else(|error| panic!("cannot start postgres: {error}"));
    let line = String::from_utf8_lossy(&output.stdout);
    line.split_whitespace().nth(2).unwrap_or_else(|| panic!("postgres --version says {line:?}")).to_owned()
}

fn initdb(data: &Path) {
    let output = server_command("initdb")
        .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"])
        .args(["--username", SUPERUSER, "--pgdata"])
        .arg(data)
        .output()
        .unwrap_or_else(|error| panic!("cannot start initdb: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "initdb ended ({}): {said}", output.status);
}

/// One of the server's programs, as a user that PostgreSQL accepts.
fn server_command(name: &str) -> Command {
    let mut command = Command::new(program::find_postgres(name));
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command.current_dir("/");
    command
}

/// A temporary folder that belongs to the server's user.
fn own_folder() -> TempDir {
    let folder = TempDir::new().unwrap_or_else(|error| panic!("cannot make a folder: {error}"));
    if let Some((user, group)) = other_user() {
        chown(folder.path(), Some(user), Some(group))
            .unwrap_or_else(|error| panic!("cannot give {} to {ACCOUNT}: {error}", folder.path().display()));
    }
    folder
}

/// A certificate whose key only the server's user can read, on which PostgreSQL insists.
fn identity(folder: &Path) -> Identity {
    let identity = Identity::create(folder);
    let private = || -> std::io::Result<()> {
        fs::set_permissions(&identity.key, Permissions::from_mode(0o600))?;
        match other_user() {
            Some((user, group)) => chown(&identity.key, Some(user), Some(group)),
            None => Ok(()),
        }
    };
    private().unwrap_or_else(|error| panic!("cannot keep {} private: {error}", identity.key.display()));
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

/// Keeps owners and modes, on which PostgreSQL insists.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status();
    let status = status.unwrap_or_else(|error| panic!("cannot start cp: {error}"));
    assert!(status.success(), "cannot copy {} to {}", from.display(), to.display());
}

/// The user and group to run as, when the tests run as root.
fn other_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let numbers = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_ours = fields.next() == Some(ACCOUNT);
        let (user, group) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        is_ours.then_some((user, group))
    });
    numbers.or_else(|| program::missing("the account `postgres`", "postgresql"))
}
