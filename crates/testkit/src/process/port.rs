//! Ports that no other test takes, not even while the server that owns them is down.
//!
//! A port got by binding port 0 can be given away again the moment it is released, which breaks a test that
//! restarts its server. So ports come from below the range that systems give out by themselves (32768 and
//! up on Linux), and each is held by a lock on a file, which the kernel lets go when the test process ends.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

/// Where ports are drawn from. A Redis Cluster node also needs the port ten thousand higher.
const RANGE: std::ops::Range<u16> = 10_000..20_000;
const CLUSTER_BUS_OFFSET: u16 = 10_000;

const ATTEMPTS: usize = 1000;

/// A server found its port taken by a program outside of this kit.
#[derive(Debug)]
pub(crate) struct Taken;

/// A port of 127.0.0.1, reserved for as long as this lives.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    pub(crate) fn reserve() -> Self {
        let locks = locks();
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

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// Repeats `start`, which reserves new ports each time, while they turn out to be taken.
pub(crate) fn until_free<T>(mut start: impl FnMut() -> Result<T, Taken>) -> T {
    (0..ATTEMPTS)
        .find_map(|_| start().ok())
        .unwrap_or_else(|| panic!("every port was taken, {ATTEMPTS} times in a row"))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// A folder per user, so that one user's files never stand in another's way; shared by all checkouts.
fn locks() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("hob-testkit-ports-{}", rustix::process::getuid()));
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("cannot create {}: {error}", folder.display()));
    folder
}
