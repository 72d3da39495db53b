//! Writes the statistics of a sample as the text of a schema file.
//!
//! Every sampled key must belong to the family that describes it. So the text is parsed and checked, and the patterns are
//! changed until it is a valid schema that all keys match.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use hob_schema::{Catalog, KeyType, Layout, ParseErrors, Schema, format_count, snake};

use super::content::ContentStats;
use super::expiry::{Ends, ttl};
use super::ids::{Ids, MAX_LISTED};
use super::recognize::Libraries;
use super::values::{Shapes, toml_text};
use super::{InferOptions, PatternStats, Sampled};
use crate::patterns::{KeyPattern, Merge as _, Step};

/// More families are of no use to a reader.
const MAX_GROUPS: usize = 400;
/// After so many changes to the patterns, all keys become one family.
const MAX_ROUNDS: usize = 20;
/// A collection without a TTL that has so many elements is suspected to grow without a bound.
const SUSPICIOUS_LEN: u64 = 1_000;

/// The keys of one proposed family.
pub(super) struct Group {
    pub(super) pattern: KeyPattern,
    pub(super) stats: PatternStats,
    pub(super) precision: Precision,
}

/// How narrow the rules of the ids of a group are. They become narrower if the group overlaps with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Precision {
    Usual,
    /// An id contains only those separators that were seen in it.
    Narrow,
    /// All values of an id are listed, if there are only a few.
    Listed,
}

/// The text of the proposed file.
pub(super) fn propose(
    options: &InferOptions,
    patterns: Vec<(KeyPattern, PatternStats)>,
    mut libraries: Libraries,
    sampled: &Sampled,
) -> String {
    let mut groups = Vec::new();
    add_groups(patterns, &mut groups);
    while groups.len() > MAX_GROUPS {
        merge_largest_stem(&mut groups);
    }
    for _ in 0..MAX_ROUNDS + libraries.recognized.len() {
        let draft = Draft::write(options, &groups, &libraries, sampled);
        let changes = match Schema::parse("proposal", &draft.text) {
            Ok(schema) => {
                let catalog = Catalog::new(vec![schema.clone()], Layout::Plain);
                let changes =
                    catalog.map_or_else(|_| Vec::new(), |catalog| strays(&catalog, &draft, &groups));
                if changes.is_empty()
                    && keep_apart(&schema, &draft, &mut groups, &mut libraries) == Together::Yes
                {
                    return draft.text;
                }
                changes
            }
            Err(errors) => conflicts(&errors, &draft),
        };
        apply(changes, &mut groups);
    }
    while !libraries.recognized.is_empty() {
        add_groups(libraries.release(0), &mut groups);
    }
    merge_all(vec![(0..groups.len()).collect()], &mut groups);
    Draft::write(options, &groups, &libraries, sampled).text
}

/// Adds the keys of each pattern to the group with this pattern. No schema can declare the empty key.
fn add_groups(patterns: Vec<(KeyPattern, PatternStats)>, groups: &mut Vec<Group>) {
    for (pattern, mut stats) in patterns {
        stats.keys.retain(|key| !key.is_empty());
        match groups.iter_mut().find(|group| group.pattern == pattern) {
            _ if stats.keys.is_empty() => {}
            Some(same) => same.stats.merge(stats),
            None => groups.push(Group { pattern, stats, precision: Precision::Usual }),
        }
    }
    groups.sort_by(|left, right| left.pattern.cmp(&right.pattern));
}

/// Whether the proposal and the libraries can be used together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    Yes,
    No,
}

