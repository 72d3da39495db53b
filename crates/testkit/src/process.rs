//! A server's process, which never outlives the test.
//!
//! The process shares a process group with a watchdog, a shell that reads from a pipe held by the test. When
//! the test process ends, however it ends, the pipe closes and the watchdog kills the group, itself included.

pub(crate) mod port;
pub(crate) mod program;

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::wait::until;

const WATCHDOG: &str = r#"read -r _; rm -rf -- "$1"; kill -KILL 0"#;

/// How much of a log is worth showing when a server fails.
const LOG_TAIL_LINES: usize = 30;

/// A running program with its children.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    log: PathBuf,
    watchdog: Child,
    running: Mutex<Running>,
}

/// Kept together, as a restart needs both.
#[derive(Debug)]
struct Running {
    command: Command,
    child: Child,
}

impl Running {
    /// The program's number while it runs; afterwards the number may be another program's.
    fn live(&mut self) -> Option<Pid> {
        matches!(self.child.try_wait(), Ok(None)).then(|| Pid::from_child(&self.child))
    }
}

impl Process {
    /// Starts `command` with its output in a log file in `folder`, which goes away with the process when the
    /// test is killed.
    pub(crate) fn start(folder: &Path, mut command: Command) -> Self {
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

    /// Starts the same command again once it has ended.
    pub(crate) fn restart(&self) {
        let mut running = self.running();
        assert!(running.live().is_none(), "{} still runs: stop or kill it before it is restarted", self.name);
        running.child = spawn(&mut running.command);
    }

    pub(crate) fn id(&self) -> u32 {
        self.running().child.id()
    }

    /// How the program ended, if it has.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.running()
            .child
            .try_wait()
            .unwrap_or_else(|error| panic!("cannot wait for {}: {error}", self.name))
    }

    /// Asks the program to end with `signal`, and waits until it has.
    pub(crate) fn stop(&self, signal: Signal) {
        if let Some(pid) = self.running().live() {
            self.send(&[pid], signal);
        }
        self.thaw();
        until(format_args!("{} to stop", self.name), || self.ended());
    }

    /// Ends the program and its children with no chance to tidy up.
    pub(crate) fn kill(&self) {
        let mut running = self.running();
        let Some(pid) = running.live() else { return };
        let family = self.freeze_family(pid);
        self.send(&family, Signal::KILL);
        running.child.wait().unwrap_or_else(|error| panic!("cannot wait for {}: {error}", self.name));
        until(format_args!("the children of {} to end", self.name), || !family.iter().any(|pid| lives(*pid)));
    }

    /// Stops the program and its children in their tracks; their sockets stay open.
    pub(crate) fn freeze(&self) {
        if let Some(pid) = self.running().live() {
            self.freeze_family(pid);
        }
    }

    /// Lets a frozen program go on.
    pub(crate) fn thaw(&self) {
        if let Some(pid) = self.running().live() {
            self.send(&family(pid), Signal::CONT);
        }
    }

    /// The end of what the program said.
    pub(crate) fn log(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// Freezes the parents before their children are listed, so that none is born unseen.
    fn freeze_family(&self, root: Pid) -> Vec<Pid> {
        let mut frozen = Vec::new();
        let mut next = vec![root];
        while let Some(pid) = next.pop() {
            self.send(&[pid], Signal::STOP);
            until(format_args!("{} to freeze", self.name), || !matches!(state(pid), Some('R' | 'S' | 'D')));
            next.extend(children(pid));
            frozen.push(pid);
        }
        frozen
    }

    /// A process that has ended meanwhile is no error.
    fn send(&self, to: &[Pid], signal: Signal) {
        for pid in to {
            match kill_process(*pid, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => panic!("cannot send {signal:?} to {}: {error}", self.name),
            }
        }
    }

    /// A test that failed while it held the lock is no reason not to end its server.
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

/// Opened for appending, so that the two streams of a program do not write over each other.
fn log_file(path: &Path) -> io::Result<(File, File)> {
    let file = File::options().create(true).append(true).open(path)?;
    Ok((file.try_clone()?, file))
}

fn family(root: Pid) -> Vec<Pid> {
    let mut all = vec![root];
    let mut listed = 0;
    while let Some(pid) = all.get(listed) {
        all.extend(children(*pid));
        listed += 1;
    }
    all
}

/// Listed by the thread that started them.
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

/// A zombie does not count: nobody may ever collect an orphan's remains.
fn lives(pid: Pid) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// The letter that the kernel has for what the process is doing, if it exists.
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
