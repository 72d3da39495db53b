//! A bounded map of recently used entries. It has two generations; when the young one is full, the old one is dropped.

use std::collections::HashMap;
use std::hash::Hash;

/// A map that drops the entries that were not used for the longest time.
#[derive(Debug)]
pub struct RecentMap<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    generation_size: usize,
}

impl<K: Hash + Eq + Clone, V> RecentMap<K, V> {
    /// Holds at most `capacity` entries, and always the most recent half of them.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), generation_size: (capacity / 2).max(1) }
    }

    /// The value of a key, inserted if it is missing.
    pub fn get_or_insert(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        if !self.young.contains_key(key) {
            let value = self.old.remove(key).unwrap_or_else(make);
            if self.young.len() >= self.generation_size {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(key.clone(), value);
        }
        self.young.get_mut(key).expect("just inserted")
    }

    /// The value of a key, if it is there. It does not count as used.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.young.get_mut(key).or_else(|| self.old.get_mut(key))
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.young.values().chain(self.old.values())
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.young.values_mut().chain(self.old.values_mut())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.young.iter().chain(&self.old)
    }

    pub fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_entries_are_kept_and_size_is_bounded() {
        let mut map = RecentMap::new(100);
        for key in 0..10_000 {
            map.get_or_insert(&key, || key);
            map.get_or_insert(&0, || panic!("what is used again and again is never forgotten"));
        }
        assert!(map.len() <= 100, "{}", map.len());
        map.get_or_insert(&9_970, || panic!("used lately"));
    }
}