/// If a library cannot be used together with the proposal, narrows the ids of a group or adds the keys of the library to the
/// groups.
fn keep_apart(
    schema: &Schema,
    draft: &Draft,
    groups: &mut Vec<Group>,
    libraries: &mut Libraries,
) -> Together {
    for index in 0..libraries.recognized.len() {
        // Those before it fit together.
        let declared = libraries.recognized[..=index].iter().flat_map(|library| library.schemas.clone());
        match Catalog::with_libraries(vec![schema.clone()], declared.collect(), Layout::Plain) {
            Ok(catalog) => {
                let keys = &libraries.recognized[index].keys;
                let is_proposed =
                    |key: &[u8]| catalog.find(key).is_some_and(|found| found.family.schema == 0);
                if strays(&catalog, draft, groups).is_empty() && !keys.iter().any(|(key, _)| is_proposed(key))
                {
                    continue;
                }
            }
            Err(conflict) => {
                let is_left = |name: &String| conflict.left == format!("{}.{name}", schema.name);
                let group = draft.names.iter().position(is_left).map(|index| &mut groups[index]);
                if let Some(group) = group.filter(|group| group.precision == Precision::Usual) {
                    group.precision = Precision::Narrow;
                    return Together::No;
                }
            }
        }
        add_groups(libraries.release(index), groups);
        return Together::No;
    }
    Together::Yes
}

/// Groups whose patterns have to change: one that reads a key in two ways or does not match its keys, or two that overlap.
type Changes = Vec<Vec<usize>>;

/// Groups whose keys do not belong to their families.
fn strays(catalog: &Catalog, draft: &Draft, groups: &[Group]) -> Changes {
    let belongs = |key: &Vec<u8>, name: &str| {
        catalog.find(key).is_some_and(|found| catalog.family(found.family).name == name)
    };
    let is_stray =
        |index: &usize| !groups[*index].stats.keys.iter().all(|key| belongs(key, &draft.names[*index]));
    (0..groups.len()).filter(is_stray).map(|index| vec![index]).collect()
}

fn conflicts(errors: &ParseErrors, draft: &Draft) -> Changes {
    let index = |name: &String| draft.names.iter().position(|other| other == name);
    let groups = |families: &Vec<String>| families.iter().filter_map(index).collect::<Vec<usize>>();
    errors.0.iter().map(|error| groups(&error.families)).filter(|groups| !groups.is_empty()).collect()
}

fn apply(changes: Changes, groups: &mut Vec<Group>) {
    let mut merges = Vec::new();
    // One group may be in several changes; each round makes it narrower by one degree.
    let before: Vec<Precision> = groups.iter().map(|group| group.precision).collect();
    for change in changes {
        let usual = change.iter().any(|index| before[*index] == Precision::Usual);
        let smallest = change.iter().copied().min_by_key(|index| groups[*index].stats.keys.len());
        let listable = smallest.filter(|index| {
            let group = &groups[*index];
            before[*index] < Precision::Listed
                && group.stats.keys.len() <= MAX_LISTED
                && has_ids(&group.pattern)
        });
        match listable {
            _ if usual => {
                for index in change {
                    let precision = &mut groups[index].precision;
                    *precision = (*precision).max(Precision::Narrow);
                }
            }
            Some(index) => groups[index].precision = Precision::Listed,
            None => merges.push(change),
        }
    }
    merge_all(merges, groups);
}

/// Merges groups that conflict, directly or through others.
fn merge_all(merges: Changes, groups: &mut Vec<Group>) {
    let mut clusters: Vec<BTreeSet<usize>> = Vec::new();
    for change in merges {
        let mut cluster: BTreeSet<usize> = change.into_iter().collect();
        let (joined, apart): (Vec<_>, Vec<_>) =
            clusters.into_iter().partition(|other| !other.is_disjoint(&cluster));
        clusters = apart;
        cluster.extend(joined.into_iter().flatten());
        clusters.push(cluster);
    }
    let mut rest: Vec<Option<Group>> = std::mem::take(groups).into_iter().map(Some).collect();
    let clustered: Vec<Vec<Group>> = clusters
        .iter()
        .map(|cluster| cluster.iter().filter_map(|index| rest[*index].take()).collect())
        .collect();
    groups.extend(rest.into_iter().flatten());
    clustered.into_iter().for_each(|cluster| merge(cluster, groups));
    groups.sort_by(|left, right| left.pattern.cmp(&right.pattern));
}

