//! The traffic on one system, and the checker of what the system guarantees.

use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use tokio_util::sync::CancellationToken;

/// One of the five systems under traffic. Its checker keeps its own log of what was acknowledged, and never reads what Hob
/// stores to learn what it should find.
pub(crate) trait System {
    fn name(&self) -> &'static str;

    /// Sends traffic until `stop`, and ends with no request open.
    fn drive(&self, stop: CancellationToken) -> LocalBoxFuture<'_, ()>;

    /// Compares what was acknowledged with what Hob reports. Called when the traffic has stopped and no fault lasts. Reports
    /// violations to the world.
    fn settle(&self) -> LocalBoxFuture<'_, ()>;

    /// What the checker has counted, for the report.
    fn counts(&self) -> Vec<(&'static str, u64)>;
}

/// Checks until `check` succeeds or the limit has passed, and returns the last error.
pub(crate) async fn within<T>(
    limit: Duration,
    mut check: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T, String> {
    let begun = Instant::now();
    loop {
        match check().await {
            Ok(value) => return Ok(value),
            Err(error) if begun.elapsed() > limit => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
        }
    }
}

/// Waits, but not longer than until `stop`.
pub(crate) async fn pause(time: Duration, stop: &CancellationToken) {
    let _ = tokio::time::timeout(time, stop.cancelled()).await;
}
