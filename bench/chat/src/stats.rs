//! Counts of sent and received messages in all rooms.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::member::MemberId;

/// The counters, shared by all connections.
#[derive(Debug)]
pub(crate) struct Stats {
    started: Instant,
    counters: Mutex<Counters>,
}

#[derive(Debug)]
pub(crate) struct Counters {
    /// From sending a message to receiving it, in microseconds.
    pub(crate) latencies: Histogram<u64>,
    pub(crate) deliveries: u64,
    pub(crate) duplicates: u64,
    pub(crate) joined: usize,
    pub(crate) rejected: u64,
    sent: Vec<usize>,
    acknowledged: Vec<Vec<usize>>,
    /// The messages that each member has received, by room and member number.
    seen: Vec<Vec<Vec<bool>>>,
}

impl Stats {
    pub(crate) fn new(rooms: usize, members: usize) -> Self {
        let counters = Counters {
            latencies: Histogram::new(3).expect("three significant digits are valid"),
            deliveries: 0,
            duplicates: 0,
            joined: 0,
            rejected: 0,
            sent: vec![0; rooms],
            acknowledged: vec![Vec::new(); rooms],
            seen: vec![vec![Vec::new(); members]; rooms],
        };
        Self { started: Instant::now(), counters: Mutex::new(counters) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next message of a room: its number and its content.
    pub(crate) fn next(&self, room: usize) -> (usize, String) {
        let sent = &mut self.lock().sent[room];
        let number = *sent;
        *sent += 1;
        (number, format!("@{number}:{}@ {:60}", self.now_us(), "and whatever else one says in a chat"))
    }

    /// Records the messages in a text; returns the `offset` of the last one.
    pub(crate) fn record(&self, member: MemberId, text: &str, offset: impl Fn(&str) -> u64) -> Option<u64> {
        let (now_us, mut last) = (self.now_us(), None);
        let mut rest = text;
        while let Some((_, after)) = rest.split_once('@') {
            let Some((mark, after)) = after.split_once('@') else { break };
            rest = after;
            let Some((number, sent_us)) = mark.split_once(':') else { continue };
            let (Ok(number), Ok(sent_us)) = (number.parse(), sent_us.parse()) else { continue };
            last = Some(offset(after));
            self.lock().deliver(member, number, now_us.saturating_sub(sent_us));
        }
        last
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}

impl Counters {
    fn deliver(&mut self, member: MemberId, number: usize, latency_us: u64) {
        self.deliveries += 1;
        self.latencies.record(latency_us).expect("the histogram resizes itself");
        let seen = &mut self.seen[member.room][member.number];
        if seen.len() <= number {
            seen.resize(number + 1, false);
        }
        self.duplicates += u64::from(std::mem::replace(&mut seen[number], true));
    }

    pub(crate) fn acknowledge(&mut self, room: usize, number: usize) {
        self.acknowledged[room].push(number);
    }

    /// The number of deliveries of acknowledged messages, and the expected number.
    pub(crate) fn delivered(&self) -> (usize, usize) {
        let (mut delivered, mut expected) = (0, 0);
        for (acknowledged, members) in self.acknowledged.iter().zip(&self.seen) {
            for seen in members {
                expected += acknowledged.len();
                delivered += acknowledged.iter().filter(|number| seen.get(**number) == Some(&true)).count();
            }
        }
        (delivered, expected)
    }

    pub(crate) fn reset(&mut self) {
        self.latencies.reset();
        self.deliveries = 0;
    }
}
