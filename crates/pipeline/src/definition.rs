//! A plan: where items come from, what is done with each, where the results go. Written in TOML, checked whole before
//! anything is done with it; a mistake is named with its line and field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, PathBuf};
use std::str::FromStr;

use hob_house::Period;
use hob_house::config::SecretName;
use serde::{Deserialize, Deserializer, de};
use serde_json_path::JsonPath;
use toml::Spanned;

use crate::quota::{Limits, QuotaName};
use crate::retry::Retries;
use crate::template::Template;

/// Longer texts are no plans.
pub const MOST_BYTES: usize = 256 * 1024;
const MOST_STEPS: usize = 50;
const MOST_LISTED: usize = 10_000;

/// The step of the pages of a listing; no step of a plan may be called so.
pub const PAGES: &str = "pages";

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
    pub retries: Retries,
    pub http: Http,
    /// The text that it was read from.
    pub text: String,
}

/// What a plan is called: letters, digits, `.`, `_`, `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanName(String);

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
    /// A file of JSON Lines.
    Lines { path: PathBuf },
    /// A table with a column for each member, where a row with the same key is replaced.
    Table { database: Database, table: String, key: Vec<String> },
}

#[derive(Clone, Debug)]
pub enum Database {
    Sqlite(PathBuf),
    /// A secret that holds the URL of a PostgreSQL database.
    Secret(SecretName),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Requests to one host at a time.
    pub per_host: u32,
    pub timeout: Period,
    pub max_body_kib: u32,
}

/// A place in a JSON document (RFC 9535).
#[derive(Clone, Debug)]
pub struct Path(pub(crate) JsonPath);

/// What is wrong with a plan, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, {field}: {reason}")]
pub struct BadPlan {
    pub line: usize,
    pub field: String,
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: PlanName,
    #[serde(default = "one")]
    weight: Spanned<u32>,
    quota: Spanned<RawQuota>,
    source: Spanned<RawSource>,
    #[serde(default)]
    step: BTreeMap<String, Spanned<Step>>,
    #[serde(default)]
    sink: BTreeMap<String, Spanned<RawSink>>,
    #[serde(default)]
    retry: Retries,
    #[serde(default = "default_http")]
    http: Spanned<Http>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawQuota {
    name: String,
    windows: Option<String>,
    #[serde(default)]
    buffer: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSource {
    step: Spanned<String>,
    list: Option<Vec<String>>,
    file: Option<PathBuf>,
    pages: Option<Pages>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSink {
    jsonl: Option<PathBuf>,
    table: Option<String>,
    sqlite: Option<PathBuf>,
    postgres: Option<SecretName>,
    #[serde(default)]
    key: Vec<String>,
}

impl Plan {
    pub fn parse(text: &str) -> Result<Self, BadPlan> {
        if text.len() > MOST_BYTES {
            let reason = format!("a plan has {MOST_BYTES} bytes at most");
            return Err(BadPlan { line: 1, field: "plan".to_owned(), reason });
        }
        let raw: Raw = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            BadPlan::at(text, start, field_at(text, start), error.message())
        })?;
        Reader { text, steps: raw.step.keys().cloned().collect() }.plan(raw)
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
            Sink::Table { database: Database::Secret(name), .. } => Some(name),
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

    /// How many calls one item of a step costs.
    pub(crate) fn calls_of(&self, step: &str) -> u32 {
        let asks = |step: &Step| step.get.is_some() || step.post.is_some();
        u32::from(step == PAGES || self.steps.get(step).is_some_and(asks))
    }
}

/// Checks what parts of a plan say of each other.
struct Reader<'a> {
    text: &'a str,
    steps: Vec<String>,
}

impl Reader<'_> {
    fn plan(&self, raw: Raw) -> Result<Plan, BadPlan> {
        let weight_at = raw.weight.span().start;
        let weight = raw.weight.into_inner();
        self.check((1..=1000).contains(&weight), weight_at, "weight", "between 1 and 1000")?;
        let (quota, limits) = self.quota(raw.quota)?;
        self.check(self.steps.len() <= MOST_STEPS, 0, "step", "a plan has 50 steps at most")?;
        let sinks = self.sinks(raw.sink)?;
        let steps = self.steps(raw.step, &sinks)?;
        let http_at = raw.http.span().start;
        let http = raw.http.into_inner();
        let http_fits = (1..=64).contains(&http.per_host)
            && (1..=64 * 1024).contains(&http.max_body_kib)
            && (1..=600_000).contains(&http.timeout.as_millis());
        let bounds = "per_host is 1 to 64, timeout 1ms to 10m, max_body_kib 1 to 65536";
        self.check(http_fits, http_at, "http", bounds)?;
        let source = self.source(raw.source)?;
        let text = self.text.to_owned();
        let (name, retries) = (raw.name, raw.retry);
        Ok(Plan { name, weight, quota, limits, source, steps, sinks, retries, http, text })
    }

