//! What the database stores about itself: its id, and how often the store was lost.

use std::fmt;
use std::str::FromStr;

use crate::connection::Isolation;
use crate::{Database, Error, Read as _, column, sql};

/// The id of a database: random, created with it, kept by its copies.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatabaseId(u128);

/// How often the store was lost. A fence is epoch · 2³² + n, which Lua's numbers hold exactly up to 2⁵³.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    pub const MAX: Epoch = Epoch((1 << 21) - 1);
}

column!(Epoch(u32));
column!(DatabaseId as text);

impl Database {
    pub async fn epoch(&self) -> Result<Epoch, Error> {
        let (epoch,) = self.one(sql("SELECT epoch FROM hob_meta")).await?;
        Ok(epoch)
    }

    /// Raises the epoch because the store of the epoch `lost` is gone. All who say so of the same epoch
    /// get the same answer, and it is raised once.
    ///
    /// An epoch that the database has never seen, since they were restored from a backup, counts as lost too:
    /// the answer is always larger than `lost`.
    pub async fn raise_epoch(&self, lost: Epoch) -> Result<Epoch, Error> {
        if lost >= Epoch::MAX {
            return Err(Error::unfit(format!("the epoch {} cannot be raised any further", lost.0)));
        }
        self.write_with(Isolation::Committed, |tx| async move {
            let raise = sql("UPDATE hob_meta SET epoch = $1 + 1 WHERE epoch <= $1").bind(lost);
            tx.execute(raise).await?;
            let (epoch,) = tx.one(sql("SELECT epoch FROM hob_meta")).await?;
            Ok(epoch)
        })
        .await
    }
}

impl DatabaseId {
    pub(crate) fn random() -> Self {
        Self(rand::random())
    }
}

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseId({self})")
    }
}

impl FromStr for DatabaseId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}
