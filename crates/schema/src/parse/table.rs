//! Reads TOML tables: unknown keys, wrong types and missing keys become errors with their position, and
//! reading goes on, so that one run shows them all.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::parse::source::{ParseError, Source, Span};

/// The maximum number of errors that are reported for one file. The number is limited because the file is read again to
/// find the line of each error.
const MAX_MISTAKES: usize = 100;

/// Collects errors while a file is read.
pub(crate) struct Reader<'t> {
    source: Source<'t>,
    errors: Vec<ParseError>,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(source: Source<'t>) -> Self {
        Reader { source, errors: Vec::new() }
    }

    pub(crate) fn source(&self) -> &Source<'t> {
        &self.source
    }

    pub(crate) fn report(&mut self, at: usize, message: impl Into<String>, suggestion: impl Into<String>) {
        self.add(at, message, Some(suggestion.into()));
    }

    pub(crate) fn report_without_suggestion(&mut self, at: usize, message: impl Into<String>) {
        self.add(at, message, None);
    }

    fn add(&mut self, at: usize, message: impl Into<String>, suggestion: Option<String>) {
        if self.errors.len() < MAX_MISTAKES {
            self.errors.push(self.source.error(at, message, suggestion));
        }
    }

    pub(crate) fn into_errors(mut self) -> Vec<ParseError> {
        self.errors.sort_by_key(|error| error.position);
        self.errors
    }
}

/// A value in the file and its offset.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) value: &'a DeValue<'a>,
    pub(crate) at: usize,
}

/// A table of the file in the order of its text.
pub(crate) struct Table<'a> {
    /// The title for messages: `[key.recent]`.
    pub(crate) title: String,
    pub(crate) at: usize,
    pub(crate) entries: Vec<Entry<'a>>,
}

pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) at: usize,
    pub(crate) item: Item<'a>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(title: impl Into<String>, at: usize, table: &'a DeTable<'a>) -> Self {
        let mut entries: Vec<Entry<'a>> = table
            .iter()
            .map(|(name, value)| Entry { name: name.get_ref(), at: name.span().start, item: item(value) })
            .collect();
        entries.sort_by_key(|entry| entry.at);
        Table { title: title.into(), at, entries }
    }

    /// Reports unknown keys.
    pub(crate) fn only(&self, known: &[&str], reader: &mut Reader<'_>) {
        for entry in &self.entries {
            if known.contains(&entry.name) {
                continue;
            }
            let suggestion = hob_units::nearest(entry.name, known.iter().copied())
                .map_or_else(|| format!("one of {}", known.join(", ")), ToOwned::to_owned);
            reader.report(entry.at, format!("{} has no `{}`", self.title, entry.name), suggestion);
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Item<'a>> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| entry.item)
    }

    pub(crate) fn need(&self, name: &str, example: &str, reader: &mut Reader<'_>) -> Option<Item<'a>> {
        let item = self.get(name);
        if item.is_none() {
            reader.report(self.at, format!("{} has no `{name}`", self.title), format!("{name} = {example}"));
        }
        item
    }

    pub(crate) fn text(&self, name: &str, reader: &mut Reader<'_>) -> Option<String> {
        self.get(name)?.text(reader)
    }
}

fn item<'a>(value: &'a Spanned<DeValue<'a>>) -> Item<'a> {
    let span: Span = value.span();
    Item { value: value.get_ref(), at: span.start }
}

impl<'a> Item<'a> {
    fn not(&self, expected: &str, example: &str, reader: &mut Reader<'_>) {
        let found = self.value.type_str();
        reader.report(self.at, format!("expected {expected}, found {found}"), example);
    }

    pub(crate) fn as_text(&self) -> Option<&'a str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn text(&self, reader: &mut Reader<'_>) -> Option<String> {
        let text = self.as_text();
        if text.is_none() {
            self.not("text", "\"…\"", reader);
        }
        text.map(ToOwned::to_owned)
    }

    pub(crate) fn as_int(&self) -> Option<i64> {
        match self.value {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        }
    }

    /// A whole number of at least `min`.
    pub(crate) fn count(&self, min: u64, reader: &mut Reader<'_>) -> Option<u64> {
        let count = self.as_int().and_then(|number| u64::try_from(number).ok()).filter(|count| *count >= min);
        if count.is_none() {
            self.not(&format!("a whole number from {min}"), "100", reader);
        }
        count
    }

    pub(crate) fn as_float(&self) -> Option<f64> {
        match self.value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => self.as_int().map(|number| number as f64),
        }
    }

    pub(crate) fn flag(&self, reader: &mut Reader<'_>) -> Option<bool> {
        let flag = self.value.as_bool();
        if flag.is_none() {
            self.not("true or false", "true", reader);
        }
        flag
    }

    pub(crate) fn as_list(&self) -> Option<Vec<Item<'a>>> {
        match self.value {
            DeValue::Array(array) => Some(array.iter().map(item).collect()),
            _ => None,
        }
    }

    /// One text or a list of them.
    pub(crate) fn texts(&self, reader: &mut Reader<'_>) -> Vec<String> {
        match self.as_list() {
            Some(items) => items.iter().filter_map(|item| item.text(reader)).collect(),
            None => self.text(reader).into_iter().collect(),
        }
    }

    pub(crate) fn as_table(&self, title: impl Into<String>) -> Option<Table<'a>> {
        match self.value {
            DeValue::Table(table) => Some(Table::new(title, self.at, table)),
            _ => None,
        }
    }

    pub(crate) fn table(&self, title: &str, example: &str, reader: &mut Reader<'_>) -> Option<Table<'a>> {
        let table = self.as_table(title);
        if table.is_none() {
            self.not("a table", example, reader);
        }
        table
    }
}
