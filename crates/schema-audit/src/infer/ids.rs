//! The rules of the placeholders of a proposal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use hob_schema::snake;

use super::proposal::{Group, Precision};
use super::values::toml_text;
use crate::patterns::{KeyPattern, Step};

/// The most values that a rule lists.
pub(super) const MAX_LISTED: usize = 100;
/// A longer id is declared as it is.
const MAX_TEXT_BYTES: usize = 1_024;
/// Characters that may separate an id from the text around it.
const SEPARATORS: &str = ":/{}";
const MORE_SEPARATORS: &str = ":/{}._- ";

/// The rule of a placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Int,
    OneOf(BTreeSet<String>),
    Text,
    Verbatim { without: String },
}

#[derive(Debug)]
struct Id {
    form: Form,
    not: BTreeSet<String>,
    longest: usize,
    example: Option<String>,
}

/// All rules, by name.
#[derive(Debug, Default)]
pub(super) struct Ids {
    ids: BTreeMap<String, Id>,
}

impl Ids {
    /// Names the placeholders of each group, by the positions of their steps.
    pub(super) fn name(&mut self, groups: &[Group]) -> Vec<BTreeMap<usize, String>> {
        groups.iter().map(|group| self.name_group(group, groups)).collect()
    }

    fn name_group(&mut self, group: &Group, groups: &[Group]) -> BTreeMap<usize, String> {
        let mut values: BTreeMap<usize, BTreeSet<&[u8]>> = BTreeMap::new();
        for key in &group.stats.keys {
            for (position, value) in group.pattern.values(key) {
                values.entry(position).or_default().insert(value);
            }
        }
        let mut names = BTreeMap::new();
        for (position, values) in &values {
            let step = &group.pattern.steps[*position];
            let form = form(step, values, group.precision);
            let not = match (&form, step) {
                (Form::Text | Form::Verbatim { .. }, Step::Id) => {
                    siblings(&group.pattern, *position, groups, values)
                }
                _ => BTreeSet::new(),
            };
            let id = Id {
                form,
                not,
                longest: values.iter().map(|value| value.len()).max().unwrap_or(0),
                example: values.iter().find_map(|value| good_example(value)),
            };
            let name = self.add(&base_name(&group.pattern.steps, *position), id, &names);
            names.insert(*position, name);
        }
        names
    }

    /// Adds a rule, or uses an equal one. A name occurs once in a pattern.
    fn add(&mut self, base: &str, id: Id, taken: &BTreeMap<usize, String>) -> String {
        for number in 1.. {
            let name = if number == 1 { base.to_owned() } else { format!("{base}_{number}") };
            if taken.values().any(|other| *other == name) {
                continue;
            }
            match self.ids.get_mut(&name) {
                None => {
                    self.ids.insert(name.clone(), id);
                    return name;
                }
                Some(same) if same.form == id.form && same.not == id.not => {
                    same.longest = same.longest.max(id.longest);
                    same.example = same.example.take().or(id.example);
                    return name;
                }
                Some(_) => {}
            }
        }
        base.to_owned()
    }

    pub(super) fn write(&self, out: &mut String) {
        if self.ids.is_empty() {
            return;
        }
        let _ = writeln!(out, "[ids]");
        for (name, id) in &self.ids {
            // Without an example, the parser makes one from the name of the id.
            let least = if id.example.is_some() { 16 } else { 64 };
            let max = (id.longest * 2).next_power_of_two().max(least);
            let mut words = match &id.form {
                Form::Int => vec!["form = \"int\"".to_owned()],
                Form::OneOf(values) => vec![format!("one_of = {}", toml_list(values))],
                Form::Text => vec![format!("max = {}", max.min(MAX_TEXT_BYTES))],
                Form::Verbatim { without } => {
                    let mut words = vec!["form = \"verbatim\"".to_owned(), format!("max = {max}")];
                    let without = (!without.is_empty()).then(|| format!("without = {}", toml_text(without)));
                    words.extend(without);
                    words
                }
            };
            if !id.not.is_empty() {
                words.push(format!("not = {}", toml_list(&id.not)));
            }
            if let (Some(example), false) = (&id.example, matches!(id.form, Form::OneOf(_))) {
                words.push(format!("example = {}", toml_text(example)));
            }
            let _ = writeln!(out, "{name} = {{ {} }}", words.join(", "));
        }
        out.push('\n');
    }
}

