//! `pipeline_plan`: the plans that were saved.

use hob_database::{Read, Transaction, from_row, sql};

use super::Result;
use crate::plan::{PlanName, StoredPlan};

from_row!(StoredPlan { name, text, updated_at });

pub(crate) async fn put(tx: &Transaction, name: &PlanName, text: &str) -> Result<()> {
    let put = sql("INSERT INTO pipeline_plan (name, text, created_at, updated_at) VALUES ($1, $2, $3, $3)
                   ON CONFLICT (name) DO UPDATE SET text = $2, updated_at = $3");
    tx.execute(put.bind(name).bind(text).bind(tx.now())).await?;
    Ok(())
}

pub(crate) async fn find(on: &impl Read, name: &PlanName) -> Result<Option<StoredPlan>> {
    let find = sql("SELECT name, text, updated_at FROM pipeline_plan WHERE name = $1");
    on.optional(find.bind(name)).await
}

/// The first 1,000 plans by name.
pub(crate) async fn list(on: &impl Read) -> Result<Vec<StoredPlan>> {
    on.all(sql("SELECT name, text, updated_at FROM pipeline_plan ORDER BY name LIMIT 1000")).await
}
