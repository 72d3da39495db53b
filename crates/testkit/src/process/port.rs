//! Ports that no other test takes, not even while their server is down.
//!
//! A port from binding port 0 can be reused by another process as soon as it is released, which breaks a test that
//! restarts its server. So ports come from below the ephemeral range (32768 and up on Linux), and each is reserved with
//! a lock on a file, which the kernel releases when the test process ends.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

/// The range of ports. A node of a Redis Cluster also uses the port 10,000 higher.
const RANGE: std::ops::Range<u16> = 10_000..20_000;
const CLUSTER_BUS_OFFSET: u16 = 10_000;

const ATTEMPTS: usize = 1000;

/// Another program uses the port.
#[derive(Debug)]
pub(crate) struct PortTaken;

/// A port of 127.0.0.1, reserved until this is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    pub fn reserve() -> Self {
        let locks = lock_folder();
        (0..ATTEMPTS)
            .find_map(|_| {
                let number = rand::random_range(RANGE);
                let lock = File::create(locks.join(number.to_string())).ok()?;
                lock.try_lock().ok()?;
                (is_free(number) && is_free(number + CLUSTER_BUS_OFFSET))
                    .then_some(Self { number, _lock: lock })
            })
            .unwrap_or_else(|| panic!("no free port in {RANGE:?} after {ATTEMPTS} attempts"))
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Calls `start`, which reserves new ports each time, until they are free.
pub(crate) fn with_free_ports<T>(mut start: impl FnMut() -> Result<T, PortTaken>) -> T {
    (0..ATTEMPTS)
        .find_map(|_| start().ok())
        .unwrap_or_else(|| panic!("no free ports after {ATTEMPTS} attempts"))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// One folder per user, because other users cannot lock its files. Shared by all checkouts.
fn lock_folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("hob-testkit-ports-{}", rustix::process::getuid()));
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("cannot create {}: {error}", folder.display()));
    folder
}
