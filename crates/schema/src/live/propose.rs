//! From what a sample showed to the text of a schema file, ready to edit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value as Json;

use super::guess::{Step, segments};
use super::infer::{InferOptions, Seen};
use crate::check::Sample;
use crate::model::{Kind, Schema};
use crate::read::snake;
use crate::shape::Value;
use crate::units::{format_count, format_duration};

/// TTLs that people choose.
const USUAL_TTLS_S: [u64; 18] = [
    1, 5, 10, 30, 60, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 90_000, 172_800, 604_800,
    2_592_000,
];
/// Fields beyond this are taken for ids.
const MOST_FIELDS: usize = 32;

/// The text of the proposed file.
pub(super) fn propose(
    options: &InferOptions,
    patterns: Vec<(Vec<Step>, Seen)>,
    sampled: u64,
    existing: u64,
) -> String {
    let mut patterns: Vec<(Vec<Step>, Seen)> = patterns
        .into_iter()
        .filter(|(_, seen)| !seen.kinds.is_empty())
        .collect();
    patterns.sort_by(|left, right| left.0.cmp(&right.0));
    let prefix = common_prefix(&patterns);
    let mut proposal = Proposal {
        scale: (existing as f64 / sampled.max(1) as f64).max(1.0),
        ..Proposal::default()
    };
    proposal.name_ids(&patterns);
    let mut body = String::new();
    for (index, (steps, seen)) in patterns.iter().enumerate() {
        proposal.family(index, steps, seen, prefix.as_deref(), &mut body);
    }
    let mut text = format!(
        "# Proposed from {} of {} keys. Read it, correct it, say what each family is for, and audit with it.\n\n",
        format_count(sampled),
        format_count(existing)
    );
    let name = snake(&options.name).replace(|char: char| !char.is_ascii_alphanumeric(), "_");
    let prefix = prefix
        .map(|prefix| format!("prefix  = \"{prefix}:\"\n"))
        .unwrap_or_default();
    let _ = write!(text, "[schema]\nname    = \"{name}\"\nversion = 1\n{prefix}\n");
    proposal.ids(&mut text);
    text += &body;
    proposal.shapes(&mut text);
    if let Err(mistakes) = Schema::parse("proposal", &text) {
        let remarks: String = mistakes
            .0
            .iter()
            .map(|mistake| format!("# {}\n", mistake.what))
            .collect();
        text = format!("# To be settled by hand:\n{remarks}\n{text}");
    }
    text
}

/// The first word of all patterns, if they share one.
fn common_prefix(patterns: &[(Vec<Step>, Seen)]) -> Option<String> {
    let Step::Word(first) = patterns.first()?.0.first()? else {
        return None;
    };
    let shared = patterns
        .iter()
        .all(|(steps, _)| steps.len() > 1 && steps[0] == Step::Word(first.clone()));
    (shared && patterns.len() > 1).then(|| first.clone())
}

#[derive(Default)]
struct Proposal {
    /// Existing keys for each sampled one.
    scale: f64,
    ids: BTreeMap<String, IdSeen>,
    /// The names of the ids of each pattern, by position.
    names: Vec<BTreeMap<usize, String>>,
    families: BTreeSet<String>,
    shapes: Vec<(String, Vec<String>)>,
}

/// What stood in a placeholder.
#[derive(Default)]
struct IdSeen {
    values: BTreeSet<String>,
    not: BTreeSet<String>,
}

impl Proposal {
    fn name_ids(&mut self, patterns: &[(Vec<Step>, Seen)]) {
        for (steps, seen) in patterns {
            let mut names = BTreeMap::new();
            for (position, step) in steps.iter().enumerate() {
                if matches!(step, Step::Word(_)) {
                    continue;
                }
                let base = id_name(&steps[..position]);
                let mut name = base.clone();
                let mut number = 2;
                while names.values().any(|taken| *taken == name) {
                    name = format!("{base}_{number}");
                    number += 1;
                }
                let id = self.ids.entry(name.clone()).or_default();
                for example in &seen.examples {
                    let segment = segments(example).get(position).copied().unwrap_or_default();
                    id.values.insert(segment.trim_matches(['{', '}']).to_owned());
                }
                // Words that other patterns have in this very place.
                id.not.extend(
                    patterns
                        .iter()
                        .filter_map(|(other, _)| match other.get(position) {
                            Some(Step::Word(word)) if other[..position] == steps[..position] => {
                                Some(word.clone())
                            }
                            _ => None,
                        }),
                );
                names.insert(position, name);
            }
            self.names.push(names);
        }
    }

