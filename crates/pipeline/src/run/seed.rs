//! Creates items from the source of a plan, in chunks. Each chunk and the position after it are one transaction, so that
//! a crash neither repeats nor skips items.

use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use hob_database::{Database, Isolation, Transaction};
use url::Url;

use crate::database::runs;
use crate::error::{Error, Result};
use crate::plan::{Plan, Source, is_item_key};
use crate::run::extract::page_item;
use crate::run::item::{self, NewItem};
use crate::run::{Run, RunId, SEEDED};

/// Lines of a file that become items in one transaction.
const CHUNK: usize = 5_000;
/// Maximum length of a line.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Adds the next chunk of the source. Returns the position after it.
pub(crate) async fn seed(database: &Database, run: &Run, plan: &Plan, folder: &Path) -> Result<i64> {
    let (items, next) = read(plan, folder, run.seeded_to, CHUNK).await?;
    advance(database, &run.id, run.seeded_to, next, &items).await?;
    Ok(next)
}

/// The first items of a source.
pub(crate) async fn first(plan: &Plan, folder: &Path, max: usize) -> Result<Vec<NewItem>> {
    let (mut items, _) = read(plan, folder, 0, max).await?;
    items.truncate(max);
    Ok(items)
}

/// The items of a source after a position, and the position after them. A file is read in chunks of at most `max` items.
async fn read(plan: &Plan, folder: &Path, from: i64, max: usize) -> Result<(Vec<NewItem>, i64)> {
    match &plan.source {
        Source::List { step, keys } => {
            let item = |key: &String| NewItem::new(step, key, "");
            Ok((keys.iter().map(item).collect(), SEEDED))
        }
        Source::Pages { pages, .. } => {
            let url = Url::parse(pages.url.fixed().unwrap_or_default())
                .map_err(|error| Error::invalid("source.pages.url", error))?;
            Ok((vec![page_item(&url)], SEEDED))
        }
        Source::File { step, path } => {
            let (path, step) = (folder.join(path), step.clone());
            let read = tokio::task::spawn_blocking(move || read_lines(&path, &step, from, max)).await;
            read.unwrap_or_else(|error| Err(Error::Conflict(error.to_string())))
        }
    }
}

/// Number of items in a source; `None` for a listing.
pub(crate) async fn count(plan: &Plan, folder: &Path) -> Result<Option<u64>> {
    match &plan.source {
        Source::List { keys, .. } => Ok(Some(keys.len() as u64)),
        Source::Pages { .. } => Ok(None),
        Source::File { path, .. } => {
            let path = folder.join(path);
            let what = path.display().to_string();
            let lines = move || -> std::io::Result<u64> {
                let mut lines = 0;
                for line in BufReader::new(std::fs::File::open(path)?).lines() {
                    lines += u64::from(!line?.trim().is_empty());
                }
                Ok(lines)
            };
            let counted = tokio::task::spawn_blocking(lines)
                .await
                .unwrap_or_else(|error| Err(std::io::Error::other(error)));
            counted.map(Some).map_err(|source| Error::File { what, source })
        }
    }
}

async fn advance(database: &Database, run: &RunId, from: i64, to: i64, items: &[NewItem]) -> Result<()> {
    let work = |tx: Transaction| async move {
        // Another node may have added this chunk.
        if runs::advance_seed(&tx, run, from, to).await? {
            item::add(&tx, run, items).await?;
        }
        Ok(())
    };
    database.write_with(Isolation::ReadCommitted, work).await
}

/// Reads up to `max` lines from byte `from`: each is a key, or a JSON object with a `key`.
fn read_lines(path: &Path, step: &str, from: i64, max: usize) -> Result<(Vec<NewItem>, i64)> {
    let cannot = |source| Error::File { what: path.display().to_string(), source };
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(from.unsigned_abs())).map_err(cannot)?;
    let mut at = from;
    let mut items = Vec::new();
    let mut line = String::new();
    while items.len() < max {
        line.clear();
        let read = reader.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_line(&mut line).map_err(cannot)?;
        if read == 0 {
            return Ok((items, SEEDED));
        }
        at += i64::try_from(read).unwrap_or(0);
        let text = line.trim();
        if text.is_empty() {
            continue;
        }
        let item = read_item(text, step).ok_or_else(|| {
            let reason = format!("the line before byte {at} is neither a key nor a JSON object with a key");
            Error::File { what: path.display().to_string(), source: std::io::Error::other(reason) }
        })?;
        items.push(item);
    }
    Ok((items, at))
}

fn read_item(line: &str, step: &str) -> Option<NewItem> {
    let (key, data) = if line.starts_with('{') {
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).ok()?;
        let key = match object.get("key")? {
            serde_json::Value::String(key) => key.clone(),
            serde_json::Value::Number(key) => key.to_string(),
            _ => return None,
        };
        (key, line.to_owned())
    } else {
        (line.to_owned(), String::new())
    };
    let fits = is_item_key(&key) && line.len() <= MAX_LINE_BYTES;
    fits.then(|| NewItem::new(step, &key, &data))
}
