//! Merges the seconds of all threads.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::results::second::Second;

#[derive(Debug)]
pub(super) struct SecondMerger {
    threads: Vec<Thread>,
    next: u32,
}

#[derive(Debug)]
struct Thread {
    seconds: mpsc::UnboundedReceiver<Second>,
    /// Received, but not from all threads yet.
    received: VecDeque<Second>,
    ended: bool,
}

impl SecondMerger {
    pub(super) fn new(threads: Vec<mpsc::UnboundedReceiver<Second>>) -> Self {
        let thread = |seconds| Thread { seconds, received: VecDeque::new(), ended: false };
        Self { threads: threads.into_iter().map(thread).collect(), next: 0 }
    }

    /// The next second, once every running thread has sent it. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Second> {
        for thread in &mut self.threads {
            while thread.received.is_empty() && !thread.ended {
                match thread.seconds.recv().await {
                    Some(second) => thread.received.push_back(second),
                    None => thread.ended = true,
                }
            }
        }
        if self.threads.iter().all(|thread| thread.received.is_empty()) {
            return None;
        }
        let mut merged = Second::new(self.next);
        for thread in &mut self.threads {
            // Every thread sends all seconds from the first to its last, in order.
            merged.merge(&thread.received.pop_front().unwrap_or_default());
        }
        self.next += 1;
        Some(merged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn second_is_merged_when_all_threads_have_sent_it() {
        let ((one, first), (two, second)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let mut merger = SecondMerger::new(vec![first, second]);
        let with_users = |at, users| {
            let mut second = Second::new(at);
            second.generator.active_users = users;
            second
        };
        one.send(with_users(0, 1)).unwrap();
        one.send(with_users(1, 2)).unwrap();
        two.send(with_users(0, 10)).unwrap();
        assert_eq!(merger.next().await, Some(with_users(0, 11)));
        drop(two);
        assert_eq!(merger.next().await, Some(with_users(1, 2)));
        drop(one);
        assert_eq!(merger.next().await, None);
    }
}
