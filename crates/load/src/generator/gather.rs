//! Puts the seconds of all threads together.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::results::second::Second;

#[derive(Debug)]
pub(super) struct Gather {
    threads: Vec<Thread>,
    next: u32,
}

#[derive(Debug)]
struct Thread {
    seconds: mpsc::UnboundedReceiver<Second>,
    /// Told, but of a second that others have not told yet.
    ahead: VecDeque<Second>,
    over: bool,
}

impl Gather {
    pub(super) fn new(threads: Vec<mpsc::UnboundedReceiver<Second>>) -> Self {
        let thread = |seconds| Thread { seconds, ahead: VecDeque::new(), over: false };
        Self { threads: threads.into_iter().map(thread).collect(), next: 0 }
    }

    /// The next second, once every thread that still runs has told it. Losing the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<Second> {
        for thread in &mut self.threads {
            while thread.ahead.is_empty() && !thread.over {
                match thread.seconds.recv().await {
                    Some(second) => thread.ahead.push_back(second),
                    None => thread.over = true,
                }
            }
        }
        if self.threads.iter().all(|thread| thread.ahead.is_empty()) {
            return None;
        }
        let mut whole = Second::new(self.next);
        for thread in &mut self.threads {
            // Every thread tells every second from the first to its last, in order.
            whole.merge(&thread.ahead.pop_front().unwrap_or_default());
        }
        self.next += 1;
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_is_told_when_all_threads_have_told_it() {
        let ((one, first), (two, second)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let mut gather = Gather::new(vec![first, second]);
        let with_users = |at, users| {
            let mut second = Second::new(at);
            second.general.active_users = users;
            second
        };
        one.send(with_users(0, 1)).unwrap();
        one.send(with_users(1, 2)).unwrap();
        two.send(with_users(0, 10)).unwrap();
        assert_eq!(gather.next().await, Some(with_users(0, 11)));
        drop(two);
        assert_eq!(gather.next().await, Some(with_users(1, 2)));
        drop(one);
        assert_eq!(gather.next().await, None);
    }
}