fn has_ids(pattern: &KeyPattern) -> bool {
    pattern.steps.iter().any(|step| !matches!(step, Step::Word(_)))
}

/// Adds one group for several, with the steps that they share and the rest of the key.
fn merge(merged: Vec<Group>, groups: &mut Vec<Group>) {
    let Some(first) = merged.first() else { return };
    let separator = first.pattern.separator;
    let same_separator = merged.iter().all(|group| group.pattern.separator == separator);
    let shortest = merged.iter().map(|group| group.pattern.steps.len()).min().unwrap_or(1);
    let is_shared = |position: &usize| {
        let step = &first.pattern.steps[*position];
        // After a placeholder, the rest of the key could begin anywhere.
        matches!(step, Step::Word(_)) && merged.iter().all(|group| group.pattern.steps[*position] == *step)
    };
    let shared = if same_separator { (0..shortest - 1).take_while(is_shared).count() } else { 0 };
    let mut steps = first.pattern.steps[..shared].to_vec();
    steps.push(Step::Rest);
    let pattern = KeyPattern { separator, steps };
    let mut stats = PatternStats::default();
    for group in merged {
        stats.merge(group.stats);
    }
    // A group with this pattern may exist already.
    if let Some(same) = groups.iter_mut().find(|group| group.pattern == pattern) {
        same.stats.merge(stats);
        return;
    }
    groups.push(Group { pattern, stats, precision: Precision::Usual });
}

/// Merges the groups that share the most frequent first step.
fn merge_largest_stem(groups: &mut Vec<Group>) {
    let mut stems: BTreeMap<KeyPattern, Vec<usize>> = BTreeMap::new();
    for (index, group) in groups.iter().enumerate() {
        let depth = usize::from(group.pattern.steps.len() > 1);
        let steps = group.pattern.steps[..depth].to_vec();
        stems.entry(KeyPattern { separator: group.pattern.separator, steps }).or_default().push(index);
    }
    let largest = stems.into_values().max_by_key(Vec::len).filter(|stem| stem.len() > 1);
    merge_all(vec![largest.unwrap_or_else(|| (0..groups.len()).collect())], groups);
}

/// A proposed file, and the name of each group's family.
struct Draft {
    text: String,
    names: Vec<String>,
}

impl Draft {
    fn write(options: &InferOptions, groups: &[Group], libraries: &Libraries, sampled: &Sampled) -> Draft {
        let prefix = common_prefix(groups);
        let mut ids = Ids::default();
        let placeholders = ids.name(groups);
        let mut writer = FamilyWriter {
            scale: (sampled.existing as f64 / sampled.keys.max(1) as f64).max(1.0),
            skip: usize::from(prefix.is_some()),
            names: BTreeSet::new(),
            shapes: Shapes::default(),
        };
        let mut body = String::new();
        let write = |(group, placeholders)| writer.family(group, placeholders, &mut body);
        let names = groups.iter().zip(&placeholders).map(write).collect();
        let mut text = header(sampled, libraries);
        let name = schema_name(&options.name);
        let prefix = prefix.map(|prefix| format!("prefix  = \"{prefix}\"\n")).unwrap_or_default();
        let _ = write!(text, "[schema]\nname    = \"{name}\"\nversion = 1\n{prefix}\n");
        ids.write(&mut text);
        text += &body;
        writer.shapes.write(&mut text);
        Draft { text, names }
    }
}

