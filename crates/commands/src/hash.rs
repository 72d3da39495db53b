//! A hash for names and ids.

use std::hash::Hasher;

/// FNV-1a: fast for short words, but easy to attack with keys that collide. For tables whose keys a client cannot
/// choose, such as the names of commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct FnvHasher(u64);

impl Hasher for FnvHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The length of a name, which does not need to be hashed.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
