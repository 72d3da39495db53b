//! Waiting in tests: check a condition again until it holds, with a generous limit.

use std::fmt::{Debug, Display};
use std::panic::Location;
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits by default: enough for a machine ten times slower than a desktop.
pub const LIMIT: Duration = Duration::from_secs(30);

/// The pauses between two checks double from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// How often a measurement is repeated.
const ROUNDS: usize = 10;

/// The result of a condition: `true`, `Some` or `Ok` if it holds. The last `Err` is part of the panic message.
pub trait Condition {
    type Met;

    /// The value if the condition holds, otherwise a description of the result.
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

/// Waits until `condition` holds, and returns its value.
///
/// Panics after `limit`, even if the condition itself hangs. The message has `what`, the caller, and the last result.
#[track_caller]
pub fn wait_for<C: Condition>(
    what: impl Display,
    limit: Duration,
    mut condition: impl AsyncFnMut() -> C,
) -> impl Future<Output = C::Met> {
    let caller = Location::caller();
    async move {
        let mut seen = "no result".to_owned();
        let met = tokio::time::timeout(limit, async {
            let mut pause = FIRST_PAUSE;
            loop {
                match condition().await.met() {
                    Ok(met) => return met,
                    Err(instead) => seen = instead,
                }
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(MAX_PAUSE);
            }
        });
        met.await.unwrap_or_else(|_| panic!("{caller}: waited {limit:?} for {what}; last seen: {seen}"))
    }
}

/// The blocking form of [`wait_for`].
#[track_caller]
pub fn wait_until<C: Condition>(what: impl Display, mut condition: impl FnMut() -> C) -> C::Met {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match condition().met() {
            Ok(met) => return met,
            Err(seen) if started.elapsed() > LIMIT => {
                panic!("waited {LIMIT:?} for {what}; last seen: {seen}")
            }
            Err(_) => thread::sleep(pause),
        }
        pause = (2 * pause).min(MAX_PAUSE);
    }
}

/// Repeats a measurement until it passes: other programs on a busy machine disturb some of its rounds, but what is wrong fails
/// all of them.
pub async fn repeat_until_ok(mut round: impl AsyncFnMut() -> Result<(), String>) {
    let mut errors = Vec::new();
    for _ in 0..ROUNDS {
        match round().await {
            Ok(()) => return,
            Err(error) => errors.push(error),
        }
    }
    panic!("{errors:#?}");
}
