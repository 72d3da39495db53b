//! The log on standard error.
//!
//! One thread writes the log. Other threads put lines into a bounded buffer, so that a stopped terminal, a full pipe or
//! a closed reader can neither delay nor fail a request. Lines that do not fit are dropped and counted.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// The size of the buffer.
const MAX_WAITING_LINES: usize = 10_000;

/// Counts the dropped lines. A process has one log.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// Starts the log with the filter of `HOB_LOG`, `info` by default. Dropping the guard flushes the buffer, for about a
/// second at most.
pub(crate) fn start() -> WorkerGuard {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_WAITING_LINES)
        .lossy(true)
        .thread_name("log")
        .finish(std::io::stderr());
    let _ = DROPPED.set(writer.error_counter());
    let (filter, error) = match std::env::var("HOB_LOG").map(|text| text.parse::<EnvFilter>()) {
        Ok(Ok(filter)) => (Some(filter), None),
        Ok(Err(error)) => (None, Some(error)),
        Err(_) => (None, None),
    };
    tracing_subscriber::fmt()
        .with_writer(writer)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter.unwrap_or_else(|| "info".into()))
        // They are printed with `eprintln!`, which panics if standard error is closed.
        .log_internal_errors(false)
        .init();
    if let Some(error) = error {
        tracing::warn!(variable = "HOB_LOG", %error, "invalid log filter, using the level info");
    }
    guard
}

/// The number of lines dropped since the start.
pub(crate) fn dropped_lines() -> u64 {
    DROPPED.get().map_or(0, |dropped| dropped.dropped_lines() as u64)
}
