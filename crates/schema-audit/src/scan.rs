//! Scans the keys of one server in pages, at a given pace.

use std::time::Duration;

use futures_util::stream::{self, Stream};
use hob_store::{Store, cmd};
use tokio::time::Instant;

use crate::audit::report::key_count;
use crate::error::Error;

/// How many keys to read from a server per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the server answers.
    #[default]
    Full,
    /// At most this many keys per second, in small pages that barely delay other clients.
    KeysPerSecond(u32),
}

impl Pace {
    /// The COUNT of each SCAN.
    fn page_size(self) -> usize {
        match self {
            Pace::Full => 1_000,
            // A hundred pages per second, so that no page occupies the server for long.
            Pace::KeysPerSecond(rate) => usize::try_from(rate / 100).unwrap_or(1_000).clamp(10, 200),
        }
    }

    /// How many pages are read at once.
    pub(crate) fn concurrent_pages(self) -> usize {
        match self {
            Pace::Full => 4,
            Pace::KeysPerSecond(_) => 1,
        }
    }

    fn time_for(self, keys: usize) -> Duration {
        match self {
            Pace::Full => Duration::ZERO,
            Pace::KeysPerSecond(rate) => Duration::from_secs_f64(keys as f64 / f64::from(rate.max(1))),
        }
    }
}

/// How far a scan has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The server that is scanned now.
    pub node: String,
    pub keys: u64,
    /// The sum of all servers' DBSIZE at the start.
    pub expected: u64,
}

struct Scan {
    store: Store,
    glob: Option<Vec<u8>>,
    cursor: Option<u64>,
    pace: Pace,
    next_page_at: Instant,
    run_id: Option<String>,
}

/// The keys of one server, page by page. A key that exists during the whole scan is returned at least once.
pub(crate) async fn pages(
    store: &Store,
    pace: Pace,
    glob: Option<Vec<u8>>,
) -> impl Stream<Item = Result<Vec<Vec<u8>>, Error>> + use<> {
    let run_id = run_id(store).await;
    let scan =
        Scan { store: store.clone(), glob, cursor: Some(0), pace, next_page_at: Instant::now(), run_id };
    stream::unfold(scan, |mut scan| async move {
        let cursor = scan.cursor?;
        tokio::time::sleep_until(scan.next_page_at).await;
        let page = scan.page(cursor).await;
        match &page {
            Ok(keys) => scan.plan_next(keys.len()),
            Err(_) => scan.cursor = None,
        }
        Some((page, scan))
    })
}

impl Scan {
    /// Pages are scheduled at fixed times, so that slow replies do not lower the pace. Only a short delay is made up
    /// for.
    fn plan_next(&mut self, keys: usize) {
        const MAX_CATCH_UP: Duration = Duration::from_millis(20);
        // Even if MATCH returns few keys, the server scans as many keys as COUNT says.
        let cost = if self.glob.is_some() { keys.max(self.pace.page_size()) } else { keys };
        let now = Instant::now();
        let from = self.next_page_at.max(now.checked_sub(MAX_CATCH_UP).unwrap_or(now));
        self.next_page_at = from + self.pace.time_for(cost);
    }

    async fn page(&mut self, cursor: u64) -> Result<Vec<Vec<u8>>, Error> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor);
        if let Some(glob) = &self.glob {
            scan.arg("MATCH").arg(glob);
        }
        scan.arg("COUNT").arg(self.pace.page_size());
        let page = self.store.run(scan).await;
        let (next, keys): (u64, Vec<Vec<u8>>) =
            page.map_err(|source| Error::Command { command: "SCAN", source })?;
        self.cursor = (next != 0).then_some(next);
        if self.cursor.is_none() && run_id(&self.store).await != self.run_id {
            return Err(Error::Restarted { node: self.store.name().to_owned() });
        }
        Ok(keys)
    }
}

/// Identifies the server process behind a connection. The store reconnects automatically, but a cursor is valid only
/// for the process that issued it. `None` if an ACL forbids INFO or the server has no run id.
async fn run_id(store: &Store) -> Option<String> {
    let info: String = store.run(cmd("INFO").arg("server")).await.ok()?;
    info.lines().find_map(|line| line.strip_prefix("run_id:")).map(|id| id.trim().to_owned())
}

/// A hint if the selected database is empty but others are not, or `None`.
pub(crate) async fn other_databases(store: &Store) -> Option<String> {
    // A Cluster has only one database, and this call fails there.
    let info: String = store.run(cmd("INFO").arg("keyspace")).await.ok()?;
    let filled: Vec<String> = info
        .lines()
        .filter_map(|line| {
            let (database, facts) = line.trim().strip_prefix("db")?.split_once(':')?;
            let keys = facts.strip_prefix("keys=")?.split(',').next()?.parse().ok()?;
            Some(format!("database {database} has {}", key_count(keys)))
        })
        .collect();
    if filled.is_empty() {
        return None;
    }
    Some(format!(
        "the selected database is empty, but {}; add its number to the URL: redis://host:6379/1",
        filled.join(", ")
    ))
}

/// The number of keys that a server reports.
pub(crate) async fn db_size(store: &Store) -> Result<u64, Error> {
    store.run(cmd("DBSIZE")).await.map_err(|source| match source {
        hob_store::Error::Unavailable { .. } => Error::Connect(source),
        source => Error::Command { command: "DBSIZE", source },
    })
}