fn header(sampled: &Sampled, libraries: &Libraries) -> String {
    let mut text = format!(
        "# Proposed from {} of {} keys. Review it, give each family a purpose, and remove the entries of `unconfirmed` that\n\
         # are intended; `hob schema lint` lists what is left. Then audit with it.\n",
        format_count(sampled.keys - sampled.unreadable),
        format_count(sampled.existing)
    );
    if sampled.keys < sampled.existing {
        text.push_str("# A larger sample finds more: `--keys`, `--seconds`.\n");
    }
    for library in &libraries.recognized {
        let (name, keys) = (&library.name, format_count(library.keys.len() as u64));
        let _ = writeln!(
            text,
            "# Recognized {keys} keys of {name}, which are not below: audit with `--with {name}` too."
        );
    }
    for (name, keys) in &libraries.released {
        let keys = format_count(*keys);
        let _ = writeln!(
            text,
            "# {keys} keys look like those of {name}, but other keys match its patterns too: all of them are below."
        );
    }
    if let Some(reason) = &sampled.refused {
        let unreadable = format_count(sampled.unreadable);
        let _ = writeln!(
            text,
            "# {unreadable} keys could not be read and are missing: {}.",
            reason.replace('\n', " ")
        );
    }
    if sampled.has_empty_key {
        text.push_str("# The empty key is missing: no schema can declare it.\n");
    }
    if let Some(hint) = &sampled.hint {
        let _ = writeln!(text, "# Note: {hint}.");
    }
    text.push('\n');
    text
}

fn schema_name(name: &str) -> String {
    let name = snake(name).replace(|char: char| !char.is_ascii_alphanumeric(), "_");
    let letters = if name.starts_with(|char: char| char.is_ascii_alphabetic()) { "" } else { "schema_" };
    format!("{letters}{name}").chars().take(64).collect()
}

/// The first word of all patterns with its separator, if they share one and something follows it.
fn common_prefix(groups: &[Group]) -> Option<String> {
    let first = &groups.first()?.pattern;
    let Some(Step::Word(word)) = first.steps.first() else {
        return None;
    };
    let empty = Step::Word(String::new());
    let follows = |steps: &[Step]| steps.len() > 1 && steps[1..] != [empty.clone()];
    let shares = |pattern: &KeyPattern| {
        pattern.separator == first.separator && pattern.steps[0] == first.steps[0] && follows(&pattern.steps)
    };
    let shared = groups.len() > 1 && groups.iter().all(|group| shares(&group.pattern));
    shared.then(|| format!("{word}{}", first.separator.as_str()))
}

struct FamilyWriter {
    /// Existing keys for each sampled one.
    scale: f64,
    /// Steps that are part of the prefix.
    skip: usize,
    names: BTreeSet<String>,
    shapes: Shapes,
}

impl FamilyWriter {
    /// Writes a family and returns its name.
    fn family(&mut self, group: &Group, ids: &BTreeMap<usize, String>, out: &mut String) -> String {
        let stats = &group.stats;
        let skipped = KeyPattern {
            separator: group.pattern.separator,
            steps: group.pattern.steps[self.skip..].to_vec(),
        };
        let pattern = skipped.spelled(|position, _| {
            format!("<{}>", ids.get(&(position + self.skip)).map_or("id", String::as_str))
        });
        let name = self.family_name(&skipped.steps);
        let mut types: Vec<(&String, u64)> =
            stats.types.iter().map(|(kind, (keys, _))| (kind, *keys)).collect();
        types.sort_by_key(|(_, keys)| std::cmp::Reverse(*keys));
        let kind = types.first().map_or("string", |(kind, _)| kind.as_str());
        let _ = writeln!(out, "[key.{name}]\npattern  = {}", toml_text(&pattern));
        let _ = writeln!(out, "type     = {}", toml_text(&type_name(kind)));
        if types.len() > 1 {
            let also: Vec<String> = types[1..].iter().map(|(kind, _)| toml_text(&type_name(kind))).collect();
            let _ = writeln!(out, "also     = [{}]", also.join(", "));
        }
        let key_type = kind.parse().unwrap_or(KeyType::Module);
        let content = stats.types.get(kind).map(|(_, content)| content);
        if let Some(content) = content {
            content.write(&name, key_type, &mut self.shapes, out);
        }
        let longest = content.map_or(0, |content| content.longest);
        if !matches!(key_type, KeyType::String | KeyType::Module) {
            let _ = writeln!(out, "max_len  = {}", round_up(longest * 2));
        }
        if !ids.is_empty() {
            let keys = stats.keys.len() as f64 * self.scale * 2.0;
            let _ = writeln!(out, "max_keys = {}", round_up(keys as u64));
        }
        let fields_expire = types.len() == 1 && content.is_some_and(ContentStats::all_fields_expire);
        let ends = match () {
            () if fields_expire => Ends::WithItsFields,
            () if ids.is_empty() => Ends::OneKey,
            () => Ends::Unknown,
        };
        let _ = writeln!(out, "ttl      = {}\npurpose  = \"TODO\"", ttl(stats, ends));
        let mut suspicions = suspicions(group, key_type, longest, ends);
        suspicions.extend(content.into_iter().flat_map(ContentStats::suspicions));
        if !suspicions.is_empty() {
            let lines: Vec<String> = suspicions.iter().map(|text| toml_text(text)).collect();
            let _ = writeln!(out, "unconfirmed = [{}]", lines.join(", "));
        }
        out.push('\n');
        name
    }