    fn ids(&self, out: &mut String) {
        if self.ids.is_empty() {
            return;
        }
        let _ = writeln!(out, "[ids]");
        for (name, id) in &self.ids {
            let int = |value: &String| {
                value
                    .parse::<u64>()
                    .is_ok_and(|number| number.to_string() == *value)
            };
            let example = id
                .values
                .iter()
                .find(|value| !id.not.contains(*value))
                .cloned()
                .unwrap_or_default();
            let mut words = Vec::new();
            if id.values.iter().all(int) {
                words.push("form = \"int\"".to_owned());
            } else {
                let longest = id.values.iter().map(String::len).max().unwrap_or(1);
                words.push(format!(
                    "max = {}",
                    (longest * 2).next_power_of_two().clamp(16, 1_024)
                ));
                let raw: String = [':', '/', ' ']
                    .into_iter()
                    .filter(|char| id.values.iter().any(|value| value.contains(*char)))
                    .collect();
                if !raw.is_empty() {
                    words.push(format!("raw = \"{raw}\""));
                }
                if !id.not.is_empty() {
                    words.push(format!("not = {:?}", id.not.iter().collect::<Vec<_>>()));
                }
            }
            words.extend((!example.is_empty()).then(|| format!("example = {}", toml_text(&example))));
            let _ = writeln!(out, "{name} = {{ {} }}", words.join(", "));
        }
        out.push('\n');
    }

    fn family(&mut self, index: usize, steps: &[Step], seen: &Seen, prefix: Option<&str>, out: &mut String) {
        let skip = usize::from(prefix.is_some());
        let spelled = |(position, step): (usize, &Step)| match step {
            Step::Word(word) => word.clone(),
            Step::Id => format!("<{}>", self.names[index][&position]),
            Step::TaggedId => format!("{{<{}>}}", self.names[index][&position]),
        };
        let pattern = steps
            .iter()
            .enumerate()
            .skip(skip)
            .map(spelled)
            .collect::<Vec<_>>()
            .join(":");
        let name = self.family_name(&steps[skip..]);
        let kind = seen.kinds[0];
        let _ = writeln!(out, "[key.{name}]");
        if let [_, others @ ..] = seen.kinds.as_slice()
            && !others.is_empty()
        {
            let others: Vec<&str> = others.iter().map(|kind| kind.name()).collect();
            let _ = writeln!(out, "# also seen: {}", others.join(", "));
        }
        let _ = writeln!(
            out,
            "pattern  = {}\ntype     = \"{}\"",
            toml_text(&pattern),
            kind.name()
        );
        self.content(&name, kind, seen, out);
        if kind != Kind::String {
            let _ = writeln!(out, "max_len  = {}", round_up(seen.longest * 2));
        }
        if self.names[index].is_empty() {
            let _ = writeln!(out, "ttl      = {}", ttl(seen));
        } else {
            let keys = seen.keys as f64 * self.scale * 2.0;
            let _ = writeln!(
                out,
                "max_keys = {}\nttl      = {}",
                round_up(keys as u64),
                ttl(seen)
            );
        }
        let _ = writeln!(out, "purpose  = \"\"\n");
    }

