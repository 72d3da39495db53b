//! Servers and their files do not outlive the process that started them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hob_testkit::{LIMIT, wait_for};

/// Starts the `hob-testkit` binary, and returns it with the ports that it prints.
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

fn accepts(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[tokio::test]
async fn servers_and_files_of_a_killed_test_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    make_public(folder.path());
    let (mut kit, ports) = start(&["redis", "cluster", "sentinel", "postgres"], folder.path());
    assert_eq!(ports.len(), 6);
    assert!(ports.iter().all(|port| accepts(*port)), "{ports:?}");
    kit.kill().unwrap();
    kit.wait().unwrap();
    wait_for("the servers to end", LIMIT, async || !ports.iter().any(|port| accepts(*port))).await;
    wait_for("their files to be deleted", LIMIT, async || {
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let only_locks = left.iter().all(|name| name.to_string_lossy().starts_with("hob-testkit-ports"));
        if only_locks { Ok(()) } else { Err(left) }
    })
    .await;
}

/// `cargo xtask test --quick` skips modules of this name.
mod browser {
    use super::*;

    #[tokio::test]
    async fn browser_of_a_killed_test_ends() {
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

    /// The command lines of browsers with a profile in `folder`.
    fn processes_in(folder: &Path) -> Vec<String> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.filter(|line| line.contains(folder.to_str().unwrap()) && line.contains("chrom")).collect()
    }
}

/// If the tests run as root, the user of PostgreSQL must be able to enter the folder.
fn make_public(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o711)).unwrap();
}
