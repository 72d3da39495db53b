//! Writes the statistics of a sample as the text of a schema file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use hob_schema::{KeyType, Schema, format_count, format_duration, snake};

use super::shapes::{ShapeGuesser, toml_text};
use super::{InferOptions, PatternStats};
use crate::patterns::{MAX_SEGMENTS, Step, segments};

/// TTLs that are commonly chosen.
const USUAL_TTLS_S: [u64; 18] = [
    1, 5, 10, 30, 60, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 90_000, 172_800, 604_800,
    2_592_000,
];

/// The text of the proposed file.
pub(super) fn propose(
    options: &InferOptions,
    patterns: Vec<(Vec<Step>, PatternStats)>,
    sampled: u64,
    existing: u64,
) -> String {
    let mut patterns: Vec<(Vec<Step>, PatternStats)> =
        patterns.into_iter().filter(|(_, stats)| !stats.kinds.is_empty()).collect();
    patterns.sort_by(|left, right| left.0.cmp(&right.0));
    let prefix = common_prefix(&patterns);
    let mut proposal =
        Proposal { scale: (existing as f64 / sampled.max(1) as f64).max(1.0), ..Proposal::default() };
    proposal.name_ids(&patterns);
    let mut body = String::new();
    for (index, (steps, stats)) in patterns.iter().enumerate() {
        proposal.family(index, steps, stats, prefix.as_deref(), &mut body);
    }
    let mut text = format!(
        "# Proposed from {} of {} keys. Review it, correct it, add the purpose of each family, then audit with it.\n\n",
        format_count(sampled),
        format_count(existing)
    );
    let name = schema_name(&options.name);
    let prefix = prefix.map(|prefix| format!("prefix  = \"{prefix}:\"\n")).unwrap_or_default();
    let _ = write!(text, "[schema]\nname    = \"{name}\"\nversion = 1\n{prefix}\n");
    proposal.ids(&mut text);
    text += &body;
    proposal.shapes.shapes(&mut text);
    if let Err(errors) = Schema::parse("proposal", &text) {
        let remarks: String = errors.0.iter().map(|error| format!("# {}\n", error.message)).collect();
        text = format!("# To fix by hand:\n{remarks}\n{text}");
    }
    text
}

fn schema_name(name: &str) -> String {
    let name = snake(name).replace(|char: char| !char.is_ascii_alphanumeric(), "_");
    let letters = if name.starts_with(|char: char| char.is_ascii_alphabetic()) { "" } else { "schema_" };
    format!("{letters}{name}").chars().take(64).collect()
}

/// The first word of all patterns, if they share one.
fn common_prefix(patterns: &[(Vec<Step>, PatternStats)]) -> Option<String> {
    let Step::Word(first) = patterns.first()?.0.first()? else {
        return None;
    };
    let shared = patterns.iter().all(|(steps, _)| steps.len() > 1 && steps[0] == Step::Word(first.clone()));
    (shared && patterns.len() > 1).then(|| first.clone())
}

#[derive(Default)]
struct Proposal {
    /// Existing keys for each sampled one.
    scale: f64,
    ids: BTreeMap<String, IdStats>,
    /// The names of the ids of each pattern, by position.
    names: Vec<BTreeMap<usize, String>>,
    families: BTreeSet<String>,
    shapes: ShapeGuesser,
}

/// The values of one placeholder.
#[derive(Default)]
struct IdStats {
    values: BTreeSet<String>,
    not: BTreeSet<String>,
}

