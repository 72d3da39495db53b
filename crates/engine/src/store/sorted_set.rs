//! A sorted set: scores by member, and the members in order of score, then bytes.

use std::cmp::Ordering;
use std::sync::Arc;

use indexmap::IndexMap;

use super::ranked_list::RankedList;
use super::value::{allocation, table};

#[derive(Clone, Debug, Default)]
pub(crate) struct SortedSet {
    scores: IndexMap<Arc<[u8]>, f64>,
    order: RankedList<RankedMember>,
    payload: usize,
}

/// A member in the order of scores. Scores are never NaN, so the order is total.
#[derive(Clone, Debug)]
pub(crate) struct RankedMember {
    pub(crate) score: f64,
    pub(crate) member: Arc<[u8]>,
}

impl RankedMember {
    fn compare(&self, score: f64, member: &[u8]) -> Ordering {
        // `partial_cmp`, not `total_cmp`: -0 and 0 are the same score.
        self.score.partial_cmp(&score).unwrap_or(Ordering::Equal).then_with(|| (*self.member).cmp(member))
    }
}

/// A bound of a range of scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) score: f64,
    pub(crate) exclusive: bool,
}

/// A bound of a range of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LexBound<'a> {
    Lowest,
    Inclusive(&'a [u8]),
    Exclusive(&'a [u8]),
    Highest,
}

impl SortedSet {
    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    pub(crate) fn set(&mut self, member: &[u8], score: f64) {
        // Redis stores the scores of small sets as integers, which have no negative zero.
        let score = if score == 0.0 { 0.0 } else { score };
        let shared = match self.scores.get_full_mut(member) {
            Some((_, shared, old)) => {
                let shared = Arc::clone(shared);
                let before = std::mem::replace(old, score);
                self.remove_from_order(before, member);
                shared
            }
            None => {
                let shared: Arc<[u8]> = member.into();
                self.scores.insert(Arc::clone(&shared), score);
                self.payload += shared_allocation(member);
                shared
            }
        };
        self.order.insert(RankedMember { score, member: shared }, |other| other.compare(score, member));
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.scores.swap_remove(member) else {
            return false;
        };
        self.remove_from_order(score, member);
        self.payload -= shared_allocation(member);
        true
    }

    fn remove_from_order(&mut self, score: f64, member: &[u8]) {
        let rank = self.order.partition(|other| other.compare(score, member) == Ordering::Less);
        self.order.remove(rank);
    }

    /// Removes the member at `rank`.
    pub(crate) fn take(&mut self, rank: usize) -> RankedMember {
        let taken = self.order.remove(rank);
        self.scores.swap_remove(&taken.member);
        self.payload -= shared_allocation(&taken.member);
        taken
    }

    pub(crate) fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.order.partition(|other| other.compare(score, member) == Ordering::Less))
    }

    /// The ranks of the scores between the bounds.
    pub(crate) fn ranks(&self, min: Bound, max: Bound) -> std::ops::Range<usize> {
        let below = |bound: Bound, score: f64, inclusive_side: bool| {
            if bound.exclusive == inclusive_side { score <= bound.score } else { score < bound.score }
        };
        let start = self.order.partition(|other| below(min, other.score, true));
        let end = self.order.partition(|other| below(max, other.score, false));
        start..end.max(start)
    }

    /// The ranks of the members between the bounds. As in Redis, it is only meaningful if all scores are equal.
    pub(crate) fn lex_ranks(&self, min: LexBound<'_>, max: LexBound<'_>) -> std::ops::Range<usize> {
        let start = self.order.partition(|other| match min {
            LexBound::Lowest => false,
            LexBound::Inclusive(bound) => *other.member < *bound,
            LexBound::Exclusive(bound) => *other.member <= *bound,
            LexBound::Highest => true,
        });
        let end = self.order.partition(|other| match max {
            LexBound::Lowest => false,
            LexBound::Inclusive(bound) => *other.member <= *bound,
            LexBound::Exclusive(bound) => *other.member < *bound,
            LexBound::Highest => true,
        });
        start..end.max(start)
    }

    pub(crate) fn range(
        &self,
        ranks: std::ops::Range<usize>,
    ) -> impl DoubleEndedIterator<Item = &RankedMember> {
        self.order.range(ranks)
    }

    /// A member by its index in the order that `SCAN` walks.
    pub(crate) fn at(&self, index: usize) -> Option<(&[u8], f64)> {
        self.scores.get_index(index).map(|(member, score)| (member.as_ref(), *score))
    }

    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    pub(crate) fn memory(&self) -> usize {
        table::<(Arc<[u8]>, f64)>(self.scores.capacity()) + self.order.memory() + self.payload
    }
}

fn shared_allocation(member: &[u8]) -> usize {
    const COUNTS: usize = 2 * size_of::<usize>();
    allocation(member.len() + COUNTS)
}
