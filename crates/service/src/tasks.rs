//! Background tasks. Each task has a name and is restarted after a failure. All tasks stop together. Tasks report how
//! far behind they are.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hob_units::Backoff;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;

/// Delay before an ended task is restarted; it grows with each consecutive restart.
const RESTART_BACKOFF: Backoff = Backoff::linear(Duration::from_millis(200), Duration::from_secs(10));

/// If a task has run for this long, the delay starts again from its minimum.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(60);

/// The background tasks of one process. Clones share them.
#[derive(Clone, Default)]
pub struct Tasks {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    stop: CancellationToken,
    tracker: TaskTracker,
    all: Mutex<Vec<Arc<Counters>>>,
}

/// The counters of a running task.
struct Counters {
    name: String,
    visibility: Visibility,
    begun: Instant,
    /// Microseconds after `begun`; 0 before the first heartbeat.
    heartbeat_us: AtomicU64,
    lag_us: AtomicU64,
    restarts: AtomicU32,
}

/// Whether [`Tasks::states`] lists a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visibility {
    Listed,
    Unlisted,
}

/// The handle with which a task reports its progress and sees whether it should stop.
#[derive(Clone)]
pub struct Task {
    counters: Arc<Counters>,
    stop: CancellationToken,
}

/// The function of a task, boxed so that [`supervise`] is compiled only once.
type Work = Box<dyn FnMut(Task) -> BoxFuture<'static, ()> + Send>;

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskState {
    pub name: String,
    /// Time since its last heartbeat, or since its start.
    pub since_heartbeat: Duration,
    /// How far behind the task is with its work, according to its last report.
    pub lag: Duration,
    /// The number of restarts since the process started.
    pub restarts: u32,
}

impl Tasks {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `work` until the process stops. If it ends or panics earlier, it is restarted after a delay.
    pub fn spawn<W, F>(&self, name: impl Into<String>, mut work: W)
    where
        W: FnMut(Task) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.start(name.into(), Visibility::Listed, Box::new(move |task| Box::pin(work(task))));
    }

    /// As [`Tasks::spawn`], for bots and targets of the demo. They do not belong to the system, so
    /// [`Tasks::states`] does not list them.
    pub fn spawn_demo<W, F>(&self, name: impl Into<String>, mut work: W)
    where
        W: FnMut(Task) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.start(name.into(), Visibility::Unlisted, Box::new(move |task| Box::pin(work(task))));
    }

    fn start(&self, name: String, visibility: Visibility, work: Work) {
        let counters = Arc::new(Counters {
            name,
            visibility,
            begun: Instant::now(),
            heartbeat_us: AtomicU64::new(0),
            lag_us: AtomicU64::new(0),
            restarts: AtomicU32::new(0),
        });
        self.all().push(Arc::clone(&counters));
        let task = Task { counters, stop: self.inner.stop.clone() };
        self.inner.tracker.spawn(supervise(task, work));
    }

    /// Ready when the tasks should stop.
    pub fn stop_requested(&self) -> WaitForCancellationFuture<'_> {
        self.inner.stop.cancelled()
    }

    /// [`Tasks::stop_requested`] as a token, for callers that need an owned value.
    #[must_use]
    pub fn stop_token(&self) -> CancellationToken {
        self.inner.stop.clone()
    }

    /// Stops all tasks and waits for them, at most `within`. Returns the names of those that are still running.
    pub async fn stop(&self, within: Duration) -> Vec<String> {
        self.inner.stop.cancel();
        self.inner.tracker.close();
        if tokio::time::timeout(within, self.inner.tracker.wait()).await.is_ok() {
            return Vec::new();
        }
        // The list holds one reference. A running task holds a second one.
        let running = |counters: &&Arc<Counters>| Arc::strong_count(counters) > 1;
        self.all().iter().filter(running).map(|counters| counters.name.clone()).collect()
    }

    /// The state of every task, except those of the demo.
    #[must_use]
    pub fn states(&self) -> Vec<TaskState> {
        let all = self.all();
        let listed = all.iter().filter(|counters| counters.visibility == Visibility::Listed);
        listed.map(|counters| counters.state()).collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Counters>>> {
        self.inner.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    /// Ready when the task should stop.
    pub fn stop_requested(&self) -> WaitForCancellationFuture<'_> {
        self.stop.cancelled()
    }

    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Records a heartbeat, after each round of work.
    pub fn heartbeat(&self) {
        self.counters.heartbeat_us.store(micros(self.counters.begun.elapsed()).max(1), Ordering::Relaxed);
    }

    /// Records how far behind its work the task is.
    pub fn lag(&self, lag: Duration) {
        self.counters.lag_us.store(micros(lag), Ordering::Relaxed);
    }

    /// Waits for a wake-up, or until the task should stop. Returns whether to continue.
    pub async fn wait(&self, wake: impl Future<Output = ()>) -> bool {
        tokio::select! {
            () = wake => !self.is_stopping(),
            () = self.stop_requested() => false,
        }
    }

    /// Waits for this long, or until the task should stop. Returns whether to continue.
    pub async fn pause(&self, pause: Duration) -> bool {
        self.wait(tokio::time::sleep(pause)).await
    }
}

