//! What the members of all rooms have sent and seen.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::seat::Seat;

/// Counts, shared by all connections.
#[derive(Debug)]
pub(crate) struct Tally {
    begun: Instant,
    inside: Mutex<Inside>,
}

#[derive(Debug)]
pub(crate) struct Inside {
    /// From the sending of a message to its arrival, in microseconds.
    pub(crate) latencies: Histogram<u64>,
    pub(crate) deliveries: u64,
    pub(crate) doubles: u64,
    pub(crate) joined: usize,
    pub(crate) refused: u64,
    sent: Vec<usize>,
    acknowledged: Vec<Vec<usize>>,
    /// Which messages each member has seen, by room and seat.
    seen: Vec<Vec<Vec<bool>>>,
}

impl Tally {
    pub(crate) fn new(rooms: usize, members: usize) -> Self {
        let inside = Inside {
            latencies: Histogram::new(3).expect("three digits are a precision"),
            deliveries: 0,
            doubles: 0,
            joined: 0,
            refused: 0,
            sent: vec![0; rooms],
            acknowledged: vec![Vec::new(); rooms],
            seen: vec![vec![Vec::new(); members]; rooms],
        };
        Self { begun: Instant::now(), inside: Mutex::new(inside) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next message of a room: its number and its content.
    pub(crate) fn next(&self, room: usize) -> (usize, String) {
        let sent = &mut self.lock().sent[room];
        let number = *sent;
        *sent += 1;
        (number, format!("@{number}:{}@ {:60}", self.now_us(), "and whatever else one says in a chat"))
    }

    /// Counts the messages in a text; `place` says which event the last one was.
    pub(crate) fn see(&self, seat: Seat, text: &str, place: impl Fn(&str) -> u64) -> Option<u64> {
        let (now_us, mut last) = (self.now_us(), None);
        let mut rest = text;
        while let Some((_, after)) = rest.split_once('@') {
            let Some((mark, after)) = after.split_once('@') else { break };
            rest = after;
            let Some((number, sent_us)) = mark.split_once(':') else { continue };
            let (Ok(number), Ok(sent_us)) = (number.parse(), sent_us.parse()) else { continue };
            last = Some(place(after));
            self.lock().take(seat, number, now_us.saturating_sub(sent_us));
        }
        last
    }

    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }
}

impl Inside {
    fn take(&mut self, seat: Seat, number: usize, latency_us: u64) {
        self.deliveries += 1;
        self.latencies.record(latency_us).expect("the histogram resizes itself");
        let seen = &mut self.seen[seat.room][seat.number];
        if seen.len() <= number {
            seen.resize(number + 1, false);
        }
        self.doubles += u64::from(std::mem::replace(&mut seen[number], true));
    }

    pub(crate) fn acknowledge(&mut self, room: usize, number: usize) {
        self.acknowledged[room].push(number);
    }

    /// How many of the deliveries that members had a right to have come, and how many these are.
    pub(crate) fn delivered(&self) -> (usize, usize) {
        let (mut came, mut due) = (0, 0);
        for (acknowledged, members) in self.acknowledged.iter().zip(&self.seen) {
            for seen in members {
                due += acknowledged.len();
                came += acknowledged.iter().filter(|number| seen.get(**number) == Some(&true)).count();
            }
        }
        (came, due)
    }

    pub(crate) fn reset(&mut self) {
        self.latencies.reset();
        self.deliveries = 0;
    }
}
