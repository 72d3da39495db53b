//! Facts that the database stores about itself: its id, and how often the store lost its data.

use std::fmt;
use std::str::FromStr;

use crate::connection::Isolation;
use crate::{Database, Error, Read as _, column, sql};

/// The id of a database. It is random, is created with the database, and stays the same in copies.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatabaseId(u128);

column!(DatabaseId as text);

impl Database {
    /// The number of times that the store lost its data, plus one: a new database is in epoch 1.
    pub async fn epoch(&self) -> Result<u32, Error> {
        let (epoch,) = self.one(sql("SELECT epoch FROM hob_meta")).await?;
        Ok(epoch)
    }

    /// Raises the epoch, to at most `max`, after the store lost the data of the epoch `lost`. No two calls return the
    /// same epoch: if several nodes find a loss, a slow node must not begin an epoch that another node has already
    /// finished.
    ///
    /// `lost` may be larger than the stored epoch if the database was restored from a backup. The result is always
    /// larger than `lost`.
    pub async fn raise_epoch(&self, lost: u32, max: u32) -> Result<u32, Error> {
        self.write_with(Isolation::ReadCommitted, |tx| async move {
            let raise = "UPDATE hob_meta SET epoch = CASE WHEN epoch < $1 THEN $1 ELSE epoch END + 1";
            tx.execute(sql(raise).bind(lost)).await?;
            let (epoch,): (u32,) = tx.one(sql("SELECT epoch FROM hob_meta")).await?;
            if epoch > max {
                return Err(Error::invalid_value(format!(
                    "cannot raise the epoch to {epoch}: the maximum is {max}"
                )));
            }
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
