//! Guesses the narrowest shape that all sampled values fit, as the text of a schema file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hob_schema::check::Sample;
use hob_schema::{KeyType, LAST_UNIX_MS, is_iso8601, is_rfc3339, snake};
use serde_json::Value as Json;

use super::PatternStats;

/// If a hash has more fields than this, their names are treated as ids.
const MAX_FIELDS: usize = 32;

/// Guesses shapes and collects those of JSON objects.
#[derive(Default)]
pub(super) struct ShapeGuesser {
    shapes: Vec<(String, Vec<String>)>,
}

impl ShapeGuesser {
    /// Writes the line that declares the content of a family.
    pub(super) fn content(&mut self, family: &str, kind: KeyType, stats: &PatternStats, out: &mut String) {
        let mut values: Vec<&[u8]> = Vec::new();
        let mut scores = Vec::new();
        for sample in &stats.samples {
            match sample {
                Sample::Text(value) if kind == KeyType::String => values.push(value),
                Sample::Items(items) if matches!(kind, KeyType::List | KeyType::Set) => {
                    values.extend(items.iter().map(Vec::as_slice));
                }
                Sample::Scored(members) if kind == KeyType::Zset => {
                    values.extend(members.iter().map(|(member, _)| member.as_slice()));
                    scores.extend(members.iter().map(|(_, score)| *score));
                }
                _ => {}
            }
        }
        let value = self.value(family, &values);
        let _ = match kind {
            KeyType::String => writeln!(out, "value    = {value}"),
            KeyType::List => writeln!(out, "item     = {value}"),
            KeyType::Set => writeln!(out, "member   = {value}"),
            KeyType::Zset => writeln!(out, "member   = {value}\nscore    = {}", score(&scores)),
            KeyType::Hash => writeln!(out, "fields   = {}", self.fields(family, stats)),
        };
    }

    fn fields(&mut self, family: &str, stats: &PatternStats) -> String {
        let mut fields: BTreeMap<String, Vec<&[u8]>> = BTreeMap::new();
        let mut hashes = 0;
        for sample in &stats.samples {
            let Sample::Hash { fields: found, .. } = sample else {
                continue;
            };
            hashes += 1;
            for (name, value) in found {
                fields.entry(String::from_utf8_lossy(name).into_owned()).or_default().push(value);
            }
        }
        let plain = |name: &String| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        };
        if fields.is_empty() || fields.len() > MAX_FIELDS || !fields.keys().all(plain) {
            let all: Vec<&[u8]> = fields.into_values().flatten().collect();
            return format!("{{ \"*\" = {} }}", self.value(family, &all));
        }
        let mut words = Vec::new();
        for (name, values) in &fields {
            let value = self.value(&format!("{family}_{}", snake(name)), values);
            let optional = values.len() < hashes;
            let value = match value.strip_suffix('"') {
                Some(word) if optional => format!("{word}?\""),
                Some(_) => value,
                None if optional => value.replace(" }", ", optional = true }"),
                None => value,
            };
            words.push(format!("{name} = {value}"));
        }
        format!("{{ {} }}", words.join(", "))
    }

    /// The narrowest shape that all values fit.
    fn value(&mut self, family: &str, values: &[&[u8]]) -> String {
        let texts: Option<Vec<&str>> = values.iter().map(|value| std::str::from_utf8(value).ok()).collect();
        let Some(texts) = texts.filter(|texts| !texts.is_empty()) else {
            return "\"any\"".to_owned();
        };
        let all = |fits: &dyn Fn(&str) -> bool| texts.iter().all(|text| fits(text));
        let int = |text: &str| text.parse::<i64>().ok();
        if all(&|text| matches!(text, "true" | "false")) {
            return "{ enum = [\"true\", \"false\"] }".to_owned();
        }
        if all(&|text| int(text).is_some_and(is_unix_ms)) {
            return "\"unix_ms\"".to_owned();
        }
        if all(&|text| int(text).is_some_and(|n| (1_000_000_000..9_999_999_999).contains(&n))) {
            return "\"unix_s\"".to_owned();
        }
        if all(&|text| int(text).is_some()) {
            return "\"int\"".to_owned();
        }
        if all(&|text| text.parse::<f64>().is_ok_and(f64::is_finite)) {
            return "\"float\"".to_owned();
        }
        if all(&is_rfc3339) {
            return "\"rfc3339\"".to_owned();
        }
        if all(&is_iso8601) {
            return "\"iso8601\"".to_owned();
        }
        let objects: Option<Vec<Json>> =
            texts.iter().map(|text| serde_json::from_str(text).ok().filter(Json::is_object)).collect();
        let longest = texts.iter().map(|text| text.len() as u64).max().unwrap_or(1);
        let max = (longest * 2).next_power_of_two().max(64);
        match objects {
            Some(objects) => {
                self.shapes.push((family.to_owned(), members(&objects)));
                format!("{{ json = \"{family}\", max_bytes = {max} }}")
            }
            None if all(&|text| text.starts_with('[') && serde_json::from_str::<Json>(text).is_ok()) => {
                format!("{{ json = [\"any\"], max_bytes = {max} }}")
            }
            None => format!("{{ text = {max} }}"),
        }
    }

    /// Writes a `[shape]` for every kind of JSON object in the sample.
    pub(super) fn shapes(&self, out: &mut String) {
        for (name, members) in &self.shapes {
            let _ = writeln!(out, "[shape.{name}]");
            for member in members {
                let _ = writeln!(out, "{member}");
            }
            out.push('\n');
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
}

fn score(scores: &[f64]) -> &'static str {
    let all =
        |low: f64, high: f64| !scores.is_empty() && scores.iter().all(|score| (low..high).contains(score));
    if all(1e9, 1e10) {
        "\"unix_s\""
    } else if all(1e12, 1e13) {
        "\"unix_ms\""
    } else {
        "\"float\""
    }
}

