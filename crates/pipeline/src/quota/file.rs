//! Quotas that several processes on one machine share, each with an embedded store. They have one call log, in a database
//! file. A process uses a quota only while it holds a lock; if another process has used the quota since, it first restores
//! the calls from the log. So weights apply within a process only.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use hob_database::{Address, Database, private_file};
use hob_store::{Store, cmd, epoch};
use tokio::sync::{Mutex, MutexGuard};

use super::restore::QuotaSource;
use super::{PublicQuota, QuotaName, Quotas};
use crate::error::{Error, Result};
use crate::keys::Keys;

/// Interval of the attempts to lock the file.
const LOCK_RETRY: Duration = Duration::from_millis(5);
/// Maximum size of the lock file: a line per quota.
const MAX_BYTES: u64 = 256 * 1024;

/// A database file with quotas.
#[derive(Debug)]
pub struct QuotaFile {
    database: Database,
    lock: ProcessLock,
}

/// A lock file with a line per quota: its name, and the process that used it last.
#[derive(Debug)]
pub(super) struct ProcessLock {
    file: Mutex<File>,
    path: String,
    /// This process. Random, so that a later one is not taken for it.
    process: String,
}

/// The lock, until it is dropped.
pub(super) struct LockHeld<'a> {
    file: MutexGuard<'a, File>,
    process: &'a str,
}

impl QuotaFile {
    /// Opens the file; creates it if it does not exist.
    pub async fn open(path: &Path) -> Result<Self> {
        let lock = ProcessLock::open(&path.with_extension("lock"))?;
        let held = lock.acquire().await?;
        let database = Database::open(&Address::sqlite(path), &[crate::MIGRATIONS]).await?;
        drop(held);
        Ok(Self { database, lock })
    }

    pub(crate) fn quotas(self, store: &Store, keys: &Keys, public: Option<PublicQuota>) -> Quotas {
        Quotas::with_lock(store, keys, &self.database, public, Some(self.lock))
    }
}

impl ProcessLock {
    fn open(path: &Path) -> Result<Self> {
        let failed = |source| Error::File { what: path.display().to_string(), source };
        let mut options = private_file::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let process = format!("{:016x}", rand::random::<u64>());
        Ok(Self { file: Mutex::new(file), path: path.display().to_string(), process })
    }

    async fn acquire(&self) -> Result<LockHeld<'_>> {
        let file = self.file.lock().await;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(LockHeld { file, process: &self.process }),
                Err(std::fs::TryLockError::WouldBlock) => tokio::time::sleep(LOCK_RETRY).await,
                Err(std::fs::TryLockError::Error(source)) => return Err(self.failed(source)),
            }
        }
    }

    fn failed(&self, source: std::io::Error) -> Error {
        Error::File { what: self.path.clone(), source }
    }
}

impl LockHeld<'_> {
    /// The process that used each quota last.
    fn read(&mut self) -> std::io::Result<BTreeMap<String, String>> {
        let mut text = String::new();
        self.file.rewind()?;
        (&mut *self.file).take(MAX_BYTES).read_to_string(&mut text)?;
        let line =
            |line: &str| line.split_once(' ').map(|(name, process)| (name.to_owned(), process.to_owned()));
        Ok(text.lines().filter_map(line).collect())
    }

    fn write(&mut self, last: &BTreeMap<String, String>) -> std::io::Result<()> {
        let text: String = last.iter().map(|(name, process)| format!("{name} {process}\n")).collect();
        self.file.rewind()?;
        self.file.set_len(0)?;
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for LockHeld<'_> {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Quotas {
    /// Waits until no other process uses the quotas, and restores the calls that others have made. `None` if the quotas
    /// are not in a file.
    pub(super) async fn exclusive(&self, name: &QuotaName) -> Result<Option<LockHeld<'_>>> {
        let Some(lock) = &self.inner.lock else { return Ok(None) };
        let mut held = lock.acquire().await?;
        let mut last = held.read().map_err(|error| lock.failed(error))?;
        if last.get(name.as_str()).is_none_or(|process| process != held.process) {
            self.restore_again(name).await?;
            last.insert(name.to_string(), held.process.to_owned());
            held.write(&last).map_err(|error| lock.failed(error))?;
        }
        Ok(Some(held))
    }

    /// Replaces the state of a quota in the store by that in the log. The epoch stays the same: the store belongs to this
    /// process, so there are no late writes to refuse.
    async fn restore_again(&self, name: &QuotaName) -> Result<()> {
        let (store, keys, id) = (&self.inner.store, &self.inner.keys, name.id());
        let epoch = self.load_definition(name).await?.epoch;
        let marker = keys.quota_marker(id);
        for key in [&marker, &keys.quota_calls(id), &keys.quota_state(id), &keys.quota_turns(id)] {
            store.run::<u64>(cmd("DEL").arg(key.as_bytes())).await?;
        }
        // A new quota is initialized by its first use.
        if epoch.get() > 0 {
            let begin = cmd("HSET").arg(marker.as_bytes()).arg("rebuilding").arg(epoch.get()).clone();
            store.run::<u64>(begin).await?;
            epoch::rebuild(store, marker, &[], &QuotaSource { quotas: self, name }).await?;
        }
        Ok(())
    }
}
