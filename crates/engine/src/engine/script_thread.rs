//! The thread that runs the scripts of clients.
//!
//! A script may take long, and would block the other tasks of a runtime's worker. One thread is enough, because the store runs
//! one script at a time. Under load it takes one client after the other from its queue without going to sleep.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Ends when it is dropped and its queue is empty.
pub(crate) struct ScriptThread {
    queue: Sender<Job>,
    /// Jobs that are queued or run.
    jobs: Arc<AtomicUsize>,
}

/// A value that is in the queue, or on the thread. Dropping this takes it out of the queue.
pub(crate) struct Submitted<T> {
    value: Arc<Mutex<Option<T>>>,
    /// Gets the value back, unless the job panicked.
    pub(crate) done: oneshot::Receiver<T>,
}

impl ScriptThread {
    pub(crate) fn start() -> ScriptThread {
        let (queue, receiver) = channel();
        let jobs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&jobs);
        let thread = std::thread::Builder::new().name("scripts".to_owned());
        thread.spawn(move || run_jobs(&receiver, &counted)).expect("the system starts one more thread");
        ScriptThread { queue, jobs }
    }

    /// Puts a value into the queue, for `run`.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        value: T,
        run: impl FnOnce(&mut T) + Send + 'static,
    ) -> Submitted<T> {
        let value = Arc::new(Mutex::new(Some(value)));
        let (sender, done) = oneshot::channel();
        let queued = Arc::clone(&value);
        self.jobs.fetch_add(1, Ordering::SeqCst);
        let job = move || {
            let value = queued.lock().take();
            if let Some(mut value) = value {
                run(&mut value);
                // Dropped here if its task has ended.
                let _ = sender.send(value);
            }
        };
        self.queue.send(Box::new(job)).expect("the thread runs as long as its queue exists");
        Submitted { value, done }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.load(Ordering::SeqCst) == 0
    }
}

impl<T> Submitted<T> {
    /// Takes the value out of the queue; `None` if the thread has it already.
    pub(crate) fn withdraw(&self) -> Option<T> {
        self.value.lock().take()
    }
}

impl<T> Drop for Submitted<T> {
    fn drop(&mut self) {
        drop(self.withdraw());
    }
}

fn run_jobs(queue: &Receiver<Job>, jobs: &AtomicUsize) {
    while let Ok(job) = queue.recv() {
        // After a panic, the value is dropped, and its task finds that out. The panic itself is logged by its hook.
        let _ = catch_unwind(AssertUnwindSafe(job));
        jobs.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn values_come_back_in_order() {
        let thread = ScriptThread::start();
        let queued: Vec<_> = (0..10).map(|n| thread.submit(n, |n| *n *= 2)).collect();
        for (n, mut queued) in queued.into_iter().enumerate() {
            assert_eq!((&mut queued.done).await.unwrap(), 2 * n);
        }
    }

    #[tokio::test]
    async fn withdrawn_value_is_not_run() {
        let thread = ScriptThread::start();
        let (release, held) = channel::<()>();
        let mut first = thread.submit((), move |()| held.recv().unwrap());
        let second = thread.submit("second", |_| panic!("must not run"));
        assert_eq!(second.withdraw(), Some("second"));
        drop(thread.submit("third", |_| panic!("must not run")));
        release.send(()).unwrap();
        (&mut first.done).await.unwrap();
        let mut last = thread.submit(1, |_| {});
        assert_eq!((&mut last.done).await, Ok(1));
    }

    #[tokio::test]
    async fn thread_survives_a_panic() {
        let thread = ScriptThread::start();
        let mut lost = thread.submit((), |()| panic!("expected by this test"));
        (&mut lost.done).await.unwrap_err();
        let mut next = thread.submit((), |()| {});
        (&mut next.done).await.unwrap();
        hob_testkit::wait_for("the queue to be empty", hob_testkit::LIMIT, async || thread.is_idle()).await;
    }
}
