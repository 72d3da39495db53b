//! Epochs, markers and fences: how a loss of the store is detected, and how late writes are refused afterwards.
//!
//! An epoch is a number in the database. It is raised whenever a node finds that the store has lost data. A tag (all
//! keys of one slot that belong together) carries a marker with the epoch in which it was last rebuilt. A script that
//! depends on earlier writes takes the marker among its KEYS and the epoch in ARGV, begins with
//!
//! ```lua
//! local gone = lost(KEYS[2], ARGV[1])
//! if gone then return gone end
//! ```
//!
//! and is made with [`Script::with`](crate::Script::with)`(&[MARKER], …)`. Its answer is read as an [`Outcome`]. On
//! [`Outcome::Lost`] the service calls [`rebuild`], which raises the epoch in the database, writes the data of the tag
//! again from the database, and then its marker. Because a lost marker is never written again with its old epoch, a
//! [`Fence`] is never issued twice.
//!
//! A server can also go back to older data, with an older marker: it is restarted from an old snapshot, or a replica
//! that missed the last writes is promoted. So the marker names the history of its server as well. The store handle reads
//! this history whenever it connects, and appends it to the arguments of each script that is made with [`MARKER`] or
//! [`SERVER`]. A marker from another history is lost, too.

mod rebuild;

use std::fmt;

use crate::error::{Error, Result};
use crate::key::Key;
use crate::reply::{Reply, Text};
use crate::script::{Call, Script};

pub use rebuild::{Progress, Rebuild, Recovery, rebuild};

/// Lua that declares `server`, the history of the server on which the script runs, and `same_server(writer)`.
pub const SERVER: &str = include_str!("epoch/server.lua");

/// Lua that declares `lost(marker, epoch)`, `superseded(marker, epoch)` and `next_fence(marker, epoch)`, and also
/// [`SERVER`].
pub const MARKER: &str = concat!(include_str!("epoch/server.lua"), include_str!("epoch/marker.lua"));

static DISCARD: Script = Script::with(&[MARKER], include_str!("epoch/discard.lua"));

/// The call that marks a tag as lost, because its data is wrong or incomplete. It does nothing if the tag no longer has this epoch:
/// then another node has marked or rebuilt it.
#[must_use]
pub fn discard(marker: &Key, epoch: Epoch) -> Call {
    DISCARD.on(std::slice::from_ref(marker)).arg(epoch.get())
}

/// The number of times that the store lost its data, counted in the database. It has at most 21 bits, because Lua's
/// numbers are exact up to 2⁵³, and the other part of a fence has 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u32);

impl Epoch {
    /// The last epoch there can be.
    pub const MAX: Self = Self((1 << 21) - 1);

    /// An epoch from the database.
    pub fn new(number: u32) -> Result<Self> {
        if number > Self::MAX.0 {
            return Err(Error::Misuse(format!("epoch {number} is larger than the maximum, {}", Self::MAX.0)));
        }
        Ok(Self(number))
    }

    /// An epoch that a script read; `None` if there is none.
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().and_then(|number| Self::new(number).ok())
    }

    /// Its number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A fencing number, epoch·2³² + n. It is larger than every earlier fence of its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// A fence that was stored before.
    #[must_use]
    pub fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// Its number, below 2⁵³.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The epoch in which the fence was issued.
    #[must_use]
    pub fn epoch(self) -> u64 {
        self.0 >> 32
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The result of a script that depends on earlier writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// What the script did.
    Done(T),
    /// The state of the tag is lost or has another epoch; the script changed nothing.
    Lost {
        /// The epoch of its marker, if it has a valid one.
        found: Option<Epoch>,
    },
}

impl<T> Outcome<T> {
    /// Reads `{'lost', epoch}`; any other reply is read by `done`.
    pub fn read(mut reply: Reply, done: impl FnOnce(Reply) -> Result<T>) -> Result<Self> {
        if reply.word() != "lost" {
            return done(reply).map(Self::Done);
        }
        let Text(found) = reply.next()?;
        Ok(Self::Lost { found: Epoch::parse(&found) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_leaves_room_for_exact_fences() {
        assert!(Epoch::new(2_097_152).is_err());
        assert_eq!(Epoch::MAX.get(), 2_097_151);
    }
}
