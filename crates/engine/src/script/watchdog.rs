//! Limits the running script: its run time, its instructions, and whether it can still be killed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::reply::{CommandResult, Failure, Reply};
use crate::session::SessionOrigin;

/// The bits of [`Watchdog::state`]. The number of the run is above them, so that a stop for one script never affects
/// the next.
const RUNNING: u64 = 1;
/// The script came from a client of the listener, so it runs on its own thread and may take long.
const FROM_CLIENT: u64 = 1 << 1;
const WROTE: u64 = 1 << 2;
const KILLED: u64 = 1 << 3;
const TOO_MANY_INSTRUCTIONS: u64 = 1 << 4;
const TOO_LONG: u64 = 1 << 5;
const SHUTDOWN: u64 = 1 << 6;
const STOP: u64 = KILLED | TOO_MANY_INSTRUCTIONS | TOO_LONG | SHUTDOWN;
const RUN: u64 = 1 << 8;

/// Instructions between two counts. A count costs microseconds, but each instruction may be a library call on
/// megabytes; then counts are more frequent.
pub(crate) const FIRST_PERIOD: u32 = 1_000;
const LONG_PERIOD: u32 = 10_000;
const SHORT_PERIOD: u32 = 100;
/// Scripts with fewer instructions keep the first period: for them, changing it costs more than it saves.
const MIN_INSTRUCTIONS_FOR_LONG_PERIOD: u64 = 20_000;

/// Commands and protected calls between two reads of the clock, each of which costs about as much as a small command.
const CALLS_PER_CLOCK_CHECK: u64 = 16;

#[derive(Debug)]
pub(crate) struct Watchdog {
    origin: Instant,
    /// One atomic value, so that "has written" and "must stop" exclude each other.
    state: AtomicU64,
    /// Microseconds since `origin`; valid while a script runs.
    started_us: AtomicU64,
    instructions: AtomicU64,
    period: AtomicU32,
    /// Microseconds since `origin`.
    counted_us: AtomicU64,
    calls: AtomicU64,
    max_instructions: u64,
    max_duration: Duration,
}

impl Watchdog {
    pub(crate) fn new(max_instructions: u64, max_duration: Duration) -> Watchdog {
        Watchdog {
            origin: Instant::now(),
            state: AtomicU64::new(0),
            started_us: AtomicU64::new(0),
            instructions: AtomicU64::new(0),
            period: AtomicU32::new(FIRST_PERIOD),
            counted_us: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            max_instructions,
            max_duration,
        }
    }

