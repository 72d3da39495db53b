//! Extracts the output, the following items and the next page from a response.

use serde_json::{Map, Value};
use url::Url;

use crate::plan::{Pages, Path, Step, is_item_key};
use crate::run::item::NewItem;

/// How often a listing is restarted after an unknown cursor.
const MAX_RESTARTS: u32 = 3;
/// Maximum number of items in one response.
const MAX_ITEMS_PER_RESPONSE: usize = 10_000;

/// What was extracted from a response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Extracted {
    /// The name of the sink, and the line for it.
    pub(crate) output: Option<(String, String)>,
    pub(crate) follow: Vec<NewItem>,
}

/// Reads the response of a step, or the data of the item.
pub(crate) fn from_step(step: &Step, key: &str, document: &Value) -> Result<Extracted, String> {
    let mut follow = Vec::new();
    for rule in &step.follow {
        items(document, &rule.items, &rule.key, rule.step.get_ref(), &mut follow)?;
    }
    let Some(sink) = &step.sink else { return Ok(Extracted { output: None, follow }) };
    let line = if step.extract.is_empty() {
        match document {
            Value::Object(_) => document.to_string(),
            other => Value::Object(Map::from_iter([
                ("key".to_owned(), key.into()),
                ("value".to_owned(), other.clone()),
            ]))
            .to_string(),
        }
    } else {
        let member = |(name, path): (&String, &Path)| (name.clone(), first(document, path));
        Value::Object(step.extract.iter().map(member).collect()).to_string()
    };
    Ok(Extracted { output: Some((sink.get_ref().clone(), line)), follow })
}

/// Reads a page of a listing: its items and the next page. `page` is the requested URL; its fragment counts the restarts
/// of the listing.
pub(crate) fn from_page(
    pages: &Pages,
    step: &str,
    page: &Url,
    document: &Value,
) -> Result<Extracted, String> {
    let mut follow = Vec::new();
    items(document, &pages.items, &pages.key, step, &mut follow)?;
    if let Value::String(next) = first(document, &pages.next)
        && !next.is_empty()
    {
        let mut next =
            page.join(&next).map_err(|error| format!("invalid URL {next:?} of the next page: {error}"))?;
        // Headers may contain secrets for this host.
        if next.origin() != page.origin() {
            return Err(format!("the next page is on another host: {}", next.host_str().unwrap_or_default()));
        }
        next.set_fragment(page.fragment());
        follow.push(page_item(&next));
    }
    Ok(Extracted { output: None, follow })
}

pub(crate) fn page_item(url: &Url) -> NewItem {
    NewItem::new(crate::plan::PAGES_STEP, url.as_str(), "")
}

/// The first page, after the API did not know the cursor of a later one; `None` if it was the first page itself, or after
/// too many restarts.
pub(crate) fn restart_listing(first: &str, page: &Url) -> Option<NewItem> {
    let mut begin = Url::parse(first).ok()?;
    let restarts: u32 =
        page.fragment().map_or(Some(0), |fragment| fragment.strip_prefix("again-")?.parse().ok())?;
    begin.set_fragment(page.fragment());
    if begin == *page || restarts >= MAX_RESTARTS {
        return None;
    }
    begin.set_fragment(Some(&format!("again-{}", restarts + 1)));
    Some(page_item(&begin))
}

fn items(
    document: &Value,
    list: &Path,
    key: &Path,
    step: &str,
    into: &mut Vec<NewItem>,
) -> Result<(), String> {
    for found in list.0.find(document) {
        let key = match first(found, key) {
            Value::String(key) => key,
            Value::Number(key) => key.to_string(),
            other => return Err(format!("the key of an item is {other}, not a string or a number")),
        };
        if !is_item_key(&key) {
            return Err(format!(
                "invalid key {:?}…: 1 to 512 bytes without control characters",
                key.chars().take(40).collect::<String>()
            ));
        }
        if into.len() >= MAX_ITEMS_PER_RESPONSE {
            return Err(format!("the response has more than {MAX_ITEMS_PER_RESPONSE} items"));
        }
        let data = match found {
            Value::Object(_) => found.to_string(),
            _ => String::new(),
        };
        into.push(NewItem::new(step, &key, &data));
    }
    Ok(())
}

fn first(document: &Value, path: &Path) -> Value {
    path.0.find(document).first().copied().cloned().unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, Source};

    const PLAN: &str = r#"name = "p"
quota = { name = "api" }
[source]
step = "docket"
pages = { url = "http://api/dockets/?a=1", items = "$.results[*]", key = "$.id", next = "$.next" }
[step.docket]
get = "http://api/dockets/${key}/"
extract = { id = "$.id", court = "$.court.name" }
follow = [{ step = "entry", items = "$.entries[*]", key = "$" }]
sink = "out"
[step.entry]
[sink.out]
jsonl = "out.jsonl"
"#;

    fn pages() -> Pages {
        match Plan::parse(PLAN).unwrap().source {
            Source::Pages { pages, .. } => pages,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn response_yields_a_line_and_following_items() {
        let plan = Plan::parse(PLAN).unwrap();
        let answer = serde_json::json!({ "id": 7, "court": { "name": "ca9" }, "entries": [1, "x"] });
        let found = from_step(&plan.steps["docket"], "7", &answer).unwrap();
        assert_eq!(found.output, Some(("out".to_owned(), r#"{"court":"ca9","id":7}"#.to_owned())));
        assert_eq!(found.follow.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), ["1", "x"]);
        let wrong = serde_json::json!({ "entries": [null] });
        assert!(from_step(&plan.steps["docket"], "7", &wrong).is_err());
    }

    #[test]
    fn next_page_must_be_on_the_same_host() {
        let page = Url::parse("http://api/dockets/?a=1").unwrap();
        let next = |next: &str| {
            from_page(
                &pages(),
                "docket",
                &page,
                &serde_json::json!({ "results": [{ "id": 1 }], "next": next }),
            )
        };
        let found = next("http://api/dockets/?cursor=b").unwrap();
        let keys: Vec<_> = found.follow.iter().map(|item| item.key.as_str()).collect();
        assert_eq!(keys, ["1", "http://api/dockets/?cursor=b"]);
        assert_eq!(next("?cursor=c").unwrap().follow[1].key, "http://api/dockets/?cursor=c");
        assert!(next("http://evil/").is_err());
    }

    #[test]
    fn unknown_cursor_restarts_the_listing_a_few_times() {
        let first = "http://api/dockets/?a=1";
        let again = |page: &str| restart_listing(first, &Url::parse(page).unwrap()).map(|item| item.key);
        assert_eq!(again("http://api/?cursor=x"), Some("http://api/dockets/?a=1#again-1".to_owned()));
        assert_eq!(again("http://api/?cursor=x#again-1"), Some("http://api/dockets/?a=1#again-2".to_owned()));
        assert_eq!(again("http://api/?cursor=x#again-3"), None);
        assert_eq!(again(first), None);
        assert_eq!(again("http://api/dockets/?a=1#again-1"), None);
    }
}