fn form(step: &Step, values: &BTreeSet<&[u8]>, precision: Precision) -> Form {
    let texts: Option<BTreeSet<String>> =
        values.iter().map(|value| std::str::from_utf8(value).ok().map(str::to_owned)).collect();
    let plain = texts.filter(|texts| texts.iter().all(|text| is_plain(text)));
    let int = |text: &String| text.parse::<u64>().is_ok_and(|number| number.to_string() == *text);
    let without = |separators: &str| Form::Verbatim {
        without: separators
            .chars()
            .filter(|char| !values.iter().any(|value| value.contains(&(*char as u8))))
            .collect(),
    };
    match (step, plain) {
        (Step::Choice(words), _) => Form::OneOf(words.clone()),
        (Step::Rest, _) => Form::Verbatim { without: String::new() },
        (_, Some(texts)) if precision == Precision::Listed && texts.len() <= MAX_LISTED => Form::OneOf(texts),
        (_, Some(texts)) if texts.iter().all(int) => Form::Int,
        (_, Some(_)) if precision == Precision::Usual => Form::Text,
        _ if precision == Precision::Usual => without(SEPARATORS),
        _ => without(MORE_SEPARATORS),
    }
}

/// Whether an id is never encoded in a key.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte > b' ' && byte != 0x7f && !b":/%*?[]{}\\\"'".contains(&byte);
    (1..=MAX_TEXT_BYTES).contains(&text.len()) && text.bytes().all(plain)
}

/// Words that other patterns have at this position: they are never values of the id.
fn siblings(
    pattern: &KeyPattern,
    position: usize,
    groups: &[Group],
    values: &BTreeSet<&[u8]>,
) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for other in groups.iter().map(|group| &group.pattern) {
        if other.separator != pattern.separator
            || other.steps.get(..position) != pattern.steps.get(..position)
        {
            continue;
        }
        match other.steps.get(position) {
            Some(Step::Word(word)) if !word.is_empty() => drop(words.insert(word.clone())),
            Some(Step::Choice(choice)) => words.extend(choice.iter().cloned()),
            _ => {}
        }
    }
    words.retain(|word| !values.contains(word.as_bytes()));
    words
}

fn toml_list(texts: &BTreeSet<String>) -> String {
    let texts: Vec<String> = texts.iter().map(|text| toml_text(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// The name of a placeholder, after the last word before it.
fn base_name(steps: &[Step], position: usize) -> String {
    let named = |text: &str| {
        let name = snake(text).replace(|char: char| !char.is_ascii_alphanumeric(), "_");
        let name = name.trim_matches('_').to_owned();
        (!name.is_empty()).then_some(name)
    };
    let word = match &steps[position] {
        Step::Rest => Some("rest".to_owned()),
        Step::Affixed { before, .. } => named(before),
        _ => None,
    };
    let word = word.or_else(|| {
        steps[..position].iter().rev().find_map(|step| match step {
            Step::Word(word) => named(word),
            Step::Affixed { before, .. } => named(before),
            _ => None,
        })
    });
    let word: String = word.unwrap_or_default().chars().take(40).collect();
    match (singular(&word), &steps[position]) {
        ("rest", Step::Rest) => "rest".to_owned(),
        ("", _) => "id".to_owned(),
        (word, _) if word.starts_with(|char: char| char.is_ascii_digit()) => format!("id_{word}"),
        (word, _) => format!("{word}_id"),
    }
}

fn singular(word: &str) -> &str {
    if word.ends_with("us") || word.ends_with("ss") { word } else { word.strip_suffix('s').unwrap_or(word) }
}

/// An id that is short and printable.
fn good_example(value: &[u8]) -> Option<String> {
    let good = (1..=64).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
    good.then(|| String::from_utf8_lossy(value).into_owned())
}
