//! The time of the store: that of the system plus an offset, or frozen.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hob_engine::DrivenClock;
use parking_lot::Mutex;

/// How often the time moves while it is not frozen.
const STEP: Duration = Duration::from_millis(5);
/// The last time, in the year 2286. Times in milliseconds have 13 digits until then, and all commands can count with them.
const LATEST: Duration = Duration::from_millis(9_999_999_999_999);

/// The time cannot move so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooFar;

#[derive(Clone, Debug)]
pub(super) struct TestClock {
    driven: DrivenClock,
    pace: Arc<Mutex<Pace>>,
}

#[derive(Clone, Copy, Debug)]
enum Pace {
    /// As fast as the clock of the system, ahead of it by this.
    Running {
        ahead: Duration,
    },
    Frozen {
        at: Duration,
    },
}

impl Default for TestClock {
    fn default() -> TestClock {
        let pace = Pace::Running { ahead: Duration::ZERO };
        TestClock { driven: DrivenClock::starting_at(system()), pace: Arc::new(Mutex::new(pace)) }
    }
}

fn system() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Pace {
    fn now(self) -> Duration {
        match self {
            Pace::Running { ahead } => system() + ahead,
            Pace::Frozen { at } => at,
        }
    }
}

impl TestClock {
    pub(super) fn driven(&self) -> DrivenClock {
        self.driven.clone()
    }

    /// Lets the time pass.
    pub(super) async fn run(&self) {
        loop {
            self.change(|_| {});
            tokio::time::sleep(STEP).await;
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.pace.lock().now()
    }

    /// Moves the time, unless it would be after [`LATEST`].
    pub(super) fn advance(&self, by: Duration) -> Result<(), TooFar> {
        let mut outcome = Ok(());
        self.change(|pace| {
            if pace.now().checked_add(by).is_none_or(|then| then > LATEST) {
                outcome = Err(TooFar);
                return;
            }
            match pace {
                Pace::Running { ahead } => *ahead += by,
                Pace::Frozen { at } => *at += by,
            }
        });
        outcome
    }

    pub(super) fn freeze(&self) {
        self.change(|pace| *pace = Pace::Frozen { at: pace.now() });
    }

    /// Runs on from the frozen time. The time never moves back, not even to that of the system.
    pub(super) fn resume(&self) {
        self.change(|pace| *pace = Pace::Running { ahead: pace.now().saturating_sub(system()) });
    }

    fn change(&self, change: impl FnOnce(&mut Pace)) {
        let mut pace = self.pace.lock();
        change(&mut pace);
        self.driven.set(pace.now());
    }
}
