//! A bounded map that forgets what was not used lately: two generations, and the older one is dropped when the
//! younger is full.

use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug)]
pub(crate) struct RecentMap<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    generation_size: usize,
}

impl<K: Hash + Eq + Clone, V> RecentMap<K, V> {
    /// Holds at most `generation_size` entries, and the newest half of that for certain.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), generation_size: (capacity / 2).max(1) }
    }

    /// The value of a key, made if it is not there.
    pub(crate) fn get_or_insert(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        if !self.young.contains_key(key) {
            let value = self.old.remove(key).unwrap_or_else(make);
            if self.young.len() >= self.generation_size {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(key.clone(), value);
        }
        self.young.get_mut(key).expect("just inserted")
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.young.values().chain(self.old.values())
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_the_number_is_bounded() {
        let mut map = RecentMap::new(100);
        for key in 0..10_000 {
            map.get_or_insert(&key, || key);
            map.get_or_insert(&0, || panic!("what is used again and again is never forgotten"));
        }
        assert!(map.len() <= 100, "{}", map.len());
        map.get_or_insert(&9_970, || panic!("used lately"));
    }
}
