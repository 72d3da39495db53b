//! Opens, holds up and ends the flow of requests, and keeps the plan's time, which stands while it is held up.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Gives a generator its orders.
#[derive(Debug)]
pub struct Orders(watch::Sender<Flow>);

/// How requests flow. Orders and time change together, so that nobody takes the time of a pause for work that is
/// due.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    state: State,
    /// How long it was held up until the last time it went on.
    held: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Held {
        since: Instant,
    },
    Stopped,
}

/// One thread's view of its orders.
#[derive(Clone, Debug)]
pub(super) struct Valve {
    flow: watch::Receiver<Flow>,
    start: Instant,
}

impl Orders {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(Flow::default()))
    }

    /// Holds requests up before they start; those on their way go on.
    pub fn pause(&self) {
        self.0.send_modify(|flow| {
            if flow.state == State::Open {
                flow.state = State::Held { since: Instant::now() };
            }
        });
    }

    pub fn resume(&self) {
        self.0.send_modify(|flow| {
            if let State::Held { since } = flow.state {
                flow.held += since.elapsed();
                flow.state = State::Open;
            }
        });
    }

    /// Ends everything at once, without waiting for responses.
    pub fn stop(&self) {
        self.0.send_modify(|flow| flow.state = State::Stopped);
    }

    pub(super) fn valve(&self, start: Instant) -> Valve {
        Valve { flow: self.0.subscribe(), start }
    }
}

impl Valve {
    pub(super) fn is_stopped(&self) -> bool {
        self.flow.borrow().state == State::Stopped
    }

    pub(super) async fn stopped(&mut self) {
        if self.flow.wait_for(|flow| flow.state == State::Stopped).await.is_err() {
            // Whoever could stop it is gone.
            std::future::pending::<()>().await;
        }
    }

    /// Waits while requests are held up. Cheap when they are not.
    pub(super) async fn pass(&mut self) {
        if matches!(self.flow.borrow().state, State::Held { .. }) {
            let _ = self.flow.wait_for(|flow| !matches!(flow.state, State::Held { .. })).await;
        }
    }

    /// How far the plan has come.
    pub(super) fn elapsed(&self) -> Duration {
        let flow = *self.flow.borrow();
        let now = match flow.state {
            State::Held { since } => since,
            _ => Instant::now(),
        };
        now.saturating_duration_since(self.start + flow.held)
    }

    /// When a time of the plan is, if nothing holds it up any more.
    pub(super) fn at(&self, time: Duration) -> Instant {
        self.start + self.flow.borrow().held + time
    }
}
