//! The generator: puts a share of a plan's load on its targets, and measures what comes back.
//!
//! Each thread has a runtime of its own and shares nothing with the others. Latency is measured twice: from the time
//! at which a request should have started, which counts the waiting that a slow server causes, and from the time at
//! which it did. How late the generator itself was is measured, too.

mod alarm;
mod connection;
mod desk;
mod gather;
pub(crate) mod meter;
mod response;
mod targets;
mod user;
mod valve;
mod worker;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use self::connection::Destination;
use self::desk::Desk;
use self::gather::Gather;
use crate::plan::Plan;
use crate::results::second::{Fault, Second};

pub use targets::{Refused, Targets};
pub use valve::Orders;

/// How many samples may wait for somebody to read them.
const MOST_SAMPLES: usize = 256;

/// Which part of a run's load: every `of`-th user or arrival, beginning with `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub index: u32,
    pub of: u32,
}

impl Share {
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// One of `parts` even parts of this share.
    #[must_use]
    pub fn part(self, part: u32, parts: u32) -> Self {
        Self { index: self.index + self.of * part, of: self.of * parts }
    }
}

/// What a generator is to do.
#[derive(Debug)]
pub struct Job {
    pub plan: Arc<Plan>,
    pub run_type: usize,
    pub share: Share,
    pub threads: u32,
    /// The same for all runners of a run, which then agree on random arrivals.
    pub seed: u64,
    /// When the run begins.
    pub start: Instant,
    /// Where requests go; from [`Targets::resolve`].
    pub route: Route,
}

/// The plan's origins, resolved and allowed.
#[derive(Clone, Debug)]
pub struct Route {
    destinations: Vec<Destination>,
    /// The most requests per second of the whole run.
    most_rate: Option<f64>,
}

/// Something that happened to a user, worth a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The first is 0.
    pub user: u64,
    pub what: Happening,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// It has a connection of its own.
    Connected,
    /// Its request failed.
    Failed { step: usize, fault: Fault },
}

/// A generator at work. It stops when this is dropped.
#[derive(Debug)]
pub struct Generator {
    orders: Orders,
    gather: Gather,
    samples: mpsc::Receiver<Sample>,
}

impl Generator {
    /// Starts the threads.
    pub fn start(job: &Job) -> std::io::Result<Self> {
        raise_file_limit();
        let orders = Orders::new();
        let (samples, sampled) = mpsc::channel(MOST_SAMPLES);
        let mut threads = Vec::new();
        for thread in 0..job.threads {
            let share = job.share.part(thread, job.threads);
            let desk = Arc::new(Desk::new(job, share, orders.valve(job.start), samples.clone()));
            let (seconds, told) = mpsc::unbounded_channel();
            threads.push(told);
            spawn(thread, desk, job.start, seconds)?;
        }
        Ok(Self { orders, gather: Gather::new(threads), samples: sampled })
    }

    #[must_use]
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// The next second that is over, of all threads; `None` when the run is.
    pub async fn next(&mut self) -> Option<Second> {
        self.gather.next().await
    }

    /// What happened to users since the last call, a little of each second.
    pub fn samples(&mut self) -> Vec<Sample> {
        std::iter::from_fn(|| self.samples.try_recv().ok()).collect()
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.orders.stop();
    }
}

fn spawn(
    thread: u32,
    desk: Arc<Desk>,
    start: Instant,
    seconds: mpsc::UnboundedSender<Second>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = move || {
        runtime.block_on(worker::work(desk, start, seconds));
        // Requests that are still on their way end with their connections.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name(format!("load-{thread}")).spawn(work).map(drop)
}

/// Each user has a connection, and each connection is a file.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the number of open files stays as it was");
    }
}
