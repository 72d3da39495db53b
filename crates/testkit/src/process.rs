//! The process of a server. It never outlives the test process.
//!
//! It shares a process group with a watchdog: a shell that reads from a pipe of the test process. When the test process
//! ends, even if it is killed, the pipe closes and the watchdog kills the group, including itself.

pub(crate) mod port;
pub(crate) mod program;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};

use crate::wait::wait_until;

const WATCHDOG: &str = r#"read -r _; rm -rf -- "$1"; kill -KILL 0"#;

/// How many lines of its log are shown when a server fails.
const LOG_TAIL_LINES: usize = 30;

/// A running program with its children.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    watchdog: Child,
    running: Mutex<Running>,
}

/// The child process, and the command to restart it.
#[derive(Debug)]
struct Running {
    command: Command,
    child: Child,
}

impl Running {
    /// The process id while it runs. Afterwards the id may belong to another process.
    fn live_pid(&mut self) -> Option<Pid> {
        matches!(self.child.try_wait(), Ok(None)).then(|| Pid::from_child(&self.child))
    }
}

impl Process {
    /// Starts `command` with its output in a log file in `folder`. If the test process is killed, the watchdog removes
    /// `folder`.
    pub fn start(folder: &Path, mut command: Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = folder.join("log");
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start sh: {error}"));
        let (out, err) =
            log_file(&log).unwrap_or_else(|error| panic!("cannot write {}: {error}", log.display()));
        command.stdin(Stdio::null()).stdout(out).stderr(err).env("LC_ALL", "C");
        command.current_dir(folder).process_group(Pid::from_child(&watchdog).as_raw_pid());
        let child = spawn(&mut command);
        Self { name, log, watchdog, running: Mutex::new(Running { command, child }) }
    }

    /// Starts the command again after it has ended.
    pub fn restart(&self) {
        let mut running = self.running();
        assert!(
            running.live_pid().is_none(),
            "{} is still running; stop or kill it before a restart",
            self.name
        );
        running.child = spawn(&mut running.command);
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.running().child.id()
    }

    /// The exit status, if the process has ended.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.running()
            .child
            .try_wait()
            .unwrap_or_else(|error| panic!("cannot wait for {}: {error}", self.name))
    }

    /// Sends `signal` and waits until the process has ended.
    pub fn stop(&self, signal: Signal) {
        if let Some(pid) = self.running().live_pid() {
            self.send(&[pid], signal);
        }
        self.thaw();
        wait_until(format_args!("{} to stop", self.name), || self.ended());
    }

    /// Kills the process and its children with SIGKILL.
    pub fn kill(&self) {
        let mut running = self.running();
        let Some(pid) = running.live_pid() else { return };
        let tree = self.freeze_tree(pid);
        self.send(&tree, Signal::KILL);
        running.child.wait().unwrap_or_else(|error| panic!("cannot wait for {}: {error}", self.name));
        wait_until(format_args!("the children of {} to end", self.name), || {
            !tree.iter().any(|pid| is_alive(*pid))
        });
    }

    /// Suspends the process and its children. Their sockets stay open.
    pub fn freeze(&self) {
        if let Some(pid) = self.running().live_pid() {
            self.freeze_tree(pid);
        }
    }

    /// Resumes a frozen process.
    pub fn thaw(&self) {
        if let Some(pid) = self.running().live_pid() {
            self.send(&tree(pid), Signal::CONT);
        }
    }

    /// Limits the size of the files that the process and its children may write, as a full disk does, or removes the
    /// limit. The error says why this machine cannot do it.
    pub fn limit_file_size(&self, bytes: Option<u64>) -> Result<(), String> {
        let Some(pid) = self.running().live_pid() else { return Ok(()) };
        let limit = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        tree(pid).into_iter().filter(|pid| is_alive(*pid)).try_for_each(|pid| set_file_limit(pid, &limit))
    }

    /// The last lines of the log.
    pub fn log(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// Freezes each parent before its children are listed, so that no new child is missed.
    fn freeze_tree(&self, root: Pid) -> Vec<Pid> {
        let mut frozen = Vec::new();
        let mut next = vec![root];
        while let Some(pid) = next.pop() {
            self.send(&[pid], Signal::STOP);
            wait_until(format_args!("{} to freeze", self.name), || {
                !matches!(state(pid), Some('R' | 'S' | 'D'))
            });
            next.extend(children(pid));
            frozen.push(pid);
        }
        frozen
    }

    /// Ignores processes that have already ended.
    fn send(&self, to: &[Pid], signal: Signal) {
        for pid in to {
            match kill_process(*pid, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => panic!("cannot send {signal:?} to {}: {error}", self.name),
            }
        }
    }

    /// Ignores a poisoned lock: the server of a failed test must be ended too.
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = kill_process_group(Pid::from_child(&self.watchdog), Signal::KILL);
        let _ = self.watchdog.wait();
    }
}

fn spawn(command: &mut Command) -> Child {
    command.spawn().unwrap_or_else(|error| panic!("cannot start {:?}: {error}", command.get_program()))
}

/// Opened for appending, so that stdout and stderr do not overwrite each other.
fn log_file(path: &Path) -> io::Result<(File, File)> {
    let file = File::options().create(true).append(true).open(path)?;
    Ok((file.try_clone()?, file))
}

/// Sets the soft limit. Only a process of the same user may do so without a privilege that containers often lack.
fn set_file_limit(pid: Pid, limit: &str) -> Result<(), String> {
    let number = pid.as_raw_pid().to_string();
    // The process may have ended.
    let Ok(process) = fs::metadata(format!("/proc/{number}")) else { return Ok(()) };
    let mut command = Command::new("prlimit");
    command.args(["--pid", &number, &format!("--fsize={limit}:")]).current_dir("/");
    if geteuid().is_root() {
        command.uid(process.uid()).gid(process.gid());
    }
    let output = command.output().map_err(|error| format!("cannot start prlimit: {error}"))?;
    if output.status.success() || !is_alive(pid) {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

fn tree(root: Pid) -> Vec<Pid> {
    let mut all = vec![root];
    let mut listed = 0;
    while let Some(pid) = all.get(listed) {
        all.extend(children(*pid));
        listed += 1;
    }
    all
}

/// The kernel lists children per thread.
fn children(pid: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())) else {
        return Vec::new();
    };
    let lists =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(parse_pid).collect::<Vec<_>>()).collect()
}

fn parse_pid(number: &str) -> Option<Pid> {
    Pid::from_raw(number.parse().ok()?)
}

/// A zombie does not count: it may never be reaped.
fn is_alive(pid: Pid) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// The state letter of the process in `/proc`, if it exists.
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
