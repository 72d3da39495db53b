//! A plan: where items come from, what is done with each, where the results go. Written in TOML, checked whole before
//! anything is done with it; a mistake is named with its line and field.

mod error;
mod name;
mod parse;
pub(crate) mod retry;
pub(crate) mod secrets;
pub(crate) mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use hob_database::UnixMs;
use hob_expression::JsonPath;
use hob_service::Period;
use hob_service::config::SecretName;
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

pub use error::PlanError;
pub use name::PlanName;
pub(crate) use name::is_item_key;

use crate::plan::retry::RetryPolicy;
use crate::plan::template::Template;
use crate::quota::{Limits, QuotaName};

/// Longer texts are no plans.
pub const MAX_BYTES: usize = 256 * 1024;

/// The step of the pages of a listing; no step of a plan may be called so.
pub const PAGES_STEP: &str = "pages";

/// A plan that can be carried out.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: PlanName,
    /// How much of a shared quota its runs get, against others.
    pub weight: u32,
    pub quota: QuotaName,
    /// What the quota allows, where the plan says so.
    pub limits: Option<Limits>,
    pub source: Source,
    pub steps: BTreeMap<String, Step>,
    pub sinks: BTreeMap<String, Sink>,
    pub retry: RetryPolicy,
    pub http: Http,
    /// The text that it was read from.
    pub text: String,
}

/// A plan as it is in the database.
#[derive(Clone, Debug)]
pub struct StoredPlan {
    pub name: PlanName,
    pub text: String,
    pub updated_at: UnixMs,
}

/// Where items come from.
#[derive(Clone, Debug)]
pub enum Source {
    List {
        step: String,
        keys: Vec<String>,
    },
    /// One key, or one JSON object with a `key`, a line.
    File {
        step: String,
        path: PathBuf,
    },
    /// A listing with a cursor.
    Pages {
        step: String,
        pages: Pages,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pages {
    pub url: Template,
    #[serde(default)]
    pub headers: BTreeMap<String, Template>,
    /// Where the items of a page are.
    pub items: Path,
    /// Where the key of an item is.
    pub key: Path,
    /// Where the URL of the next page is.
    pub next: Path,
}

/// What is done with an item.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    /// The URL to ask; without one, the item's own data is the result.
    pub get: Option<Template>,
    pub post: Option<Template>,
    pub headers: BTreeMap<String, Template>,
    /// What is posted.
    pub body: Option<Template>,
    /// Whether to ask only for what changed since an earlier run.
    pub conditional: bool,
    /// The members of a result; without any, the result is the whole answer.
    pub extract: BTreeMap<String, Path>,
    pub follow: Vec<Follow>,
    pub sink: Option<Spanned<String>>,
}

/// Items that are found in a result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Follow {
    pub step: Spanned<String>,
    pub items: Path,
    pub key: Path,
}

/// Where results go.
#[derive(Clone, Debug)]
pub enum Sink {
    /// A file of JSON Lines for each run, called so after the run where `{run}` stands, else with a link of this name.
    JsonLines { path: PathBuf },
    /// A table with a column for each member, where a row with the same key is replaced.
    Table { database: SinkDatabase, table: String, key: Vec<String> },
}

#[derive(Clone, Debug)]
pub enum SinkDatabase {
    Sqlite(PathBuf),
    /// A secret that holds the URL of a PostgreSQL database.
    Postgres(SecretName),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Requests to one host at a time.
    pub per_host: u32,
    pub timeout: Period,
    pub max_body_kib: u32,
}

/// Places in a JSON document: `$.results[*].id`.
#[derive(Clone, Debug)]
pub struct Path(pub(crate) JsonPath);

