//! Parses a plan from TOML, then validates it.

use std::collections::BTreeMap;
use std::path::{Component, PathBuf};

use hob_service::config::SecretName;
use serde::Deserialize;
use toml::Spanned;

use super::error::{PlanError, field_at};
use super::name::{is_identifier, is_item_key, is_name};
use super::{Http, PAGES_STEP, Pages, Plan, PlanName, Sink, SinkDatabase, Source, Step};
use crate::plan::output_path::OutputPath;
use crate::plan::retry::RetryPolicy;
use crate::quota::{Limits, QuotaName};
use crate::sink::ColumnType;

const MAX_STEPS: usize = 50;
const MAX_LISTED_KEYS: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlan {
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
    retry: RetryPolicy,
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
    jsonl: Option<String>,
    table: Option<String>,
    sqlite: Option<PathBuf>,
    postgres: Option<SecretName>,
    #[serde(default)]
    key: Vec<String>,
    #[serde(default)]
    types: BTreeMap<String, ColumnType>,
}

pub(super) fn plan(text: &str) -> Result<Plan, PlanError> {
    let raw: RawPlan = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        PlanError::at(text, start, field_at(text, start), error.message())
    })?;
    Validator { text, steps: raw.step.keys().cloned().collect() }.plan(raw)
}

/// Validates ranges, and references between the parts of a plan.
struct Validator<'a> {
    text: &'a str,
    steps: Vec<String>,
}

