//! Plans, written in TOML: where items come from, which request is made for each, where the results go. A plan is
//! validated as a whole; an error has a line and a field.

mod error;
mod name;
pub(crate) mod output_path;
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
pub use output_path::OutputPath;

use crate::plan::retry::RetryPolicy;
use crate::plan::template::Template;
use crate::quota::{Limits, QuotaName};
use crate::sink::ColumnType;

/// Maximum size of a plan.
pub const MAX_BYTES: usize = 256 * 1024;

/// The step of the pages of a listing. No step of a plan may have this name.
pub const PAGES_STEP: &str = "pages";

/// A valid plan.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: PlanName,
    /// Share of a quota relative to other runs.
    pub weight: u32,
    pub quota: QuotaName,
    /// The limits of the quota, if the plan defines them.
    pub limits: Option<Limits>,
    pub source: Source,
    pub steps: BTreeMap<String, Step>,
    pub sinks: BTreeMap<String, Sink>,
    pub retry: RetryPolicy,
    pub http: Http,
    /// The TOML source.
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
    /// Each line is a key, or a JSON object with a `key`.
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
    /// Path of the items in a page.
    pub items: Path,
    /// Path of the key in an item.
    pub key: Path,
    /// Path of the URL of the next page.
    pub next: Path,
}

/// How an item is processed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    /// URL to request. Without one, the result is the data of the item.
    pub get: Option<Template>,
    pub post: Option<Template>,
    pub headers: BTreeMap<String, Template>,
    /// Body of the POST request.
    pub body: Option<Template>,
    /// Whether requests are conditional (`If-None-Match`).
    pub conditional: bool,
    /// Members of the result. If empty, the result is the whole response.
    pub extract: BTreeMap<String, Path>,
    pub follow: Vec<Follow>,
    pub sink: Option<Spanned<String>>,
}

/// Items to create from a response.
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
    /// One JSON Lines file per run. `${run}` in the path is the run's id; without it, the path is a link to the newest
    /// file.
    JsonLines { path: OutputPath },
    /// A table with a column per member. A row replaces the one with the same key.
    Table {
        database: SinkDatabase,
        table: String,
        key: Vec<String>,
        /// Types of columns, instead of those of the first results.
        types: BTreeMap<String, ColumnType>,
    },
}

#[derive(Clone, Debug)]
pub enum SinkDatabase {
    Sqlite(PathBuf),
    /// Name of the secret with the URL of a PostgreSQL database.
    Postgres(SecretName),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Concurrent requests to one host.
    pub per_host: u32,
    pub timeout: Period,
    pub max_body_kib: u32,
}

/// A path in a JSON document: `$.results[*].id`.
#[derive(Clone, Debug)]
pub struct Path(pub(crate) JsonPath);

impl Source {
    /// The step that processes the items of the source.
    pub fn step(&self) -> &str {
        match self {
            Source::List { step, .. } | Source::File { step, .. } | Source::Pages { step, .. } => step,
        }
    }
}

impl Plan {
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        if text.len() > MAX_BYTES {
            let reason = format!("a plan has at most {MAX_BYTES} bytes");
            return Err(PlanError { line: 1, field: "plan".to_owned(), reason });
        }
        parse::plan(text)
    }

    /// The secrets that the plan uses.
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

    /// The members of all results for a sink.
    pub(crate) fn columns_of(&self, sink: &str) -> Vec<String> {
        let of_sink = |step: &&Step| step.sink.as_ref().is_some_and(|name| name.get_ref() == sink);
        let names: BTreeSet<&String> =
            self.steps.values().filter(of_sink).flat_map(|step| step.extract.keys()).collect();
        names.into_iter().cloned().collect()
    }

    /// The steps whose results are stored for later runs, with a hash of their definition: conditional steps, and steps
    /// that follow from them, since no request is made for items that follow from an unchanged one.
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

    /// Number of calls for one item of a step.
    pub(crate) fn calls_of(&self, step: &str) -> u32 {
        let asks = |step: &Step| step.get.is_some() || step.post.is_some();
        u32::from(step == PAGES_STEP || self.steps.get(step).is_some_and(asks))
    }
}