pub(super) fn toml_text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// The members of sampled JSON objects, each as a line of a `[shape]`.
fn members(objects: &[Json]) -> Vec<String> {
    let mut members: BTreeMap<&str, Vec<&Json>> = BTreeMap::new();
    for (name, value) in objects.iter().filter_map(Json::as_object).flatten() {
        members.entry(name).or_default().push(value);
    }
    let line = |(name, values): (&str, Vec<&Json>)| {
        let optional = if values.len() < objects.len() { "?" } else { "" };
        let form = json_form(&values);
        let form = match form.strip_prefix('[') {
            Some(_) if optional.is_empty() => form,
            Some(_) => "{ list = \"string\", optional = true }".to_owned(),
            None => format!("\"{form}{optional}\""),
        };
        let bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let name = if bare { name.to_owned() } else { toml_text(name) };
        format!("{name} = {form}")
    };
    members.into_iter().map(line).collect()
}

fn json_form(values: &[&Json]) -> String {
    let all = |fits: &dyn Fn(&Json) -> bool| values.iter().all(|value| fits(value));
    let time = |value: &Json| value.as_str().is_some_and(is_rfc3339);
    let millis = |value: &Json| value.as_i64().is_some_and(is_unix_ms);
    let word = if all(&time) {
        "rfc3339"
    } else if all(&Json::is_string) {
        "string"
    } else if all(&millis) {
        "unix_ms"
    } else if all(&|value| value.is_i64() || value.is_u64()) {
        "int"
    } else if all(&Json::is_number) {
        "number"
    } else if all(&Json::is_boolean) {
        "bool"
    } else if all(&|value| value.as_array().is_some_and(|items| items.iter().all(Json::is_string))) {
        "[\"string\"]"
    } else {
        "any"
    };
    word.to_owned()
}

/// Between 2001 and 2286.
fn is_unix_ms(number: i64) -> bool {
    u64::try_from(number).is_ok_and(|number| (1_000_000_000_000..=LAST_UNIX_MS).contains(&number))
}
