//! What the clients of the gateway know: which requests were answered, by which node, and which passed the limit.

use std::time::{Duration, Instant};

/// A request that passed the limit: Redis decided at some time between these two.
pub(super) type Pass = (Instant, Instant);

/// A time in which Redis may have forgotten requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) from: Instant,
    pub(super) to: Instant,
    /// The maximum number of times; `None` is unlimited.
    pub(super) times: Option<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Node and time of each answered request.
    answered: Vec<(usize, Instant)>,
    /// Requests that a node may have answered.
    uncertain: u64,
    passed: Vec<Pass>,
    counts: Counts,
}

/// What the ledger has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) answered: u64,
    pub(super) uncertain: u64,
    pub(super) passed: u64,
    /// The last total of the gateway.
    pub(super) reported: u64,
}

impl Ledger {
    pub(super) fn answered(&mut self, node: usize, at: Instant) {
        self.answered.push((node, at));
    }

    pub(super) fn uncertain(&mut self) {
        self.uncertain += 1;
    }

    pub(super) fn passed(&mut self, sent: Instant, received: Instant) {
        self.counts.passed += 1;
        self.passed.push((sent, received));
    }

    /// The requests that passed since the last call.
    pub(super) fn take_passed(&mut self) -> Vec<Pass> {
        std::mem::take(&mut self.passed)
    }

    pub(super) fn answered_between(&self, node: usize, from: Instant, to: Instant) -> u64 {
        self.answered.iter().filter(|(by, at)| *by == node && (from..=to).contains(at)).count() as u64
    }

    /// Whether a total is possible, if killed nodes may have lost this many requests.
    pub(super) fn compare(&mut self, total: u64, may_be_lost: u64) -> Result<(), String> {
        self.counts.reported = total;
        let answered = self.answered.len() as u64;
        let (least, most) = (answered.saturating_sub(may_be_lost), answered + self.uncertain);
        if (least..=most).contains(&total) {
            return Ok(());
        }
        Err(format!("the gateway counted {total} requests, but between {least} and {most} were sent"))
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { answered: self.answered.len() as u64, uncertain: self.uncertain, ..self.counts }
    }
}

/// A window with more requests than allowed: when it began, and what is wrong. All of them were decided within less than the window, so they are too many no
/// matter when exactly.
pub(super) fn exceeding(
    passed: &[Pass],
    limit: usize,
    window: Duration,
    losses: &[Loss],
) -> Option<(Instant, String)> {
    let mut passed = passed.to_vec();
    passed.sort_unstable_by_key(|(sent, _)| *sent);
    for (first, (from, _)) in passed.iter().enumerate() {
        let within: Vec<Instant> = passed[first..]
            .iter()
            .take_while(|(sent, _)| *sent < *from + window)
            .map(|(_, received)| *received)
            .filter(|received| *received < *from + window)
            .collect();
        let Some(to) = within.iter().max() else { continue };
        let during = || losses.iter().filter(|loss| loss.from <= *to && loss.to >= *from);
        let Some(times) = during().map(|loss| loss.times).sum::<Option<usize>>() else { continue };
        let allowed = limit * (1 + times);
        if within.len() > allowed {
            let (count, span) = (within.len(), to.duration_since(*from));
            return Some((
                *from,
                format!("{count} requests passed within {span:?}, but at most {allowed} may"),
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Ledger, Loss, Pass, exceeding};

    const WINDOW: Duration = Duration::from_secs(5);

    /// Requests that took 10 ms each, at these milliseconds.
    fn passes(at_ms: &[u64]) -> (Instant, Vec<Pass>) {
        let begun = Instant::now();
        let pass = |ms: &u64| {
            let sent = begun + Duration::from_millis(*ms);
            (sent, sent + Duration::from_millis(10))
        };
        (begun, at_ms.iter().map(pass).collect())
    }

    #[test]
    fn window_with_too_many_requests_is_found() {
        let (_, within) = passes(&[0, 1000, 2000, 5000, 6000]);
        assert_eq!(exceeding(&within, 3, WINDOW, &[]), None);
        let (_, beyond) = passes(&[0, 1000, 2000, 4900]);
        assert!(exceeding(&beyond, 3, WINDOW, &[]).unwrap().1.starts_with("4 requests passed"));
    }

    /// The last may have been decided after the window of the first.
    #[test]
    fn window_that_may_be_right_is_accepted() {
        let (_, passed) = passes(&[0, 1000, 2000, 4995]);
        assert_eq!(exceeding(&passed, 3, WINDOW, &[]), None);
    }

    #[test]
    fn each_loss_allows_the_limit_once_more() {
        let (begun, passed) = passes(&[0, 1, 2, 3, 4, 5, 6]);
        let loss = |times| Loss { from: begun, to: begun + WINDOW, times };
        assert!(exceeding(&passed, 3, WINDOW, &[loss(Some(1))]).is_some());
        assert_eq!(exceeding(&passed, 3, WINDOW, &[loss(Some(2))]), None);
        assert_eq!(exceeding(&passed, 3, WINDOW, &[loss(None)]), None);
        let earlier = Loss { from: begun - WINDOW, to: begun - Duration::from_millis(1), times: Some(2) };
        assert!(exceeding(&passed, 3, WINDOW, &[earlier]).is_some());
    }

    #[test]
    fn lost_and_doubled_counts_are_found() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        (0..10).for_each(|_| ledger.answered(0, now));
        ledger.uncertain();
        assert_eq!(ledger.compare(10, 0), Ok(()));
        assert_eq!(ledger.compare(11, 0), Ok(()));
        assert!(ledger.compare(12, 0).unwrap_err().contains("counted 12 requests"));
        assert!(ledger.compare(9, 0).unwrap_err().contains("between 10 and 11"));
        assert_eq!(ledger.compare(9, 1), Ok(()));
    }
}