    fn family_name(&mut self, steps: &[Step]) -> String {
        let spelled = |step: &Step| match step {
            Step::Word(word) => word.clone(),
            Step::Affixed { before, after } => format!("{before}_{after}"),
            Step::Choice(_) | Step::Id | Step::TaggedId | Step::Rest => String::new(),
        };
        let mut joined = String::new();
        for step in steps {
            for word in snake(&spelled(step)).split(|char: char| !char.is_ascii_alphanumeric()) {
                let separator = if joined.is_empty() || word.is_empty() { "" } else { "_" };
                joined += separator;
                joined += word;
            }
        }
        let base = match joined.as_str() {
            "" => "keys".to_owned(),
            name if name.starts_with(|char: char| char.is_ascii_digit()) => {
                format!("k{}", name.chars().take(49).collect::<String>())
            }
            name => name.chars().take(50).collect(),
        };
        let mut name = base.clone();
        let mut number = 2;
        while !self.names.insert(name.clone()) {
            name = format!("{base}_{number}");
            number += 1;
        }
        name
    }
}

/// The type as a schema file spells it.
fn type_name(kind: &str) -> String {
    if kind.parse::<KeyType>().is_ok() { kind.to_owned() } else { format!("module:{kind}") }
}

/// What a person should look at before the declaration counts as intended.
fn suspicions(group: &Group, kind: KeyType, longest: u64, ends: Ends) -> Vec<String> {
    let stats = &group.stats;
    let keys = stats.keys.len() as u64;
    let mut suspicions = Vec::new();
    if ends == Ends::Unknown && stats.expiring < keys {
        let (lasting, keys) = (format_count(keys - stats.expiring), format_count(keys));
        suspicions.push(format!("no TTL: {lasting} of {keys} sampled keys never expire"));
    }
    let collection = !matches!(kind, KeyType::String | KeyType::Module);
    let grows = collection && stats.expiring < keys && ends != Ends::WithItsFields;
    if grows && longest >= SUSPICIOUS_LEN {
        let longest = format_count(longest);
        suspicions.push(format!("unbounded growth: one key has {longest} elements and does not expire"));
    }
    if group.precision == Precision::Listed {
        suspicions.push(
            "the values of its ids are listed, because other patterns would match the same keys".to_owned(),
        );
    }
    if group.pattern.steps.contains(&Step::Rest) {
        suspicions.push("several kinds of keys: no patterns were found that keep them apart".to_owned());
    }
    suspicions
}

/// 1, 2 or 5 with zeros, at least the number.
pub(super) fn round_up(number: u64) -> u64 {
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
