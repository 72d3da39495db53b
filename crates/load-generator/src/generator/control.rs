//! Pauses, resumes and stops a generator, and keeps the time of its run, which stands still during a pause.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Pauses, resumes and stops a generator.
#[derive(Debug)]
pub struct Control(watch::Sender<ControlState>);

/// State and time change together: otherwise a user could treat the time of a pause as time in which iterations were
/// due.
#[derive(Clone, Copy, Debug, Default)]
struct ControlState {
    flow: FlowState,
    /// The time of all pauses that have ended.
    paused_for: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FlowState {
    #[default]
    Running,
    Paused {
        since: Instant,
    },
    Stopped,
}

/// The time of a run, and whether it is paused or stopped. Read several times per request, so it keeps the last state and
/// reads it again only after a change.
#[derive(Clone, Debug)]
pub(crate) struct RunClock {
    control: watch::Receiver<ControlState>,
    last: ControlState,
    start: Instant,
}

impl Control {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(ControlState::default()))
    }

    /// No request starts until `resume`; requests in flight continue.
    pub fn pause(&self) {
        self.0.send_modify(|state| {
            if state.flow == FlowState::Running {
                state.flow = FlowState::Paused { since: Instant::now() };
            }
        });
    }

    pub fn resume(&self) {
        self.0.send_modify(|state| {
            if let FlowState::Paused { since } = state.flow {
                state.paused_for += since.elapsed();
                state.flow = FlowState::Running;
            }
        });
    }

    /// Ends the run without waiting for responses.
    pub fn stop(&self) {
        self.0.send_modify(|state| state.flow = FlowState::Stopped);
    }

    pub(crate) fn clock(&self, start: Instant) -> RunClock {
        let mut control = self.0.subscribe();
        let last = *control.borrow_and_update();
        RunClock { control, last, start }
    }
}

impl RunClock {
    /// When the run started.
    pub(super) fn start(&self) -> Instant {
        self.start
    }

    pub(super) fn is_stopped(&mut self) -> bool {
        self.read().flow == FlowState::Stopped
    }

    pub(super) async fn stopped(&mut self) {
        if self.wait_until(|state| state.flow == FlowState::Stopped).await.is_err() {
            // The control was dropped, so nothing can stop the run any more.
            std::future::pending::<()>().await;
        }
    }

    /// Waits while the run is paused.
    pub(super) async fn wait_while_paused(&mut self) {
        if matches!(self.read().flow, FlowState::Paused { .. }) {
            let _ = self.wait_until(|state| !matches!(state.flow, FlowState::Paused { .. })).await;
        }
    }

    /// The time since the start, without pauses.
    pub(super) fn elapsed(&mut self) -> Duration {
        self.elapsed_at(Instant::now())
    }

    /// The time from the start to an instant, without pauses.
    pub(super) fn elapsed_at(&mut self, now: Instant) -> Duration {
        let state = self.read();
        let now = match state.flow {
            FlowState::Paused { since } => since,
            _ => now,
        };
        now.saturating_duration_since(self.start + state.paused_for)
    }

    /// The instant of a time of the run, if there is no further pause.
    pub(super) fn instant_at(&mut self, time: Duration) -> Instant {
        self.start + self.read().paused_for + time
    }

    fn read(&mut self) -> ControlState {
        // An error means that the control was dropped. The run then keeps its last state.
        if !matches!(self.control.has_changed(), Ok(false)) {
            self.last = *self.control.borrow_and_update();
        }
        self.last
    }

    async fn wait_until(
        &mut self,
        condition: impl FnMut(&ControlState) -> bool,
    ) -> Result<(), watch::error::RecvError> {
        self.last = *self.control.wait_for(condition).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn time_stands_still_during_a_pause() {
        let control = Control::new();
        let mut clock = control.clock(Instant::now());
        assert!(!clock.is_stopped());
        control.pause();
        let (before, mut other) = (clock.elapsed(), clock.clone());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!((clock.elapsed(), other.elapsed()), (before, before));
        let waiting = tokio::spawn(async move {
            other.wait_while_paused().await;
            other
        });
        control.resume();
        let mut other = waiting.await.unwrap();
        assert!(
            clock.elapsed() >= before && clock.instant_at(Duration::ZERO) == other.instant_at(Duration::ZERO)
        );
        control.stop();
        assert!(clock.is_stopped());
        drop(control);
        assert!(other.is_stopped(), "the last state stays when the control is dropped");
    }
}