impl Plan {
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        if text.len() > MAX_BYTES {
            let reason = format!("a plan has {MAX_BYTES} bytes at most");
            return Err(PlanError { line: 1, field: "plan".to_owned(), reason });
        }
        parse::plan(text)
    }

    /// Every secret that it names.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        let pages = match &self.source {
            Source::Pages { pages, .. } => Some(pages),
            _ => None,
        };
        let of_pages = pages.into_iter().flat_map(|pages| pages.headers.values().chain([&pages.url]));
        let of_steps = self
            .steps
            .values()
            .flat_map(|step| step.headers.values().chain(&step.get).chain(&step.post).chain(&step.body));
        let of_sinks = self.sinks.values().filter_map(|sink| match sink {
            Sink::Table { database: SinkDatabase::Postgres(name), .. } => Some(name),
            _ => None,
        });
        of_pages.chain(of_steps).flat_map(Template::secrets).chain(of_sinks)
    }

    /// The members of the results that go to a sink.
    pub(crate) fn columns_of(&self, sink: &str) -> Vec<String> {
        let of_sink = |step: &&Step| step.sink.as_ref().is_some_and(|name| name.get_ref() == sink);
        let names: BTreeSet<&String> =
            self.steps.values().filter(of_sink).flat_map(|step| step.extract.keys()).collect();
        names.into_iter().cloned().collect()
    }

    /// The steps whose results are kept for a later run, each with a hash of its definition: those that ask only for
    /// what changed, and those that follow them, since nothing is asked about what follows an unchanged item.
    pub(crate) fn stored_steps(&self) -> BTreeMap<String, String> {
        let mut kept: BTreeSet<&str> = BTreeSet::new();
        let mut open: Vec<&str> =
            self.steps.iter().filter(|(_, step)| step.conditional).map(|(name, _)| name.as_str()).collect();
        while let Some(name) = open.pop() {
            if kept.insert(name) {
                let follow = self.steps.get(name).into_iter().flat_map(|step| &step.follow);
                open.extend(follow.map(|follow| follow.step.get_ref().as_str()));
            }
        }
        let text: toml::Table = self.text.parse().unwrap_or_default();
        let definition =
            |name: &str| text.get("step").and_then(|steps| steps.get(name)).map(toml::Value::to_string);
        kept.into_iter().map(|name| (name.to_owned(), hash(&definition(name).unwrap_or_default()))).collect()
    }

    /// How many calls one item of a step costs.
    pub(crate) fn calls_of(&self, step: &str) -> u32 {
        let asks = |step: &Step| step.get.is_some() || step.post.is_some();
        u32::from(step == PAGES_STEP || self.steps.get(step).is_some_and(asks))
    }
}

/// FNV-1a in 64 bits: it is stored, so it must be the same in every version.
fn hash(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

impl Default for Http {
    fn default() -> Self {
        Self { per_host: 4, timeout: Period::from_secs(30), max_body_kib: 4096 }
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Path).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"name = "dockets"
quota = { name = "api", windows = "5/1m, 50/1h", buffer = 1 }
[source]
step = "docket"
list = ["1", "2"]
[step.docket]
get = "https://api.example/dockets/{key}/"
headers = { Authorization = "Token {secret.api}" }
extract = { id = "$.id" }
follow = [{ step = "entry", items = "$.entries[*]", key = "$.id" }]
sink = "out"
[step.entry]
[sink.out]
jsonl = "out/dockets.jsonl"
"#;

    #[test]
    fn a_plan_says_what_it_needs() {
        let plan = Plan::parse(GOOD).unwrap();
        assert_eq!(plan.secrets().map(SecretName::as_str).collect::<Vec<_>>(), ["api"]);
        assert_eq!((plan.calls_of("docket"), plan.calls_of("entry"), plan.calls_of(PAGES_STEP)), (1, 0, 1));
    }

    #[test]
    fn results_are_kept_of_what_asks_only_for_changes_and_of_what_follows_it() {
        let kept = |text: &str| Plan::parse(text).unwrap().stored_steps();
        assert!(kept(GOOD).is_empty());
        let text = GOOD.replace("[step.docket]", "[step.other]\n[step.docket]\nconditional = true");
        let before = kept(&text);
        assert_eq!(before.keys().collect::<Vec<_>>(), ["docket", "entry"]);
        // What is said elsewhere does not matter; another extract makes other results.
        assert_eq!(kept(&text.replace("list = [\"1\", \"2\"]", "list = [\"1\"]")), before);
        let other = kept(&text.replace("id = \"$.id\" }\nfollow", "id = \"$.number\" }\nfollow"));
        assert_ne!(other["docket"], before["docket"]);
        assert_eq!(other["entry"], before["entry"]);
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_field() {
        let wrong = |from: &str, to: &str| {
            assert!(GOOD.contains(from), "{from}");
            let error = Plan::parse(&GOOD.replace(from, to)).unwrap_err();
            format!("{} {}", error.line, error.field)
        };
        assert_eq!(wrong("step = \"docket\"", "step = \"docker\""), "4 source.step");
        assert_eq!(wrong("sink = \"out\"", "sink = \"in\""), "11 step.docket.sink");
        assert_eq!(wrong("{key}", "{kex}"), "7 step.docket.get");
        assert_eq!(wrong("$.id\" }\nfollow", "id\" }\nfollow"), "9 step.docket.extract");
        assert_eq!(wrong("buffer = 1", "buffer = 9"), "2 quota");
        assert_eq!(wrong("out/dockets.jsonl", "../dockets.jsonl"), "13 sink.out");
        assert_eq!(wrong("out/dockets.jsonl", "/etc/passwd"), "13 sink.out");
        assert_eq!(wrong("list = [\"1\", \"2\"]", ""), "3 source");
        assert_eq!(wrong("name = \"dockets\"", "name = \"doc kets\""), "1 name");
        assert_eq!(wrong("[step.entry]", "[step.entry]\nretries = 1"), "13 step.entry.retries");
        assert_eq!(wrong("https://", "ftp://"), "6 step.docket");
        let twice = "[sink.out]\njsonl = \"./out/dockets.jsonl\"\n[sink.too]";
        assert_eq!(wrong("[sink.out]", twice), "15 sink.too");
    }
}
