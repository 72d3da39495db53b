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

/// One view of the orders. It is asked several times for each request, so that it keeps what it saw last and only
/// looks again when something has changed.
#[derive(Clone, Debug)]
pub(super) struct Valve {
    orders: watch::Receiver<Flow>,
    seen: Flow,
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
        let mut orders = self.0.subscribe();
        let seen = *orders.borrow_and_update();
        Valve { orders, seen, start }
    }
}

impl Valve {
    pub(super) fn is_stopped(&mut self) -> bool {
        self.flow().state == State::Stopped
    }

    pub(super) async fn stopped(&mut self) {
        if self.wait_until(|flow| flow.state == State::Stopped).await.is_err() {
            // Whoever could stop it is gone.
            std::future::pending::<()>().await;
        }
    }

    /// Waits while requests are held up. Cheap when they are not.
    pub(super) async fn pass(&mut self) {
        if matches!(self.flow().state, State::Held { .. }) {
            let _ = self.wait_until(|flow| !matches!(flow.state, State::Held { .. })).await;
        }
    }

    /// How far the plan has come.
    pub(super) fn elapsed(&mut self) -> Duration {
        let flow = self.flow();
        let now = match flow.state {
            State::Held { since } => since,
            _ => Instant::now(),
        };
        now.saturating_duration_since(self.start + flow.held)
    }

    /// When a time of the plan is, if nothing holds it up any more.
    pub(super) fn at(&mut self, time: Duration) -> Instant {
        self.start + self.flow().held + time
    }

    fn flow(&mut self) -> Flow {
        // An error says that nobody gives orders any more: the last one stands.
        if !matches!(self.orders.has_changed(), Ok(false)) {
            self.seen = *self.orders.borrow_and_update();
        }
        self.seen
    }

    async fn wait_until(
        &mut self,
        condition: impl FnMut(&Flow) -> bool,
    ) -> Result<(), watch::error::RecvError> {
        self.seen = *self.orders.wait_for(condition).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_view_follows_its_orders_and_the_plans_time_stands_in_a_pause() {
        let orders = Orders::new();
        let mut valve = orders.valve(Instant::now());
        assert!(!valve.is_stopped());
        orders.pause();
        let (before, mut other) = (valve.elapsed(), valve.clone());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!((valve.elapsed(), other.elapsed()), (before, before));
        let passing = tokio::spawn(async move {
            other.pass().await;
            other
        });
        orders.resume();
        let mut other = passing.await.unwrap();
        assert!(valve.elapsed() >= before && valve.at(Duration::ZERO) == other.at(Duration::ZERO));
        orders.stop();
        assert!(valve.is_stopped());
        drop(orders);
        assert!(other.is_stopped(), "the last order stands when nobody gives any more");
    }
}
