//! Stored results of items. A later run writes them again when the API answers 304, so that its output is complete.

use hob_database::Database;

use super::{AttemptOutcome, Item, NewItem, ResultVersion};
use crate::database::results::{self, NewResultRow, ResultRow};
use crate::error::Result;
use crate::plan::Step;

/// A result of an earlier run.
#[derive(Clone, Debug)]
pub(crate) struct StoredResult {
    /// The ETag of the response; empty if it had none.
    pub(crate) etag: String,
    line: String,
    follow: Vec<NewItem>,
}

impl StoredResult {
    /// The last result of an item, if it was made under the same definition of its step.
    pub(crate) async fn find(
        database: &Database,
        plan: &str,
        item: &Item,
        step_hash: &str,
    ) -> Result<Option<StoredResult>> {
        let found = results::find(database, plan, &item.step, &item.key, step_hash).await?;
        Ok(found.and_then(|ResultRow { etag, line, follow }| {
            let follow = serde_json::from_str(&follow).ok()?;
            Some(StoredResult { etag, line, follow })
        }))
    }

    /// Writes the result again. The items that follow from it count as unchanged, too.
    pub(crate) fn reuse(self, step: &Step) -> AttemptOutcome {
        let sink = step.sink.as_ref().filter(|_| !self.line.is_empty());
        let output = sink.map(|sink| (sink.get_ref().clone(), self.line));
        let mut follow = self.follow;
        follow.iter_mut().for_each(|item| item.unchanged = true);
        AttemptOutcome::Done { output, follow, version: None }
    }
}

pub(super) fn row<'a>(
    plan: &'a str,
    item: &'a Item,
    version: &'a ResultVersion,
    output: Option<&'a (String, String)>,
    follow: &[NewItem],
) -> NewResultRow<'a> {
    let line = output.map_or("", |(_, line)| line);
    let follow = serde_json::json!(follow).to_string();
    (plan, &item.step, &item.key, &version.step_hash, &version.etag, line, follow)
}