    /// Starts a run; returns the counting period of the last script.
    pub(crate) fn begin(&self, origin: SessionOrigin) -> u32 {
        self.instructions.store(0, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        let now_us = self.now_us();
        self.started_us.store(now_us, Ordering::SeqCst);
        self.counted_us.store(now_us, Ordering::Relaxed);
        let from_client = if origin == SessionOrigin::Socket { FROM_CLIENT } else { 0 };
        let run = self.state.load(Ordering::SeqCst) / RUN + 1;
        self.state.store((run * RUN) | RUNNING | from_client, Ordering::SeqCst);
        self.period.swap(FIRST_PERIOD, Ordering::Relaxed)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Ends the run; returns why it was stopped, if it was.
    pub(crate) fn end(&self) -> Option<Failure> {
        let state = self.state.fetch_and(!RUNNING, Ordering::SeqCst);
        let text = match state & STOP {
            0 => return None,
            KILLED => "ERR Script killed by user with SCRIPT KILL...".into(),
            SHUTDOWN => "ERR Script stopped: the server is shutting down".into(),
            TOO_LONG => format!("ERR Script exceeded its time limit of {:?}", self.max_duration),
            _ => format!("ERR Script exceeded its limit of {} instructions", self.max_instructions),
        };
        Some(text.into())
    }

    /// How long other commands wait before they get a BUSY error.
    pub(crate) fn time_until_busy(&self, busy_after: Duration) -> Duration {
        if self.state.load(Ordering::SeqCst) & RUNNING == 0 {
            return busy_after;
        }
        busy_after.saturating_sub(self.running_for())
    }

    /// Whether a script that may take long holds the store.
    pub(crate) fn runs_client_script(&self) -> bool {
        self.state.load(Ordering::Relaxed) & (RUNNING | FROM_CLIENT) == RUNNING | FROM_CLIENT
    }

    fn running_for(&self) -> Duration {
        let started = Duration::from_micros(self.started_us.load(Ordering::SeqCst));
        self.origin.elapsed().saturating_sub(started)
    }

    /// Counts the instructions of a period; returns the length of the next one.
    pub(crate) fn count(&self, instructions: u32) -> u32 {
        const FAST_US: u64 = 5_000;
        const SLOW_US: u64 = 50_000;
        let used = self.instructions.fetch_add(instructions.into(), Ordering::Relaxed);
        if used + u64::from(instructions) > self.max_instructions {
            self.stop(TOO_MANY_INSTRUCTIONS, RUNNING, 0);
        }
        self.check_duration();
        let now_us = self.now_us();
        let next = match now_us.saturating_sub(self.counted_us.swap(now_us, Ordering::Relaxed)) {
            ..FAST_US if used >= MIN_INSTRUCTIONS_FOR_LONG_PERIOD => LONG_PERIOD,
            ..SLOW_US => FIRST_PERIOD,
            _ => SHORT_PERIOD,
        };
        self.period.store(next, Ordering::Relaxed);
        next
    }

    /// Counts a command or a protected call, during which no instructions are counted; `true` once the script must
    /// stop.
    pub(crate) fn count_call(&self) -> bool {
        if self.calls.fetch_add(1, Ordering::Relaxed) % CALLS_PER_CLOCK_CHECK == CALLS_PER_CLOCK_CHECK - 1 {
            self.check_duration();
        }
        self.must_stop()
    }

    fn check_duration(&self) {
        if self.running_for() > self.max_duration {
            self.stop(TOO_LONG, RUNNING, 0);
        }
    }

    pub(crate) fn must_stop(&self) -> bool {
        self.state.load(Ordering::Relaxed) & STOP != 0
    }

    /// Marks the script as having written, after which it cannot be killed; `false` if it must stop instead.
    pub(crate) fn may_write(&self) -> bool {
        let wrote = |state: u64| (state & STOP == 0).then_some(state | WROTE);
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, wrote).is_ok()
    }

    pub(crate) fn kill(&self) -> CommandResult {
        match self.stop(KILLED, RUNNING, WROTE) {
            state if state & RUNNING == 0 => Err(Failure::new("NOTBUSY No scripts in execution right now.")),
            state if state & WROTE != 0 => Err(Failure::new(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
                 either wait the script termination or kill the server in a hard way using the SHUTDOWN \
                 NOSAVE command.",
            )),
            _ => Ok(Reply::OK),
        }
    }

    /// Stops a client's script, even if it has written.
    pub(crate) fn stop_client_script(&self) {
        self.stop(SHUTDOWN, RUNNING | FROM_CLIENT, 0);
    }

    /// Stops a script that has all bits of `only` and none of `unless`, and is not being stopped already; returns the
    /// previous state.
    fn stop(&self, reason: u64, only: u64, unless: u64) -> u64 {
        let stopped = |state: u64| {
            let fits = state & only == only && state & (STOP | unless) == 0;
            fits.then_some(state | reason)
        };
        match self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, stopped) {
            Ok(before) | Err(before) => before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_watchdog() -> Watchdog {
        Watchdog::new(1_000, Duration::from_secs(3600))
    }

    #[test]
    fn script_is_either_killed_or_writes() {
        let watchdog = new_watchdog();
        watchdog.begin(SessionOrigin::Socket);
        assert_eq!(watchdog.kill(), Ok(Reply::OK));
        assert!(!watchdog.may_write(), "a killed script must not write");
        assert!(watchdog.end().unwrap().0.starts_with("ERR Script killed"));
        watchdog.begin(SessionOrigin::Socket);
        assert!(watchdog.may_write());
        assert!(watchdog.kill().unwrap_err().0.starts_with("UNKILLABLE"));
        watchdog.count(1);
        assert!(!watchdog.must_stop());
        assert_eq!(watchdog.end(), None);
        assert!(watchdog.kill().unwrap_err().0.starts_with("NOTBUSY"));
    }

    #[test]
    fn shutdown_stops_only_scripts_of_clients() {
        let watchdog = new_watchdog();
        watchdog.begin(SessionOrigin::Handle);
        watchdog.stop_client_script();
        assert_eq!(watchdog.end(), None);
        watchdog.begin(SessionOrigin::Socket);
        assert!(watchdog.may_write());
        watchdog.stop_client_script();
        assert!(watchdog.count_call());
        assert!(watchdog.end().unwrap().0.contains("shutting down"));
    }

    #[test]
    fn script_with_slow_library_calls_is_counted_more_often() {
        let watchdog = Watchdog::new(u64::MAX, Duration::from_secs(3600));
        watchdog.begin(SessionOrigin::Socket);
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(watchdog.count(FIRST_PERIOD), SHORT_PERIOD);
        assert_eq!(
            watchdog.begin(SessionOrigin::Socket),
            SHORT_PERIOD,
            "the next script begins with the first period again"
        );
        assert_eq!(watchdog.begin(SessionOrigin::Socket), FIRST_PERIOD);
    }

    #[test]
    fn time_in_calls_is_limited_too() {
        let watchdog = Watchdog::new(u64::MAX, Duration::ZERO);
        watchdog.begin(SessionOrigin::Handle);
        let calls = (1..1_000).find(|_| watchdog.count_call());
        assert_eq!(calls, Some(CALLS_PER_CLOCK_CHECK));
        assert_eq!(watchdog.end().unwrap().0, "ERR Script exceeded its time limit of 0ns");
    }
}