    fn family_name(&mut self, steps: &[Step]) -> String {
        let words: Vec<String> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Word(word) => {
                    Some(snake(word).replace(|char: char| !char.is_ascii_alphanumeric(), "_"))
                }
                Step::Id | Step::TaggedId => None,
            })
            .collect();
        let joined = words.join("_");
        let base = match joined.trim_matches('_') {
            "" => "keys".to_owned(),
            name if name.starts_with(|char: char| char.is_ascii_digit()) => format!("k{name}"),
            name => name.chars().take(50).collect(),
        };
        let mut name = base.clone();
        let mut number = 2;
        while !self.families.insert(name.clone()) {
            name = format!("{base}_{number}");
            number += 1;
        }
        name
    }

    fn content(&mut self, family: &str, kind: Kind, seen: &Seen, out: &mut String) {
        let mut values: Vec<&[u8]> = Vec::new();
        let mut scores = Vec::new();
        for sample in &seen.samples {
            match sample {
                Sample::Text(value) if kind == Kind::String => values.push(value),
                Sample::Items(items) if matches!(kind, Kind::List | Kind::Set) => {
                    values.extend(items.iter().map(Vec::as_slice));
                }
                Sample::Scored(members) if kind == Kind::Zset => {
                    values.extend(members.iter().map(|(member, _)| member.as_slice()));
                    scores.extend(members.iter().map(|(_, score)| *score));
                }
                _ => {}
            }
        }
        let value = self.value(family, &values);
        let _ = match kind {
            Kind::String => writeln!(out, "value    = {value}"),
            Kind::List => writeln!(out, "item     = {value}"),
            Kind::Set => writeln!(out, "member   = {value}"),
            Kind::Zset => writeln!(out, "member   = {value}\nscore    = {}", score(&scores)),
            Kind::Hash => writeln!(out, "fields   = {}", self.fields(family, seen)),
        };
    }

    fn fields(&mut self, family: &str, seen: &Seen) -> String {
        let mut fields: BTreeMap<String, Vec<&[u8]>> = BTreeMap::new();
        let mut hashes = 0;
        for sample in &seen.samples {
            let Sample::Hash { fields: found, .. } = sample else {
                continue;
            };
            hashes += 1;
            for (name, value) in found {
                fields
                    .entry(String::from_utf8_lossy(name).into_owned())
                    .or_default()
                    .push(value);
            }
        }
        let plain = |name: &String| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        };
        if fields.is_empty() || fields.len() > MOST_FIELDS || !fields.keys().all(plain) {
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
        let texts: Option<Vec<&str>> = values
            .iter()
            .map(|value| std::str::from_utf8(value).ok())
            .collect();
        let Some(texts) = texts.filter(|texts| !texts.is_empty()) else {
            return "\"any\"".to_owned();
        };
        let all = |fits: &dyn Fn(&str) -> bool| texts.iter().all(|text| fits(text));
        let int = |text: &str| text.parse::<i64>().ok();
        if all(&|text| matches!(text, "true" | "false")) {
            return "{ enum = [\"true\", \"false\"] }".to_owned();
        }
        if all(&|text| int(text).is_some_and(|n| (1_000_000_000_000..9_999_999_999_999).contains(&n))) {
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
        for (word, time) in [("rfc3339", Value::Rfc3339), ("iso8601", Value::Iso8601)] {
            if all(&|text| time.fits_time(text)) {
                return format!("\"{word}\"");
            }
        }
        let objects: Option<Vec<Json>> = texts
            .iter()
            .map(|text| serde_json::from_str(text).ok().filter(Json::is_object))
            .collect();
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

    fn shapes(&self, out: &mut String) {
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

fn id_name(before: &[Step]) -> String {
    let word = before.iter().rev().find_map(|step| match step {
        Step::Word(word) => Some(snake(word)),
        Step::Id | Step::TaggedId => None,
    });
    let word = word
        .unwrap_or_default()
        .replace(|char: char| !char.is_ascii_alphanumeric(), "_");
    match singular(word.trim_matches('_')) {
        "" => "id".to_owned(),
        word if word.starts_with(|char: char| char.is_ascii_digit()) => format!("id_{word}"),
        word => format!("{}_id", word.chars().take(40).collect::<String>()),
    }
}

fn singular(word: &str) -> &str {
    if word.ends_with("us") || word.ends_with("ss") {
        word
    } else {
        word.strip_suffix('s').unwrap_or(word)
    }
}

fn ttl(seen: &Seen) -> String {
    if seen.expiring == 0 {
        return "{ none = \"no key of the sample expires: why?\" }".to_owned();
    }
    let seconds = seen.longest_ttl_ms.div_ceil(1_000).max(1);
    let usual = USUAL_TTLS_S.into_iter().find(|usual| *usual >= seconds);
    let longest = format_duration(Duration::from_secs(
        usual.unwrap_or(seconds.next_multiple_of(86_400)),
    ));
    if seen.expiring == seen.keys {
        return format!("{{ max = \"{longest}\" }}");
    }
    format!("{{ late = \"{longest}\", why = \"some keys of the sample do not expire: why?\" }}")
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

/// 1, 2 or 5 with zeros, at least the number.
fn round_up(number: u64) -> u64 {
    let mut ten = 1;
    while ten < 1_000_000_000_000 {
        if let Some(round) = [1, 2, 5]
            .into_iter()
            .map(|digit| digit * ten)
            .find(|round| *round >= number.max(10))
        {
            return round;
        }
        ten *= 10;
    }
    number
}

fn toml_text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// The members of JSON objects that were seen, each as a line of a `[shape]`.
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
        let bare = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let name = if bare { name.to_owned() } else { toml_text(name) };
        format!("{name} = {form}")
    };
    members.into_iter().map(line).collect()
}

fn json_form(values: &[&Json]) -> String {
    let all = |fits: &dyn Fn(&Json) -> bool| values.iter().all(|value| fits(value));
    let time = |value: &Json| value.as_str().is_some_and(|text| Value::Rfc3339.fits_time(text));
    let millis = |value: &Json| {
        value
            .as_u64()
            .is_some_and(|n| (1_000_000_000_000..9_999_999_999_999).contains(&n))
    };
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
    } else if all(&|value| {
        value
            .as_array()
            .is_some_and(|items| items.iter().all(Json::is_string))
    }) {
        "[\"string\"]"
    } else {
        "any"
    };
    word.to_owned()
}