impl Validator<'_> {
    fn plan(&self, raw: RawPlan) -> Result<Plan, PlanError> {
        let weight_at = raw.weight.span().start;
        let weight = raw.weight.into_inner();
        self.check((1..=1000).contains(&weight), weight_at, "weight", "must be between 1 and 1000")?;
        let (quota, limits) = self.quota(raw.quota)?;
        self.check(self.steps.len() <= MAX_STEPS, 0, "step", "a plan has at most 50 steps")?;
        let sink_lines: BTreeMap<String, usize> =
            raw.sink.iter().map(|(name, sink)| (name.clone(), sink.span().start)).collect();
        let sinks = self.sinks(raw.sink)?;
        let steps = self.steps(raw.step, &sinks)?;
        let http_at = raw.http.span().start;
        let http = raw.http.into_inner();
        let http_fits = (1..=64).contains(&http.per_host)
            && (1..=64 * 1024).contains(&http.max_body_kib)
            && (1..=600_000).contains(&http.timeout.as_millis());
        let bounds = "per_host must be 1 to 64, timeout 1ms to 10m, max_body_kib 1 to 65536";
        self.check(http_fits, http_at, "http", bounds)?;
        let source = self.source(raw.source)?;
        let text = self.text.to_owned();
        let (name, retry) = (raw.name, raw.retry);
        let plan = Plan { name, weight, quota, limits, source, steps, sinks, retry, http, text };
        for (name, at) in sink_lines {
            let Some(Sink::Table { types, .. }) = plan.sinks.get(&name) else { continue };
            let columns = plan.columns_of(&name);
            let unknown = types.keys().find(|column| !columns.contains(column));
            let reason = unknown.map(|column| format!("no step extracts {column:?} for this sink"));
            let field = format!("sink.{name}.types");
            self.check(unknown.is_none(), at, &field, reason.unwrap_or_default())?;
        }
        Ok(plan)
    }

    fn quota(&self, raw: Spanned<RawQuota>) -> Result<(QuotaName, Option<Limits>), PlanError> {
        let at = raw.span().start;
        let raw = raw.into_inner();
        let name = raw.name.parse().map_err(|error| self.error(at, "quota.name", error))?;
        let limits = raw.windows.map(|windows| Limits::parse(&windows, raw.buffer)).transpose();
        Ok((name, limits.map_err(|error| self.error(at, "quota", error))?))
    }

    fn source(&self, raw: Spanned<RawSource>) -> Result<Source, PlanError> {
        let at = raw.span().start;
        let raw = raw.into_inner();
        self.check_step(&raw.step, "source.step")?;
        let step = raw.step.into_inner();
        match (raw.list, raw.file, raw.pages) {
            (Some(keys), None, None) => {
                let fits = keys.len() <= MAX_LISTED_KEYS && keys.iter().all(|key| is_item_key(key));
                self.check(
                    fits,
                    at,
                    "source.list",
                    "must have at most 10000 keys of 1 to 512 bytes; use a file for more",
                )?;
                Ok(Source::List { step, keys })
            }
            (None, Some(path), None) => {
                Ok(Source::File { step, path: self.relative_path(path, at, "source.file")? })
            }
            (None, None, Some(pages)) => {
                let plain = pages.url.fixed().is_some_and(|url| url::Url::parse(url).is_ok());
                self.check(
                    plain,
                    at,
                    "source.pages.url",
                    "must be an absolute URL without variables; put secrets into headers",
                )?;
                Ok(Source::Pages { step, pages })
            }
            _ => Err(self.error(at, "source", "needs exactly one of list, file and pages")),
        }
    }

    fn steps(
        &self,
        raw: BTreeMap<String, Spanned<Step>>,
        sinks: &BTreeMap<String, Sink>,
    ) -> Result<BTreeMap<String, Step>, PlanError> {
        let mut steps = BTreeMap::new();
        for (name, step) in raw {
            let at = step.span().start;
            let field = format!("step.{name}");
            self.check(
                name != PAGES_STEP && is_name(&name),
                at,
                &field,
                "a step name has letters, digits, '_' and '-', and is not \"pages\"",
            )?;
            let step = step.into_inner();
            self.check(step.get.is_none() || step.post.is_none(), at, &field, "use either get or post")?;
            self.check(step.body.is_none() || step.post.is_some(), at, &field, "body requires post")?;
            for follow in &step.follow {
                self.check_step(&follow.step, &format!("{field}.follow.step"))?;
            }
            if let Some(sink) = &step.sink {
                let known = sinks.contains_key(sink.get_ref());
                let reason = format!("there is no [sink.{}]", sink.get_ref());
                self.check(known, sink.span().start, &format!("{field}.sink"), reason)?;
                if let Some(Sink::Table { key, .. }) = sinks.get(sink.get_ref()) {
                    let names = step.extract.keys().all(|name| is_identifier(name));
                    let whole = names && key.iter().all(|name| step.extract.contains_key(name));
                    let reason = "a table needs members with SQL names, including its key";
                    self.check(whole, at, &format!("{field}.extract"), reason)?;
                }
            }
            let url = step.get.as_ref().or(step.post.as_ref());
            let absolute =
                url.is_none_or(|url| ["http://", "https://"].iter().any(|s| url.beginning().starts_with(s)));
            self.check(absolute, at, &field, "a URL must start with http:// or https://")?;
            steps.insert(name, step);
        }
        Ok(steps)
    }

    fn sinks(&self, raw: BTreeMap<String, Spanned<RawSink>>) -> Result<BTreeMap<String, Sink>, PlanError> {
        let mut sinks = BTreeMap::new();
        for (name, sink) in raw {
            let at = sink.span().start;
            let field = format!("sink.{name}");
            self.check(is_name(&name), at, &field, "a sink name has letters, digits, '_' and '-'")?;
            let sink = sink.into_inner();
            let read = match (sink.jsonl, sink.table, sink.sqlite, sink.postgres) {
                (Some(path), None, None, None) => {
                    let path = self.relative_path(path.into(), at, &field)?;
                    let named = path.components().filter(|part| *part != Component::CurDir);
                    let path: PathBuf = named.collect();
                    let path = path.to_string_lossy().parse::<OutputPath>();
                    let path = path.map_err(|error| self.error(at, &field, error))?;
                    let same =
                        |other: &Sink| matches!(other, Sink::JsonLines { path: other } if *other == path);
                    let reason = "another sink writes this file";
                    self.check(!sinks.values().any(same), at, &field, reason)?;
                    Sink::JsonLines { path }
                }
                (None, Some(table), sqlite, postgres) => {
                    let names = sink.key.iter().chain([&table]).all(|name| is_identifier(name));
                    let reason = "table and key must be SQL names, and key must not be empty";
                    self.check(names && !sink.key.is_empty(), at, &field, reason)?;
                    let database = match (sqlite, postgres) {
                        (Some(path), None) => SinkDatabase::Sqlite(self.relative_path(path, at, &field)?),
                        (None, Some(secret)) => SinkDatabase::Postgres(secret),
                        _ => {
                            return Err(self.error(
                                at,
                                &field,
                                "a table needs exactly one of sqlite and postgres",
                            ));
                        }
                    };
                    Sink::Table { database, table, key: sink.key, types: sink.types }
                }
                _ => {
                    return Err(self.error(
                        at,
                        &field,
                        "needs either jsonl, or table with sqlite or postgres",
                    ));
                }
            };
            sinks.insert(name, read);
        }
        Ok(sinks)
    }

    fn check_step(&self, step: &Spanned<String>, field: &str) -> Result<(), PlanError> {
        let known = self.steps.iter().any(|name| name == step.get_ref());
        self.check(known, step.span().start, field, format!("there is no [step.{}]", step.get_ref()))
    }

    /// Paths must stay inside the folder of pipelines.
    fn relative_path(&self, path: PathBuf, at: usize, field: &str) -> Result<PathBuf, PlanError> {
        let stays = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        self.check(stays && path.file_name().is_some(), at, field, "must be a relative path without ..")?;
        Ok(path)
    }

    fn check(&self, fits: bool, at: usize, field: &str, reason: impl ToString) -> Result<(), PlanError> {
        if fits { Ok(()) } else { Err(self.error(at, field, reason)) }
    }

    fn error(&self, at: usize, field: &str, reason: impl ToString) -> PlanError {
        PlanError::at(self.text, at, field.to_owned(), reason)
    }
}

fn one() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

fn default_http() -> Spanned<Http> {
    Spanned::new(0..0, Http::default())
}