    fn quota(&self, raw: Spanned<RawQuota>) -> Result<(QuotaName, Option<Limits>), BadPlan> {
        let at = raw.span().start;
        let raw = raw.into_inner();
        let name = raw.name.parse().map_err(|error| self.bad(at, "quota.name", error))?;
        let limits = raw.windows.map(|windows| Limits::parse(&windows, raw.buffer)).transpose();
        Ok((name, limits.map_err(|error| self.bad(at, "quota", error))?))
    }

    fn source(&self, raw: Spanned<RawSource>) -> Result<Source, BadPlan> {
        let at = raw.span().start;
        let raw = raw.into_inner();
        self.known_step(&raw.step, "source.step")?;
        let step = raw.step.into_inner();
        match (raw.list, raw.file, raw.pages) {
            (Some(keys), None, None) => {
                let fits = keys.len() <= MOST_LISTED && keys.iter().all(|key| is_key(key));
                self.check(
                    fits,
                    at,
                    "source.list",
                    "at most 10000 keys of 1 to 512 characters; more go into a file",
                )?;
                Ok(Source::List { step, keys })
            }
            (None, Some(path), None) => {
                Ok(Source::File { step, path: self.inside(path, at, "source.file")? })
            }
            (None, None, Some(pages)) => {
                let plain = !pages.url.has_holes() && url::Url::parse(pages.url.as_str()).is_ok();
                self.check(
                    plain,
                    at,
                    "source.pages.url",
                    "an absolute URL without holes; secrets go into headers",
                )?;
                Ok(Source::Pages { step, pages })
            }
            _ => Err(self.bad(at, "source", "has one of list, file and pages")),
        }
    }

    fn steps(
        &self,
        raw: BTreeMap<String, Spanned<Step>>,
        sinks: &BTreeMap<String, Sink>,
    ) -> Result<BTreeMap<String, Step>, BadPlan> {
        let mut steps = BTreeMap::new();
        for (name, step) in raw {
            let at = step.span().start;
            let field = format!("step.{name}");
            self.check(
                name != PAGES && is_name(&name),
                at,
                &field,
                "another name, of letters, digits, '_' and '-'",
            )?;
            let step = step.into_inner();
            self.check(step.get.is_none() || step.post.is_none(), at, &field, "either get or post")?;
            self.check(step.body.is_none() || step.post.is_some(), at, &field, "a body is for post")?;
            for follow in &step.follow {
                self.known_step(&follow.step, &format!("{field}.follow.step"))?;
            }
            if let Some(sink) = &step.sink {
                let known = sinks.contains_key(sink.get_ref());
                let reason = format!("there is no [sink.{}]", sink.get_ref());
                self.check(known, sink.span().start, &format!("{field}.sink"), reason)?;
                if let Some(Sink::Table { key, .. }) = sinks.get(sink.get_ref()) {
                    let names = step.extract.keys().all(|name| is_identifier(name));
                    let whole = names && key.iter().all(|name| step.extract.contains_key(name));
                    let reason = "a table needs members with SQL names, its key among them";
                    self.check(whole, at, &format!("{field}.extract"), reason)?;
                }
            }
            let url = step.get.as_ref().or(step.post.as_ref());
            let absolute =
                url.is_none_or(|url| ["http://", "https://"].iter().any(|s| url.as_str().starts_with(s)));
            self.check(absolute, at, &field, "a URL begins with http:// or https://")?;
            steps.insert(name, step);
        }
        Ok(steps)
    }

