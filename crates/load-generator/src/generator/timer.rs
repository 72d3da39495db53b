//! A timer with a precision of about 50 µs. The timer of the runtime has a precision of only a millisecond.

use std::time::Instant;

/// Used by one task at a time.
#[derive(Debug)]
pub(super) struct PreciseTimer(inner::Timer);

impl PreciseTimer {
    /// Must be called inside a runtime.
    pub(super) fn new() -> std::io::Result<Self> {
        inner::Timer::new().map(Self)
    }

    /// Waits until `at`, never shorter.
    pub(super) async fn sleep_until(&self, at: Instant) {
        loop {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.0.wait(left).await;
        }
    }
}

#[cfg(target_os = "linux")]
mod inner {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    #[derive(Debug)]
    pub(super) struct Timer(AsyncFd<OwnedFd>);

    impl Timer {
        pub(super) fn new() -> std::io::Result<Self> {
            let fd =
                timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            #[expect(
                deprecated,
                reason = "unsound only for types that change their descriptor; an OwnedFd does not"
            )]
            AsyncFd::with_interest(fd, Interest::READABLE).map(Self)
        }

        /// May end early; the caller checks the clock.
        pub(super) async fn wait(&self, left: Duration) {
            let value =
                Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            let once = Itimerspec { it_interval: none, it_value: value };
            if timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once).is_err() {
                return tokio::time::sleep(left).await;
            }
            if let Ok(mut ready) = self.0.readable().await {
                // Setting the timer again clears its count, so the count does not have to be read.
                ready.clear_ready();
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod inner {
    use std::time::Duration;

    #[derive(Debug)]
    pub(super) struct Timer;

    impl Timer {
        pub(super) fn new() -> std::io::Result<Self> {
            Ok(Self)
        }

        pub(super) async fn wait(&self, left: Duration) {
            tokio::time::sleep(left).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn timer_is_never_early_and_mostly_less_than_a_millisecond_late() {
        let timer = PreciseTimer::new().unwrap();
        let mut rounds = Vec::new();
        // A busy machine may be late in some rounds, but not in all of them.
        for _ in 0..40 {
            let mut in_time = 0;
            for _ in 0..50 {
                let at = Instant::now() + Duration::from_micros(300);
                timer.sleep_until(at).await;
                let late = Instant::now().checked_duration_since(at).expect("not early");
                in_time += usize::from(late < Duration::from_millis(1));
            }
            if in_time > 10 {
                return;
            }
            rounds.push(in_time);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("in time, of 50 each: {rounds:?}");
    }
}
