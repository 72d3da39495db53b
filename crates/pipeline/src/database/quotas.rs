//! `pipeline_quota`: what each quota allows, and its epoch.

use hob_database::{PerDialect, Read, Transaction, UnixMs, from_row, sql};

use super::Result;
use crate::quota::QuotaName;

pub(crate) struct QuotaRow {
    pub(crate) name: QuotaName,
    /// Empty: the limits are in the configuration.
    pub(crate) windows: String,
    pub(crate) buffer: u32,
    pub(crate) blocked_until: UnixMs,
    pub(crate) epoch: u32,
}

from_row!(QuotaRow { name, windows, buffer, blocked_until, epoch });

pub(crate) async fn put(tx: &Transaction, name: &QuotaName, windows: &str, buffer: u32) -> Result<()> {
    let put = sql("INSERT INTO pipeline_quota (name, windows, buffer, blocked_until, epoch, updated_at)
                   VALUES ($1, $2, $3, 0, 0, $4)
                   ON CONFLICT (name) DO UPDATE SET windows = $2, buffer = $3, updated_at = $4");
    tx.execute(put.bind(name).bind(windows).bind(buffer).bind(tx.now())).await?;
    Ok(())
}

/// Creates the public quota with the limits of the configuration.
pub(crate) async fn put_default(tx: &Transaction, name: &QuotaName) -> Result<()> {
    let put = sql("INSERT INTO pipeline_quota (name, windows, buffer, blocked_until, epoch, updated_at)
                   VALUES ($1, '', 0, 0, 0, $2) ON CONFLICT DO NOTHING");
    tx.execute(put.bind(name).bind(tx.now())).await?;
    Ok(())
}

pub(crate) async fn find(on: &impl Read, name: &QuotaName) -> Result<Option<QuotaRow>> {
    let find = sql("SELECT name, windows, buffer, blocked_until, epoch FROM pipeline_quota WHERE name = $1");
    on.optional(find.bind(name)).await
}

/// The first 1,000 quotas by name.
pub(crate) async fn list(on: &impl Read) -> Result<Vec<QuotaRow>> {
    let list = sql(
        "SELECT name, windows, buffer, blocked_until, epoch FROM pipeline_quota ORDER BY name LIMIT 1000",
    );
    on.all(list).await
}

/// A quota's epoch. No other transaction can raise it before this one ends.
pub(crate) async fn lock_epoch(tx: &Transaction, name: &QuotaName) -> Result<u32> {
    const EPOCH: PerDialect = PerDialect {
        sqlite: "SELECT epoch FROM pipeline_quota WHERE name = $1",
        postgres: "SELECT epoch FROM pipeline_quota WHERE name = $1 FOR SHARE",
    };
    let (epoch,) = tx.one(sql(EPOCH).bind(name)).await?;
    Ok(epoch)
}

/// Raises the epoch to the one after `lost`. Returns whether it was raised: another node may have done so.
pub(crate) async fn raise_epoch(tx: &Transaction, name: &QuotaName, lost: u32) -> Result<bool> {
    let raise = sql("UPDATE pipeline_quota SET epoch = $2 + 1 WHERE name = $1 AND epoch <= $2");
    Ok(tx.execute(raise.bind(name).bind(lost)).await? > 0)
}

/// Records until when the API refuses calls. An earlier time than the recorded one changes nothing.
pub(crate) async fn block_until(tx: &Transaction, name: &QuotaName, until: UnixMs) -> Result<()> {
    let block = sql("UPDATE pipeline_quota SET blocked_until = $2 WHERE name = $1 AND blocked_until < $2");
    tx.execute(block.bind(name).bind(until)).await?;
    Ok(())
}
