//! Background tasks: named, supervised, stopped together, and open about how late they are.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;

/// A task that ended is started again after this long, times the number of its restarts in a row.
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A task that ran this long before it ended is not in trouble.
const STEADY: Duration = Duration::from_secs(60);

/// The background tasks of one process. Clones are handles to the same.
#[derive(Clone, Default)]
pub struct Tasks {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    stop: CancellationToken,
    tracker: TaskTracker,
    all: Mutex<Vec<Arc<Vitals>>>,
}

/// What a running task tells of itself.
struct Vitals {
    name: String,
    begun: Instant,
    /// Microseconds after `begun`; 0 before the first beat.
    beat_us: AtomicU64,
    lag_us: AtomicU64,
    restarts: AtomicU32,
}

/// The task's own handle, given to its work.
#[derive(Clone)]
pub struct Task {
    vitals: Arc<Vitals>,
    stop: CancellationToken,
}

/// How a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskState {
    pub name: String,
    /// How long ago it finished a round, or was started.
    pub beat_ago: Duration,
    /// How far behind its work it is, as it said itself.
    pub lag: Duration,
    /// How often it ended when it should not have.
    pub restarts: u32,
}

impl Tasks {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `work` until the process stops. Should it end or panic before, it is started again after a pause.
    pub fn spawn<W, F>(&self, name: impl Into<String>, work: W)
    where
        W: FnMut(Task) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let vitals = Arc::new(Vitals {
            name: name.into(),
            begun: Instant::now(),
            beat_us: AtomicU64::new(0),
            lag_us: AtomicU64::new(0),
            restarts: AtomicU32::new(0),
        });
        self.all().push(Arc::clone(&vitals));
        let task = Task { vitals, stop: self.inner.stop.clone() };
        self.inner.tracker.spawn(supervise(task, work));
    }

    /// Done as soon as the tasks are told to stop.
    pub fn stopping(&self) -> WaitForCancellationFuture<'_> {
        self.inner.stop.cancelled()
    }

    /// What is cancelled when the tasks are told to stop, for whom a future of [`Tasks::stopping`] lives too short.
    #[must_use]
    pub fn stop_token(&self) -> CancellationToken {
        self.inner.stop.clone()
    }

    /// Tells all tasks to stop and waits for them, but no longer than `within`. Answers with the names of those
    /// that still run.
    pub async fn stop(&self, within: Duration) -> Vec<String> {
        self.inner.stop.cancel();
        self.inner.tracker.close();
        if tokio::time::timeout(within, self.inner.tracker.wait()).await.is_ok() {
            return Vec::new();
        }
        // Each task holds its vitals; the registry holds them once more.
        let running = |vitals: &&Arc<Vitals>| Arc::strong_count(vitals) > 1;
        self.all().iter().filter(running).map(|vitals| vitals.name.clone()).collect()
    }

    /// How every task is.
    #[must_use]
    pub fn states(&self) -> Vec<TaskState> {
        self.all().iter().map(|vitals| vitals.state()).collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Vitals>>> {
        self.inner.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    /// Done as soon as the task should stop.
    pub fn stopped(&self) -> WaitForCancellationFuture<'_> {
        self.stop.cancelled()
    }

    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Says that a round is done.
    pub fn beat(&self) {
        self.vitals.beat_us.store(micros(self.vitals.begun.elapsed()).max(1), Ordering::Relaxed);
    }

    /// Says how far behind its work the task is.
    pub fn lag(&self, lag: Duration) {
        self.vitals.lag_us.store(micros(lag), Ordering::Relaxed);
    }

    /// Waits so long, or until the task should stop; says whether to go on.
    pub async fn pause(&self, pause: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(pause) => !self.stopping(),
            () = self.stopped() => false,
        }
    }
}

async fn supervise<W, F>(task: Task, mut work: W)
where
    W: FnMut(Task) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let name = task.vitals.name.clone();
    let mut in_a_row = 0;
    loop {
        let begun = Instant::now();
        let ended = AssertUnwindSafe(work(task.clone())).catch_unwind().await;
        if task.stopping() {
            return;
        }
        in_a_row = if begun.elapsed() > STEADY { 1 } else { in_a_row + 1 };
        task.vitals.restarts.fetch_add(1, Ordering::Relaxed);
        let pause = LONGEST_PAUSE.min(PAUSE * in_a_row);
        match ended {
            Ok(()) => tracing::warn!(task = name, ?pause, "a background task ended; it is started again"),
            Err(_) => tracing::error!(task = name, ?pause, "a background task panicked; it is started again"),
        }
        if !task.pause(pause).await {
            return;
        }
    }
}

impl Vitals {
    fn state(&self) -> TaskState {
        let beat = Duration::from_micros(self.beat_us.load(Ordering::Relaxed));
        TaskState {
            name: self.name.clone(),
            beat_ago: self.begun.elapsed().saturating_sub(beat),
            lag: Duration::from_micros(self.lag_us.load(Ordering::Relaxed)),
            restarts: self.restarts.load(Ordering::Relaxed),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.states()).finish()
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(&self.vitals.state()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_started_again() {
        let tasks = Tasks::new();
        let runs = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&runs);
        tasks.spawn("clumsy", move |task| {
            let run = count.fetch_add(1, Ordering::SeqCst);
            async move {
                assert!(run > 1, "trips twice");
                task.stopped().await;
            }
        });
        while runs.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(PAUSE).await;
        }
        assert_eq!(tasks.states()[0].restarts, 2);
        assert_eq!(tasks.stop(Duration::from_secs(60)).await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_task_that_does_not_stop_is_named() {
        let tasks = Tasks::new();
        tasks.spawn("obedient", async |task: Task| task.stopped().await);
        tasks.spawn("deaf", async |_| std::future::pending().await);
        // The obedient one needs a moment on a busy machine, and the deaf one never ends.
        while tasks.stop(Duration::from_millis(50)).await != ["deaf"] {}
    }

    #[tokio::test]
    async fn a_task_says_how_late_it_is() {
        let tasks = Tasks::new();
        tasks.spawn("late", async |task: Task| {
            task.lag(Duration::from_secs(7));
            task.beat();
            task.stopped().await;
        });
        while tasks.states()[0].lag.is_zero() {
            tokio::task::yield_now().await;
        }
        assert_eq!(tasks.states()[0].lag, Duration::from_secs(7));
        tasks.stop(Duration::from_secs(60)).await;
    }
}
