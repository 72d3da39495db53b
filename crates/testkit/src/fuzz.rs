//! Parses mutated documents in a child process with limits on time and memory, so that a parser that hangs, recurses
//! without end or takes all memory fails its test, not the machine.

mod mutate;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::budget::budget;

/// Set for the child: the file for the number of its current document.
const PROGRESS: &str = "HOB_TEST_FUZZ_PROGRESS";
/// A document takes milliseconds, but the machine may be busy.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The documents have at most 300 KiB.
const MAX_MEMORY: u64 = 512 << 20;

/// Calls `read` with mutations of the `valid` documents. Fails if it panics, takes too long or allocates too much. Its
/// result does not matter here.
///
/// `test` is the full name of the calling test: the child process runs this test binary with that test only.
pub fn fuzz(test: &str, valid: &[&str], read: impl Fn(&str)) {
    let documents = budget(1_000, 20_000);
    if let Some(progress) = std::env::var_os(PROGRESS) {
        return read_all(Path::new(&progress), documents, valid, read);
    }
    let folder = tempfile::tempdir().expect("no temporary folder");
    let (progress, output) = (folder.path().join("progress"), folder.path().join("output"));
    File::create(&progress).expect("cannot create a file");
    let errors = File::create(&output).expect("cannot create a file");
    let mut child = Command::new(std::env::current_exe().expect("the path of this test"))
        .args([test, "--exact", "--nocapture", "--include-ignored"])
        .env(PROGRESS, &progress)
        .stdout(errors.try_clone().expect("cannot share a file"))
        .stderr(errors)
        .spawn()
        .expect("cannot start this test again");
    let ended = wait(&mut child, &progress);
    let number = read_progress(&progress);
    if ended.is_some_and(|status| status.success()) && number == Some(documents) {
        return;
    }
    let output = String::from_utf8_lossy(&fs::read(&output).unwrap_or_default()).into_owned();
    let Some(number) = number else { panic!("{test} did not run in the child process: {output}") };
    let document = mutate::document(number, valid);
    let what =
        ended.map_or_else(|| format!("took more than {MAX_WAIT:?}"), |status| format!("ended: {status}"));
    panic!("document {number} {what}\n{}\n\n{}", shortened(&document), shortened(&output));
}

/// Runs in the child: writes the number of each document before reading it, and the total at the end.
fn read_all(progress: &Path, documents: usize, valid: &[&str], read: impl Fn(&str)) {
    let progress = File::options().write(true).open(progress).expect("cannot open the file for the progress");
    let limit = Some(mapped_bytes() + MAX_MEMORY);
    setrlimit(Resource::As, Rlimit { current: limit, maximum: limit }).expect("cannot limit the memory");
    for number in 0..=documents {
        progress.write_all_at(format!("{number:>10}").as_bytes(), 0).expect("cannot write the progress");
        if number < documents {
            read(&mutate::document(number, valid));
        }
    }
}

/// Waits for the child. `None` if it made no progress and was killed.
fn wait(child: &mut Child, progress: &PathBuf) -> Option<ExitStatus> {
    let (mut number, mut since) = (None, Instant::now());
    loop {
        if let Some(status) = child.try_wait().expect("cannot wait for the child process") {
            return Some(status);
        }
        let now = read_progress(progress);
        if now != number {
            (number, since) = (now, Instant::now());
        } else if since.elapsed() > MAX_WAIT {
            child.kill().and_then(|()| child.wait()).expect("cannot kill the child process");
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn read_progress(progress: &PathBuf) -> Option<usize> {
    fs::read_to_string(progress).ok()?.trim().parse().ok()
}

/// The current address space of this process.
fn mapped_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("cannot read /proc/self/status");
    let size = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB")?.trim().parse::<u64>().ok());
    size.expect("no VmSize in /proc/self/status") << 10
}

fn shortened(text: &str) -> String {
    let shown: String = text.chars().take(2000).collect();
    if shown.len() < text.len() { format!("{shown}… ({} bytes)", text.len()) } else { shown }
}