impl Proposal {
    fn name_ids(&mut self, patterns: &[(Vec<Step>, PatternStats)]) {
        for (steps, stats) in patterns {
            let mut names = BTreeMap::new();
            for (position, step) in steps.iter().enumerate() {
                if matches!(step, Step::Word(_)) {
                    continue;
                }
                // The last segment of a very deep key may hold colons, so it gets its own id rule.
                let base = if position + 1 == MAX_SEGMENTS {
                    "rest".to_owned()
                } else {
                    id_name(&steps[..position])
                };
                let mut name = base.clone();
                let mut number = 2;
                while names.values().any(|taken| *taken == name) {
                    name = format!("{base}_{number}");
                    number += 1;
                }
                let id = self.ids.entry(name.clone()).or_default();
                for example in &stats.examples {
                    let segment = segments(example).get(position).copied().unwrap_or_default();
                    id.values.insert(segment.trim_matches(['{', '}']).to_owned());
                }
                // Words that other patterns have at this position.
                id.not.extend(patterns.iter().filter_map(|(other, _)| match other.get(position) {
                    Some(Step::Word(word)) if other[..position] == steps[..position] => Some(word.clone()),
                    _ => None,
                }));
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
            let int = |value: &String| value.parse::<u64>().is_ok_and(|number| number.to_string() == *value);
            let example = id
                .values
                .iter()
                .find(|value| is_good_example(value) && !id.not.contains(*value))
                .cloned()
                .unwrap_or_default();
            let mut words = Vec::new();
            if id.values.iter().all(int) {
                words.push("form = \"int\"".to_owned());
            } else {
                let longest = id.values.iter().map(String::len).max().unwrap_or(1);
                words.push(format!("max = {}", (longest * 2).next_power_of_two().clamp(16, 1_024)));
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

    fn family(
        &mut self,
        index: usize,
        steps: &[Step],
        stats: &PatternStats,
        prefix: Option<&str>,
        out: &mut String,
    ) {
        let skip = usize::from(prefix.is_some());
        let spelled = |(position, step): (usize, &Step)| match step {
            Step::Word(word) => word.clone(),
            Step::Id => format!("<{}>", self.names[index][&position]),
            Step::TaggedId => format!("{{<{}>}}", self.names[index][&position]),
        };
        let pattern = steps.iter().enumerate().skip(skip).map(spelled).collect::<Vec<_>>().join(":");
        let name = self.family_name(&steps[skip..]);
        let kind = stats.kinds[0];
        let _ = writeln!(out, "[key.{name}]");
        if let [_, others @ ..] = stats.kinds.as_slice()
            && !others.is_empty()
        {
            let others: Vec<&str> = others.iter().map(|kind| kind.as_str()).collect();
            let _ = writeln!(out, "# also seen: {}", others.join(", "));
        }
        let _ = writeln!(out, "pattern  = {}\ntype     = \"{}\"", toml_text(&pattern), kind.as_str());
        self.shapes.content(&name, kind, stats, out);
        if kind != KeyType::String {
            let _ = writeln!(out, "max_len  = {}", round_up(stats.longest * 2));
        }
        if self.names[index].is_empty() {
            let _ = writeln!(out, "ttl      = {}", ttl(stats));
        } else {
            let keys = stats.keys as f64 * self.scale * 2.0;
            let _ = writeln!(out, "max_keys = {}\nttl      = {}", round_up(keys as u64), ttl(stats));
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
}

fn id_name(before: &[Step]) -> String {
    let word = before.iter().rev().find_map(|step| match step {
        Step::Word(word) => Some(snake(word)),
        Step::Id | Step::TaggedId => None,
    });
    let word = word.unwrap_or_default().replace(|char: char| !char.is_ascii_alphanumeric(), "_");
    match singular(word.trim_matches('_')) {
        "" => "id".to_owned(),
        word if word.starts_with(|char: char| char.is_ascii_digit()) => format!("id_{word}"),
        word => format!("{}_id", word.chars().take(40).collect::<String>()),
    }
}

/// Whether an id is short and printable.
fn is_good_example(value: &str) -> bool {
    (1..=64).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

fn singular(word: &str) -> &str {
    if word.ends_with("us") || word.ends_with("ss") { word } else { word.strip_suffix('s').unwrap_or(word) }
}

fn ttl(stats: &PatternStats) -> String {
    if stats.expiring == 0 {
        return "{ none = \"no key of the sample expires: why?\" }".to_owned();
    }
    let seconds = stats.longest_ttl_ms.div_ceil(1_000).max(1);
    let usual = USUAL_TTLS_S.into_iter().find(|usual| *usual >= seconds);
    let longest = format_duration(Duration::from_secs(usual.unwrap_or(seconds.next_multiple_of(86_400))));
    if stats.expiring == stats.keys {
        return format!("{{ max = \"{longest}\" }}");
    }
    format!("{{ late = \"{longest}\", why = \"some keys of the sample do not expire: why?\" }}")
}

/// 1, 2 or 5 with zeros, at least the number.
fn round_up(number: u64) -> u64 {
    let mut ten = 1;
    while ten < 1_000_000_000_000 {
        if let Some(round) =
            [1, 2, 5].into_iter().map(|digit| digit * ten).find(|round| *round >= number.max(10))
        {
            return round;
        }
        ten *= 10;
    }
    number
}
