//! The one way to wait for something in a test: ask again until it holds, within a generous limit.

use std::fmt::{Debug, Display};
use std::panic::Location;
use std::thread;
use std::time::{Duration, Instant};

use hob_units::Backoff;

/// How long a test waits by default: long enough for a machine ten times slower than a desk's.
pub const LIMIT: Duration = Duration::from_secs(30);

const BACKOFF: Backoff = Backoff::exponential(Duration::from_millis(1), Duration::from_millis(50));

/// What a condition answers: `true`, `Some` or `Ok` once it holds. The last `Err` is told when it never does.
pub trait Condition {
    type Met;

    /// The value once the condition holds, or what was seen instead.
    fn met(self) -> Result<Self::Met, String>;
}

impl Condition for bool {
    type Met = ();

    fn met(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("false".to_owned()) }
    }
}

impl<T> Condition for Option<T> {
    type Met = T;

    fn met(self) -> Result<T, String> {
        self.ok_or_else(|| "None".to_owned())
    }
}

impl<T, E: Debug> Condition for Result<T, E> {
    type Met = T;

    fn met(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:?}"))
    }
}

/// Waits until `condition` holds, and answers with its value.
///
/// Panics after `limit`, also when the condition itself hangs, naming `what`, the caller, and what was seen.
#[track_caller]
pub fn wait_for<C: Condition>(
    what: impl Display,
    limit: Duration,
    mut condition: impl AsyncFnMut() -> C,
) -> impl Future<Output = C::Met> {
    let caller = Location::caller();
    async move {
        let mut seen = "no answer".to_owned();
        let met = tokio::time::timeout(limit, async {
            let mut backoff = BACKOFF;
            loop {
                match condition().await.met() {
                    Ok(met) => return met,
                    Err(instead) => seen = instead,
                }
                tokio::time::sleep(backoff.next()).await;
            }
        });
        met.await.unwrap_or_else(|_| panic!("{caller}: waited {limit:?} for {what}; last seen: {seen}"))
    }
}

/// [`wait_for`] for plain threads.
#[track_caller]
pub fn until<C: Condition>(what: impl Display, mut condition: impl FnMut() -> C) -> C::Met {
    let begun = Instant::now();
    let mut backoff = BACKOFF;
    loop {
        match condition().met() {
            Ok(met) => return met,
            Err(seen) if begun.elapsed() > LIMIT => panic!("waited {LIMIT:?} for {what}; last seen: {seen}"),
            Err(_) => thread::sleep(backoff.next()),
        }
    }
}
