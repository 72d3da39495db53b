//! Keeps watch over the running script: how long it runs, and when it must stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::reply::{Failure, Outcome, Reply};

#[derive(Debug)]
pub(crate) struct Watchdog {
    origin: Instant,
    /// Microseconds after `origin`, plus one; 0 while no script runs.
    started: AtomicU64,
    instructions: AtomicU64,
    limit: u64,
    wrote: AtomicBool,
    stop: AtomicBool,
    killed: AtomicBool,
}

impl Watchdog {
    pub(crate) fn new(limit: u64) -> Watchdog {
        Watchdog {
            origin: Instant::now(),
            started: AtomicU64::new(0),
            instructions: AtomicU64::new(0),
            limit,
            wrote: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            killed: AtomicBool::new(false),
        }
    }

    pub(crate) fn begin(&self) {
        self.instructions.store(0, Ordering::Relaxed);
        for flag in [&self.wrote, &self.stop, &self.killed] {
            flag.store(false, Ordering::Relaxed);
        }
        let now = u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX - 1);
        self.started.store(now + 1, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        self.started.store(0, Ordering::SeqCst);
    }

    /// How long others should still wait before they say BUSY.
    pub(crate) fn patience(&self, busy_after: Duration) -> Duration {
        let started = self.started.load(Ordering::SeqCst);
        if started == 0 {
            return busy_after;
        }
        let running = self.origin.elapsed().saturating_sub(Duration::from_micros(started - 1));
        busy_after.saturating_sub(running)
    }

    pub(crate) fn wrote(&self) {
        self.wrote.store(true, Ordering::SeqCst);
    }

    /// Counts instructions; `true` once the script has to stop, from then on for ever.
    pub(crate) fn count(&self, instructions: u64) -> bool {
        let used = self.instructions.fetch_add(instructions, Ordering::Relaxed) + instructions;
        if used > self.limit || self.killed.load(Ordering::SeqCst) {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.has_to_stop()
    }

    pub(crate) fn has_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What ended the script, if this did.
    pub(crate) fn verdict(&self) -> Option<Failure> {
        if self.killed.load(Ordering::SeqCst) {
            return Some(Failure::new("ERR Script killed by user with SCRIPT KILL..."));
        }
        self.has_to_stop().then(|| format!("ERR Script stopped after {} instructions", self.limit).into())
    }

    pub(crate) fn kill(&self) -> Outcome {
        if self.started.load(Ordering::SeqCst) == 0 {
            return Err(Failure::new("NOTBUSY No scripts in execution right now."));
        }
        if self.wrote.load(Ordering::SeqCst) {
            return Err(Failure::new(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
                 either wait the script termination or kill the server in a hard way using the SHUTDOWN \
                 NOSAVE command.",
            ));
        }
        self.killed.store(true, Ordering::SeqCst);
        Ok(Reply::OK)
    }
}
