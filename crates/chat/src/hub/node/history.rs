//! The messages per second of all nodes in the last half hour, as this node has seen them. After a start it is empty.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::NodeInfo;

const STEP: Duration = Duration::from_secs(30);
const STEPS: usize = 60;

#[derive(Debug, Default)]
pub(crate) struct MessageHistory {
    /// The oldest first.
    rates: VecDeque<f64>,
    /// When the last step ended, and the messages that each node had counted by then.
    last: Option<(Instant, HashMap<String, u64>)>,
}

impl MessageHistory {
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.last.as_ref().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= STEP)
    }

    /// Ends a step. Messages of a node that was not there at the end of the previous step are unknown, and do not count.
    pub(crate) fn add(&mut self, now: Instant, nodes: &[NodeInfo]) {
        let counted = nodes.iter().map(|node| (node.incarnation.clone(), node.load.messages)).collect();
        let Some((at, before)) = self.last.replace((now, counted)) else { return };
        let sent =
            |node: &NodeInfo| node.load.messages.saturating_sub(*before.get(&node.incarnation)?).into();
        let sent: u64 = nodes.iter().filter_map(sent).sum();
        let seconds = now.saturating_duration_since(at).as_secs_f64();
        self.push(sent as f64 / seconds.max(1.0));
    }

    /// Rates of the past, for the demo.
    pub(crate) fn fill(&mut self, rates: impl Fn(u64) -> f64) {
        (0..STEPS as u64).for_each(|step| self.push(rates(step)));
    }

    /// A value for each step of the half hour, the oldest first. `None` before the start of this node. Empty if nothing is known.
    pub(crate) fn steps(&self) -> Vec<Option<f64>> {
        if self.rates.is_empty() {
            return Vec::new();
        }
        let unknown = std::iter::repeat_n(None, STEPS - self.rates.len());
        unknown.chain(self.rates.iter().copied().map(Some)).collect()
    }

    fn push(&mut self, rate: f64) {
        if self.rates.len() == STEPS {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::node::NodeLoad;

    fn node(incarnation: &str, messages: u64) -> NodeInfo {
        let load = NodeLoad { messages, ..NodeLoad::default() };
        NodeInfo { incarnation: incarnation.to_owned(), name: "node".to_owned(), load }
    }

    #[test]
    fn rates_are_those_of_all_nodes() {
        let (mut history, start) = (MessageHistory::default(), Instant::now());
        let at = |step: u32| start + STEP * step;
        assert!(history.is_due(start));
        history.add(start, &[node("a", 100), node("b", 5)]);
        assert_eq!((history.steps(), history.is_due(at(1) - Duration::from_secs(1))), (Vec::new(), false));
        history.add(at(1), &[node("a", 130), node("b", 35)]);
        // A node that has joined under a new incarnation has counted messages of earlier steps.
        history.add(at(2), &[node("c", 130), node("b", 50)]);
        let steps = history.steps();
        assert_eq!((steps.len(), &steps[STEPS - 3..]), (STEPS, &[None, Some(2.0), Some(0.5)][..]));
        for step in 3..200 {
            history.add(at(step), &[node("b", 50)]);
        }
        assert_eq!(history.steps(), vec![Some(0.0); STEPS]);
    }
}
