//! The id of an entry of a stream.

use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId {
    /// Unix milliseconds, unless a client chose the id.
    pub(crate) ms: u64,
    pub(crate) seq: u64,
}

impl StreamId {
    pub(crate) const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    pub(crate) const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    pub(crate) fn next(self) -> Option<StreamId> {
        match (self.ms, self.seq) {
            (ms, seq) if seq < u64::MAX => Some(StreamId { ms, seq: seq + 1 }),
            (ms, _) => Some(StreamId { ms: ms.checked_add(1)?, seq: 0 }),
        }
    }

    pub(crate) fn previous(self) -> Option<StreamId> {
        match (self.ms, self.seq) {
            (ms, seq) if seq > 0 => Some(StreamId { ms, seq: seq - 1 }),
            (ms, _) => Some(StreamId { ms: ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::StreamId;

    #[test]
    fn ids_are_consecutive_across_milliseconds() {
        let last = StreamId { ms: 1, seq: u64::MAX };
        assert_eq!(last.next(), Some(StreamId { ms: 2, seq: 0 }));
        assert_eq!(StreamId { ms: 2, seq: 0 }.previous(), Some(last));
        assert_eq!((StreamId::MIN.previous(), StreamId::MAX.next()), (None, None));
    }
}
