//! Nothing is left of a server when the process that started it is gone.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hob_testkit::{LIMIT, wait_for};

/// Starts the kit's own program, and answers with it and the ports that it prints.
fn start(servers: &[&str], folder: &Path) -> (Child, Vec<u16>) {
    let mut kit = Command::new(env!("CARGO_BIN_EXE_hob-testkit"))
        .args(servers)
        .env("TMPDIR", folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(kit.stdout.take().unwrap()).lines().take(servers.len());
    let ports = lines.flat_map(|line| {
        let line = line.unwrap();
        let numbers: Vec<u16> = line.split([':', '/', ',']).filter_map(|part| part.parse().ok()).collect();
        numbers
    });
    let ports = ports.collect();
    (kit, ports)
}

fn answers(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[tokio::test]
async fn servers_end_with_a_killed_test_and_leave_no_files() {
    let folder = tempfile::tempdir().unwrap();
    make_public(folder.path());
    let (mut kit, ports) = start(&["redis", "cluster", "sentinel", "postgres"], folder.path());
    assert_eq!(ports.len(), 6);
    assert!(ports.iter().all(|port| answers(*port)), "{ports:?}");
    kit.kill().unwrap();
    kit.wait().unwrap();
    wait_for("the servers to end", LIMIT, async || !ports.iter().any(|port| answers(*port))).await;
    wait_for("their files to be gone", LIMIT, async || {
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let only_locks = left.iter().all(|name| name.to_string_lossy().starts_with("hob-testkit-ports"));
        if only_locks { Ok(()) } else { Err(left) }
    })
    .await;
}

/// In a module that quick runs leave out.
mod browser {
    use super::*;

    #[tokio::test]
    async fn a_browser_ends_with_a_killed_test() {
        let folder = tempfile::tempdir().unwrap();
        let (mut kit, _) = start(&["browser"], folder.path());
        assert!(!processes_in(folder.path()).is_empty());
        kit.kill().unwrap();
        kit.wait().unwrap();
        wait_for("the browser to end", LIMIT, async || {
            let left = processes_in(folder.path());
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
    }

    /// The command lines that name `folder`, as a browser's does for its profile.
    fn processes_in(folder: &Path) -> Vec<String> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.filter(|line| line.contains(folder.to_str().unwrap()) && line.contains("chrom")).collect()
    }
}

/// PostgreSQL's user must be able to pass through when the tests run as root.
fn make_public(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o711)).unwrap();
}