    fn sinks(&self, raw: BTreeMap<String, Spanned<RawSink>>) -> Result<BTreeMap<String, Sink>, BadPlan> {
        let mut sinks = BTreeMap::new();
        for (name, sink) in raw {
            let at = sink.span().start;
            let field = format!("sink.{name}");
            self.check(is_name(&name), at, &field, "a name of letters, digits, '_' and '-'")?;
            let sink = sink.into_inner();
            let read = match (sink.jsonl, sink.table, sink.sqlite, sink.postgres) {
                (Some(path), None, None, None) => Sink::Lines { path: self.inside(path, at, &field)? },
                (None, Some(table), sqlite, postgres) => {
                    let names = sink.key.iter().chain([&table]).all(|name| is_identifier(name));
                    let reason = "table and key are SQL names, and there is a key";
                    self.check(names && !sink.key.is_empty(), at, &field, reason)?;
                    let database = match (sqlite, postgres) {
                        (Some(path), None) => Database::Sqlite(self.inside(path, at, &field)?),
                        (None, Some(secret)) => Database::Secret(secret),
                        _ => return Err(self.bad(at, &field, "a table is in one of sqlite and postgres")),
                    };
                    Sink::Table { database, table, key: sink.key }
                }
                _ => return Err(self.bad(at, &field, "has either jsonl, or table with sqlite or postgres")),
            };
            sinks.insert(name, read);
        }
        Ok(sinks)
    }

    fn known_step(&self, step: &Spanned<String>, field: &str) -> Result<(), BadPlan> {
        let known = self.steps.iter().any(|name| name == step.get_ref());
        self.check(known, step.span().start, field, format!("there is no [step.{}]", step.get_ref()))
    }

    /// Paths stay in the folder that pipelines were given.
    fn inside(&self, path: PathBuf, at: usize, field: &str) -> Result<PathBuf, BadPlan> {
        let stays = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        self.check(stays && path.file_name().is_some(), at, field, "a relative path without ..")?;
        Ok(path)
    }

    fn check(&self, fits: bool, at: usize, field: &str, reason: impl ToString) -> Result<(), BadPlan> {
        if fits { Ok(()) } else { Err(self.bad(at, field, reason)) }
    }

    fn bad(&self, at: usize, field: &str, reason: impl ToString) -> BadPlan {
        BadPlan::at(self.text, at, field.to_owned(), reason)
    }
}

impl BadPlan {
    #[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
    fn at(text: &str, offset: usize, field: String, reason: impl ToString) -> Self {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Self { line, field, reason: reason.to_string() }
    }
}

/// The field in whose line something is wrong, with its table.
fn field_at(text: &str, offset: usize) -> String {
    let until = text[offset.min(text.len())..].find('\n').map_or(text.len(), |end| offset + end);
    let mut table = String::new();
    let mut field = String::new();
    for line in text[..until].lines() {
        let line = line.trim();
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']']).to_owned();
            field.clear();
        } else if let Some((name, _)) = line.split_once('=') {
            name.trim().clone_into(&mut field);
        }
    }
    match (table.as_str(), field.as_str()) {
        ("", "") => "plan".to_owned(),
        ("", field) => field.to_owned(),
        (table, "") => table.to_owned(),
        (table, field) => format!("{table}.{field}"),
    }
}

pub(crate) fn is_key(key: &str) -> bool {
    (1..=512).contains(&key.len()) && !key.chars().any(char::is_control)
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

pub(crate) fn is_identifier(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=63).contains(&name.len()) && name.bytes().all(allowed) && !name.as_bytes()[0].is_ascii_digit()
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

fn default_http() -> Spanned<Http> {
    Spanned::new(0..0, Http::default())
}

impl Default for Http {
    fn default() -> Self {
        Self { per_host: 4, timeout: Period::from_secs(30), max_body_kib: 4096 }
    }
}

impl PlanName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PlanName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(allowed);
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err("a plan's name has 1 to 64 letters, digits, '.', '_' or '-'")
        }
    }
}

impl fmt::Display for PlanName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PlanName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        JsonPath::parse(&String::deserialize(deserializer)?).map(Path).map_err(de::Error::custom)
    }
}

hob_records::column!(PlanName as text);

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
        assert_eq!((plan.calls_of("docket"), plan.calls_of("entry"), plan.calls_of(PAGES)), (1, 0, 1));
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
    }
}
