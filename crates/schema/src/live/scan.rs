//! Walking a keyspace in pages, no faster than asked.

use std::time::Duration;

use futures_util::stream::{self, Stream};
use redis::aio::ConnectionLike;
use tokio::time::Instant;

use super::target::failed;
use crate::error::Error;

/// How hard a server may be worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As fast as it answers.
    #[default]
    Full,
    /// At most so many keys a second, in small steps that other clients hardly feel.
    KeysPerSecond(u32),
}

impl Pace {
    /// The COUNT of each SCAN.
    fn page(self) -> usize {
        match self {
            Pace::Full => 1_000,
            // A hundred steps a second, so that no step holds the server for long.
            Pace::KeysPerSecond(rate) => usize::try_from(rate / 100).unwrap_or(1_000).clamp(10, 200),
        }
    }

    /// How many pages may be under way at once.
    pub(super) fn depth(self) -> usize {
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

/// How far a walk is.
#[derive(Clone, Debug)]
pub struct Progress {
    pub node: String,
    pub keys: u64,
    /// What DBSIZE said at the start, over all nodes.
    pub expected: u64,
}

struct Walk<C> {
    connection: C,
    glob: Option<Vec<u8>>,
    cursor: Option<u64>,
    pace: Pace,
    next_page_at: Instant,
}

/// Pages of keys until the cursor comes round. A key that is there throughout is seen at least once.
pub(super) fn pages<C: ConnectionLike + Send>(
    connection: C,
    pace: Pace,
    glob: Option<Vec<u8>>,
) -> impl Stream<Item = Result<Vec<Vec<u8>>, Error>> {
    let walk = Walk { connection, glob, cursor: Some(0), pace, next_page_at: Instant::now() };
    stream::unfold(walk, |mut walk| async move {
        let cursor = walk.cursor?;
        tokio::time::sleep_until(walk.next_page_at).await;
        let page = walk.read(cursor).await;
        match &page {
            Ok(keys) => walk.plan_next(keys.len()),
            Err(_) => walk.cursor = None,
        }
        Some((page, walk))
    })
}

impl<C: ConnectionLike> Walk<C> {
    /// Pages are due on a grid, so that slow answers do not lower the pace; only a little is made up for.
    fn plan_next(&mut self, keys: usize) {
        const MADE_UP: Duration = Duration::from_millis(20);
        // A sparse page of a MATCH still costs the server its COUNT.
        let cost = if self.glob.is_some() { keys.max(self.pace.page()) } else { keys };
        let now = Instant::now();
        let from = self.next_page_at.max(now.checked_sub(MADE_UP).unwrap_or(now));
        self.next_page_at = from + self.pace.time_for(cost);
    }

    async fn read(&mut self, cursor: u64) -> Result<Vec<Vec<u8>>, Error> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor);
        if let Some(glob) = &self.glob {
            scan.arg("MATCH").arg(glob);
        }
        scan.arg("COUNT").arg(self.pace.page());
        let (next, keys): (u64, Vec<Vec<u8>>) =
            scan.query_async(&mut self.connection).await.map_err(failed("SCAN"))?;
        self.cursor = (next != 0).then_some(next);
        Ok(keys)
    }
}

/// How many keys a server says it has.
pub(super) async fn db_size<C: ConnectionLike>(connection: &mut C) -> Result<u64, Error> {
    redis::cmd("DBSIZE").query_async(connection).await.map_err(failed("DBSIZE"))
}
