//! The generator: sends a share of a plan's load to its targets and measures the responses.
//!
//! Each thread has its own runtime and shares nothing with the others. Latency is measured twice: from the intended start of
//! a request, which includes the queueing that a slow server causes, and from its actual start. The generator also
//! measures its own slip: how late it started an iteration.

mod connection;
mod context;
mod control;
mod dry_run;
mod merge;
pub(crate) mod meter;
mod response;
mod targets;
mod timer;
mod user;
mod worker;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use self::connection::Destination;
use self::context::WorkerContext;
use self::merge::SecondMerger;
use crate::plan::Plan;
use crate::results::second::{Fault, Second};

pub use control::Control;
pub use dry_run::{DryRun, DryRunCheck, DryRunStep, DryRunValue};
#[doc(hidden)]
pub use response::{WholeResponse, read_response};
pub use targets::{TargetError, Targets};

/// The capacity of the channel for [`Generator::user_events`].
const MAX_USER_EVENTS: usize = 256;

/// A share of the load of a run: every `of`-th user or arrival, from `index` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub index: u32,
    pub of: u32,
}

impl Share {
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// One of `parts` equal parts of this share.
    #[must_use]
    pub fn part(self, part: u32, parts: u32) -> Self {
        Self { index: self.index + self.of * part, of: self.of * parts }
    }
}

/// The work of a generator.
#[derive(Debug)]
pub struct Job {
    pub plan: Arc<Plan>,
    pub run_type: usize,
    pub share: Share,
    pub threads: u32,
    /// The seed of random arrivals. It is the same for all runners of a run, so that they compute the same arrivals.
    pub seed: u64,
    /// When the run starts.
    pub start: Instant,
    /// From [`Targets::resolve`].
    pub targets: ResolvedTargets,
}

/// The servers of a plan, resolved and allowed.
#[derive(Clone, Debug)]
pub struct ResolvedTargets {
    destinations: Vec<Destination>,
    /// The limit of requests per second for the whole run.
    max_rate: Option<f64>,
}

/// An event of a virtual user, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserEvent {
    /// Counted from 0.
    pub user: u64,
    pub kind: UserEventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserEventKind {
    Connected,
    /// A request failed.
    Failed {
        step: usize,
        fault: Fault,
    },
}

/// A running generator. Dropping it stops it.
#[derive(Debug)]
pub struct Generator {
    control: Control,
    merger: SecondMerger,
    user_events: mpsc::Receiver<UserEvent>,
}

impl Generator {
    /// Starts the threads.
    pub fn start(job: &Job) -> std::io::Result<Self> {
        raise_file_limit();
        let control = Control::new();
        let (user_events, received_events) = mpsc::channel(MAX_USER_EVENTS);
        let mut threads = Vec::new();
        for thread in 0..job.threads {
            let share = job.share.part(thread, job.threads);
            let context =
                Arc::new(WorkerContext::new(job, share, control.clock(job.start), user_events.clone()));
            let (seconds, receiver) = mpsc::unbounded_channel();
            threads.push(receiver);
            spawn(thread, context, job.start, seconds)?;
        }
        Ok(Self { control, merger: SecondMerger::new(threads), user_events: received_events })
    }

    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The next second, merged over all threads; `None` when the run has ended.
    pub async fn next(&mut self) -> Option<Second> {
        self.merger.next().await
    }

    /// The events of users since the last call; at most a few per second.
    pub fn user_events(&mut self) -> Vec<UserEvent> {
        std::iter::from_fn(|| self.user_events.try_recv().ok()).collect()
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.control.stop();
    }
}

fn spawn(
    thread: u32,
    context: Arc<WorkerContext>,
    start: Instant,
    seconds: mpsc::UnboundedSender<Second>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = move || {
        runtime.block_on(worker::work(context, start, seconds));
        // Requests in flight end with their connections.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name(format!("load-{thread}")).spawn(work).map(drop)
}

/// Each user has a connection, which needs a file descriptor.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "failed to raise the limit of open files");
    }
}
