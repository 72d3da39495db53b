//! An ordered list that finds ranks by value and values by rank in O(log n).
//!
//! Items are in short chunks, and a Fenwick tree over the chunks' lengths maps ranks to chunks. The tree is rebuilt
//! only when a chunk splits or becomes empty, which happens once in a few hundred insertions.

use std::cmp::Ordering;
use std::ops::Range;

use super::value::allocation;

const MAX_CHUNK: usize = 256;

#[derive(Clone, Debug)]
pub(crate) struct RankedList<T> {
    chunks: Vec<Vec<T>>,
    /// `lengths[i]` sums the chunks `i + 1 - lowbit(i + 1) ..= i`.
    lengths: Vec<usize>,
    len: usize,
}

impl<T> Default for RankedList<T> {
    fn default() -> RankedList<T> {
        RankedList { chunks: Vec::new(), lengths: Vec::new(), len: 0 }
    }
}

impl<T> RankedList<T> {
    /// Inserts `item` where `compare` says: `Less` for the items before it.
    pub(crate) fn insert(&mut self, item: T, compare: impl Fn(&T) -> Ordering) {
        self.len += 1;
        if self.chunks.is_empty() {
            self.chunks.push(vec![item]);
            return self.rebuild_lengths();
        }
        let before = |other: &T| compare(other) == Ordering::Less;
        let chunk = self.chunk_of(&before).min(self.chunks.len() - 1);
        let items = &mut self.chunks[chunk];
        let at = items.partition_point(before);
        items.insert(at, item);
        if items.len() <= MAX_CHUNK {
            return self.add_length(chunk, 1);
        }
        let upper = items.split_off(MAX_CHUNK / 2);
        self.chunks.insert(chunk + 1, upper);
        self.rebuild_lengths();
    }

    /// Removes the item at `rank`.
    pub(crate) fn remove(&mut self, rank: usize) -> T {
        let (chunk, at) = self.locate(rank);
        let item = self.chunks[chunk].remove(at);
        self.len -= 1;
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
            self.rebuild_lengths();
        } else {
            self.add_length(chunk, -1);
        }
        item
    }

    /// The number of items for which `before` holds; it must hold for a prefix.
    pub(crate) fn partition(&self, before: impl Fn(&T) -> bool) -> usize {
        let chunk = self.chunk_of(&before);
        let within = self.chunks.get(chunk).map_or(0, |items| items.partition_point(&before));
        self.items_before(chunk) + within
    }

    pub(crate) fn range(&self, ranks: Range<usize>) -> impl DoubleEndedIterator<Item = &T> {
        let ranks = ranks.start.min(self.len)..ranks.end.min(self.len);
        let (first, from) = self.locate(ranks.start);
        let (last, to) = if ranks.is_empty() { (first, from) } else { self.locate(ranks.end - 1) };
        let to = if ranks.is_empty() { from } else { to + 1 };
        (first..=last).flat_map(move |chunk| {
            let items = self.chunks.get(chunk).map_or(&[][..], Vec::as_slice);
            let start = if chunk == first { from } else { 0 };
            let end = if chunk == last { to } else { items.len() };
            &items[start..end]
        })
    }

    pub(crate) fn memory(&self) -> usize {
        // Chunks grow by doubling and split in halves, so on average three quarters of their capacity are used.
        let chunk = self.chunks.first().map_or(0, |items| allocation(items.capacity() * size_of::<T>()));
        allocation(self.chunks.capacity() * size_of::<Vec<T>>())
            + allocation(self.lengths.capacity() * size_of::<usize>())
            + self.chunks.len() * chunk
    }

    /// The first chunk that is not entirely before.
    fn chunk_of(&self, before: &impl Fn(&T) -> bool) -> usize {
        self.chunks.partition_point(|items| items.last().is_some_and(before))
    }

    fn items_before(&self, chunk: usize) -> usize {
        let mut at = chunk;
        let mut sum = 0;
        while at > 0 {
            sum += self.lengths[at - 1];
            at &= at - 1;
        }
        sum
    }

    /// The chunk of a rank and the index in it; past the end, the end of the last chunk.
    fn locate(&self, rank: usize) -> (usize, usize) {
        let (mut chunk, mut rest) = (0, rank);
        let mut step = self.lengths.len().checked_ilog2().map_or(0, |log| 1 << log);
        while step > 0 {
            if let Some(&length) = self.lengths.get(chunk + step - 1)
                && length <= rest
            {
                chunk += step;
                rest -= length;
            }
            step >>= 1;
        }
        (chunk, rest)
    }

    fn add_length(&mut self, chunk: usize, by: isize) {
        let mut at = chunk + 1;
        while at <= self.lengths.len() {
            self.lengths[at - 1] = self.lengths[at - 1].wrapping_add_signed(by);
            at += at & at.wrapping_neg();
        }
    }

    fn rebuild_lengths(&mut self) {
        self.lengths.clear();
        self.lengths.extend(self.chunks.iter().map(Vec::len));
        for at in 1..=self.lengths.len() {
            let parent = at + (at & at.wrapping_neg());
            if parent <= self.lengths.len() {
                self.lengths[parent - 1] += self.lengths[at - 1];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_values_agree_with_a_sorted_vector() {
        let mut ranks = RankedList::default();
        let mut model: Vec<u32> = Vec::new();
        let mut seed = 7u32;
        for round in 0..20_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = seed >> 8;
            if round % 5 == 4 || (round > 12_000 && round % 2 == 0) {
                let rank = value as usize % model.len();
                assert_eq!(ranks.remove(rank), model.remove(rank));
            } else {
                ranks.insert(value, |other| other.cmp(&value));
                model.insert(model.partition_point(|&other| other < value), value);
            }
            if round % 97 == 0 {
                let probe = seed % (1 << 24);
                assert_eq!(
                    ranks.partition(|&other| other < probe),
                    model.partition_point(|&other| other < probe)
                );
                let from = probe as usize % (model.len() + 1);
                let to = (from + 700).min(model.len());
                assert!(ranks.range(from..to).eq(&model[from..to]));
                assert!(ranks.range(from..to).rev().eq(model[from..to].iter().rev()));
            }
        }
    }

    #[test]
    fn empty_list_has_no_items() {
        let ranks: RankedList<u32> = RankedList::default();
        assert_eq!(ranks.partition(|_| true), 0);
        assert_eq!(ranks.range(0..10).count(), 0);
    }
}
