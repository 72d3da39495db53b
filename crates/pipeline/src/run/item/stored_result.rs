//! The last results of items, for a later run: where the API says that nothing changed, the run writes them again.

use hob_database::Database;

use super::{Item, Keep, NewItem, Outcome};
use crate::database::results::{self, NewResultRow, ResultRow};
use crate::error::Result;
use crate::plan::Step;

/// A result that an earlier run has kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// The version that the API gave the answer; empty where it gave none.
    pub(crate) etag: String,
    line: String,
    follow: Vec<NewItem>,
}

impl Kept {
    /// The last result of an item under the same definition of its step.
    pub(crate) async fn find(
        database: &Database,
        plan: &str,
        item: &Item,
        shape: &str,
    ) -> Result<Option<Kept>> {
        let found = results::find(database, plan, &item.step, &item.key, shape).await?;
        Ok(found.and_then(|ResultRow { etag, line, follow }| {
            let follow = serde_json::from_str(&follow).ok()?;
            Some(Kept { etag, line, follow })
        }))
    }

    /// The same result once more. What it led to is taken as unchanged, too.
    pub(crate) fn again(self, step: &Step) -> Outcome {
        let sink = step.sink.as_ref().filter(|_| !self.line.is_empty());
        let output = sink.map(|sink| (sink.get_ref().clone(), self.line));
        let mut follow = self.follow;
        follow.iter_mut().for_each(|item| item.unchanged = true);
        Outcome::Done { output, follow, keep: None }
    }
}

pub(super) fn row<'a>(
    plan: &'a str,
    item: &'a Item,
    keep: &'a Keep,
    output: Option<&'a (String, String)>,
    follow: &[NewItem],
) -> NewResultRow<'a> {
    let line = output.map_or("", |(_, line)| line);
    let follow = serde_json::json!(follow).to_string();
    (plan, &item.step, &item.key, &keep.shape, &keep.etag, line, follow)
}