/// 64-bit FNV-1a. The hash is stored, so the algorithm must not change.
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
get = "https://api.example/dockets/${key}/"
headers = { Authorization = "Token ${secret.api}" }
extract = { id = "$.id" }
follow = [{ step = "entry", items = "$.entries[*]", key = "$.id" }]
sink = "out"
[step.entry]
[sink.out]
jsonl = "out/dockets.jsonl"
"#;

    #[test]
    fn plan_lists_its_secrets_and_calls() {
        let plan = Plan::parse(GOOD).unwrap();
        assert_eq!(plan.secrets().map(SecretName::as_str).collect::<Vec<_>>(), ["api"]);
        assert_eq!((plan.calls_of("docket"), plan.calls_of("entry"), plan.calls_of(PAGES_STEP)), (1, 0, 1));
    }

    #[test]
    fn results_of_conditional_and_following_steps_are_stored() {
        let kept = |text: &str| Plan::parse(text).unwrap().stored_steps();
        assert!(kept(GOOD).is_empty());
        let text = GOOD.replace("[step.docket]", "[step.other]\n[step.docket]\nconditional = true");
        let before = kept(&text);
        assert_eq!(before.keys().collect::<Vec<_>>(), ["docket", "entry"]);
        // Only the definition of the step counts.
        assert_eq!(kept(&text.replace("list = [\"1\", \"2\"]", "list = [\"1\"]")), before);
        let other = kept(&text.replace("id = \"$.id\" }\nfollow", "id = \"$.number\" }\nfollow"));
        assert_ne!(other["docket"], before["docket"]);
        assert_eq!(other["entry"], before["entry"]);
    }

    #[test]
    fn error_has_line_and_field() {
        let wrong = |from: &str, to: &str| {
            assert!(GOOD.contains(from), "{from}");
            let error = Plan::parse(&GOOD.replace(from, to)).unwrap_err();
            format!("{} {}", error.line, error.field)
        };
        assert_eq!(wrong("step = \"docket\"", "step = \"docker\""), "4 source.step");
        assert_eq!(wrong("sink = \"out\"", "sink = \"in\""), "11 step.docket.sink");
        assert_eq!(wrong("${key}", "${kex}"), "7 step.docket.get");
        assert_eq!(wrong("${key}", "{key}"), "7 step.docket.get");
        assert_eq!(wrong("out/dockets.jsonl", "{run}.jsonl"), "13 sink.out");
        assert_eq!(wrong("$.id\" }\nfollow", "id\" }\nfollow"), "9 step.docket.extract");
        assert_eq!(wrong("buffer = 1", "buffer = 9"), "2 quota");
        assert_eq!(wrong("out/dockets.jsonl", "../dockets.jsonl"), "13 sink.out");
        assert_eq!(wrong("out/dockets.jsonl", "/etc/passwd"), "13 sink.out");
        assert_eq!(wrong("list = [\"1\", \"2\"]", ""), "3 source");
        assert_eq!(wrong("name = \"dockets\"", "name = \"doc kets\""), "1 name");
        assert_eq!(wrong("[step.entry]", "[step.entry]\nretries = 1"), "13 step.entry.retries");
        assert_eq!(wrong("https://", "ftp://"), "6 step.docket");
        let table = |types: &str| {
            let table = format!("table = \"d\"\nsqlite = \"d.db\"\nkey = [\"id\"]\ntypes = {{ {types} }}");
            let text = GOOD.replace("jsonl = \"out/dockets.jsonl\"", &table);
            Plan::parse(&text).map(drop).map_err(|error| format!("{} {}", error.line, error.field))
        };
        assert_eq!(table("id = \"integer\""), Ok(()));
        assert_eq!(table("court = \"text\""), Err("13 sink.out.types".to_owned()));
        assert_eq!(table("id = \"int\""), Err("17 sink.out.types".to_owned()));
        let twice = "[sink.out]\njsonl = \"./out/dockets.jsonl\"\n[sink.too]";
        assert_eq!(wrong("[sink.out]", twice), "15 sink.too");
    }
}