async fn supervise(task: Task, mut work: Work) {
    let name = task.counters.name.clone();
    let mut backoff = RESTART_BACKOFF;
    loop {
        let begun = Instant::now();
        let ended = AssertUnwindSafe(work(task.clone())).catch_unwind().await;
        if task.is_stopping() {
            return;
        }
        if begun.elapsed() > BACKOFF_RESET_AFTER {
            backoff.reset();
        }
        task.counters.restarts.fetch_add(1, Ordering::Relaxed);
        let delay = backoff.next();
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        match ended {
            Ok(()) => tracing::warn!(task = name, delay_ms, "background task ended, restarting it"),
            Err(_) => tracing::error!(task = name, delay_ms, "background task panicked, restarting it"),
        }
        if !task.pause(delay).await {
            return;
        }
    }
}

impl Counters {
    fn state(&self) -> TaskState {
        let heartbeat = Duration::from_micros(self.heartbeat_us.load(Ordering::Relaxed));
        TaskState {
            name: self.name.clone(),
            since_heartbeat: self.begun.elapsed().saturating_sub(heartbeat),
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
        f.debug_tuple("Task").field(&self.counters.state()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// Checks again until the condition holds, with a limit.
    async fn wait_until(condition: impl Fn() -> bool) {
        let poll = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, poll).await.expect("the condition holds in time");
    }

    #[tokio::test]
    async fn task_that_panics_is_restarted() {
        let tasks = Tasks::new();
        let runs = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&runs);
        tasks.spawn("panics", move |task| {
            let run = count.fetch_add(1, Ordering::SeqCst);
            async move {
                assert!(run > 1, "panics twice");
                task.stop_requested().await;
            }
        });
        wait_until(|| runs.load(Ordering::SeqCst) == 3).await;
        assert_eq!(tasks.states()[0].restarts, 2);
        assert_eq!(tasks.stop(LIMIT).await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn task_that_does_not_stop_is_named() {
        let tasks = Tasks::new();
        tasks.spawn("stops", async |task: Task| task.stop_requested().await);
        tasks.spawn("hangs", async |_| std::future::pending().await);
        // On a busy machine the task that stops may need more than one call.
        let stop = async { while tasks.stop(Duration::from_millis(50)).await != ["hangs"] {} };
        tokio::time::timeout(LIMIT, stop).await.expect("the other task stops in time");
    }

    #[tokio::test]
    async fn demo_task_is_not_listed() {
        let tasks = Tasks::new();
        tasks.spawn_demo("bot", async |task: Task| task.stop_requested().await);
        tasks.spawn("worker", async |task: Task| task.stop_requested().await);
        let names: Vec<String> = tasks.states().into_iter().map(|state| state.name).collect();
        assert_eq!(names, ["worker"]);
        assert_eq!(tasks.stop(LIMIT).await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn task_reports_its_lag() {
        let tasks = Tasks::new();
        tasks.spawn("late", async |task: Task| {
            task.lag(Duration::from_secs(7));
            task.heartbeat();
            task.stop_requested().await;
        });
        wait_until(|| tasks.states()[0].lag == Duration::from_secs(7)).await;
        assert_eq!(tasks.stop(LIMIT).await, Vec::<String>::new());
    }
}
