//! Parses the text of a schema file into a [`Schema`], or reports every error in it.

mod family;
mod ids;
mod limit;
pub(crate) mod source;
mod table;
mod value;

pub(crate) use ids::FORMS;
pub(crate) use value::{JSON_WORDS, VALUE_WORDS};
#[cfg(test)]
pub(crate) use {
    family::{ALLOW_KEYS, CHANNEL_KEYS, FAMILY_KEYS, TTL_KEYS},
    ids::ID_KEYS,
    limit::LIMIT_KEYS,
    value::{JSON_KEYS, VALUE_KEYS},
};

use std::path::Path;

use toml::de::DeTable;

use crate::model::{Limit, Prefix, Schema};
use crate::parse::source::{ParseError, ParseErrors, Position, Source};
use family::{read_allow, read_channel, read_family};
use ids::read_ids;
use table::{Reader, Table};
use value::{Names, read_shape};

pub(crate) const TOP_KEYS: [&str; 5] = ["schema", "ids", "key", "channel", "shape"];
pub(crate) const SCHEMA_KEYS: [&str; 7] = ["name", "version", "prefix", "shards", "purpose", "note", "allow"];

/// Larger files are not schemas; the limit keeps a wrong path from using much memory.
const MAX_FILE_BYTES: usize = 4 << 20;

impl Schema {
    /// Reads the text of a schema file; `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Schema, ParseErrors> {
        let mut reader = Reader::new(Source::new(file, text));
        if text.len() > MAX_FILE_BYTES {
            reader
                .report_without_suggestion(0, format!("the file has {} bytes, more than 4 MiB", text.len()));
            return Err(ParseErrors(reader.into_errors()));
        }
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let at = error.span().map_or(0, |span| span.start);
            reader.report_without_suggestion(at, format!("not TOML: {}", error.message()));
        }
        let root = Table::new("the file", 0, root.get_ref());
        let schema = read_schema(file, &root, &mut reader);
        let mut errors = reader.into_errors();
        match schema {
            Some(schema) if errors.is_empty() => {
                crate::catalog::overlap::check_schema(&schema, &Source::new(file, text), &mut errors);
                check_examples(&schema, &mut errors);
                if errors.is_empty() { Ok(schema) } else { Err(ParseErrors(errors)) }
            }
            _ => Err(ParseErrors(errors)),
        }
    }

    /// Reads a schema file from disk.
    pub fn load(path: &Path) -> Result<Schema, ParseErrors> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Schema::parse(&file, &text),
            Err(error) => Err(ParseErrors(vec![ParseError {
                file,
                position: Position { line: 1, column: 1 },
                message: format!("cannot be read: {error}"),
                suggestion: None,
                families: Vec::new(),
            }])),
        }
    }
}

fn read_schema(file: &str, root: &Table<'_>, reader: &mut Reader<'_>) -> Option<Schema> {
    root.only(&TOP_KEYS, reader);
    let head = root
        .need("schema", "a table: [schema]\\nname = \"chat\"", reader)
        .and_then(|item| item.table("[schema]", "name = \"chat\"", reader));
    let ids = section(root, "ids", reader).map(|table| read_ids(&table, reader)).unwrap_or_default();
    let shape_tables = tables(root, "shape", reader);
    let shape_names: Vec<String> = shape_tables.iter().map(|(name, _)| name.clone()).collect();
    let names = Names { ids: &ids, shapes: &shape_names };
    let shapes = shape_tables.iter().map(|(name, table)| read_shape(table, name, names, reader)).collect();
    let families: Vec<_> = tables(root, "key", reader)
        .iter()
        .filter_map(|(name, table)| read_family(name, table, names, reader))
        .collect();
    let channels = tables(root, "channel", reader)
        .iter()
        .filter_map(|(name, table)| read_channel(name, table, names, reader))
        .collect();
    let head = head?;
    let mut schema = read_head(file, &head, reader)?;
    check_references(&families, root, reader);
    (schema.shapes, schema.families, schema.channels, schema.ids) = (shapes, families, channels, ids);
    Some(schema)
}

fn read_head(file: &str, head: &Table<'_>, reader: &mut Reader<'_>) -> Option<Schema> {
    head.only(&SCHEMA_KEYS, reader);
    let name = head.need("name", "\"chat\"", reader).and_then(|item| {
        let name = item.text(reader)?;
        if !is_name(&name) {
            reader.report(
                item.at,
                format!("{name:?} cannot name a schema"),
                "lowercase letters, digits and _",
            );
        }
        Some(name)
    });
    let version = head.need("version", "1", reader).and_then(|item| item.count(1, reader));
    let prefix = read_prefix(head, reader);
    let shards = head.get("shards").and_then(|item| limit::read_count(item, reader));
    Some(Schema {
        file: file.to_owned(),
        name: name?,
        version: u32::try_from(version?).unwrap_or(u32::MAX),
        purpose: head.text("purpose", reader),
        note: head.text("note", reader),
        prefix,
        shards: shards.unwrap_or(Limit::fixed(16)),
        ids: Vec::new(),
        families: Vec::new(),
        channels: Vec::new(),
        shapes: Vec::new(),
        allow: read_allow(head.get("allow"), reader),
        position: reader.source().position(head.at),
    })
}

fn read_prefix(head: &Table<'_>, reader: &mut Reader<'_>) -> Prefix {
    let Some(item) = head.get("prefix") else {
        return Prefix::default();
    };
    let (env, value) = match item.as_table("prefix") {
        None => (None, item.text(reader).unwrap_or_default()),
        Some(table) => {
            table.only(&["env", "default"], reader);
            (table.text("env", reader), table.text("default", reader).unwrap_or_default())
        }
    };
    if !Prefix::accepts(&value) {
        reader.report(
            item.at,
            format!("the prefix {value:?} contains a character with a special meaning"),
            "\"chat:\"",
        );
    }
    Prefix { env, value }
}

fn section<'a>(root: &Table<'a>, name: &str, reader: &mut Reader<'_>) -> Option<Table<'a>> {
    root.get(name)?.table(&format!("[{name}]"), "a table", reader)
}

/// The tables under `[key]`, `[channel]` or `[shape]`, with names that are good in code.
fn tables<'a>(root: &Table<'a>, kind: &str, reader: &mut Reader<'_>) -> Vec<(String, Table<'a>)> {
    let Some(section) = section(root, kind, reader) else {
        return Vec::new();
    };
    let mut tables = Vec::new();
    for entry in &section.entries {
        if !is_name(entry.name) || entry.name.contains(char::is_uppercase) {
            reader.report(entry.at, format!("`{}` cannot name a {kind}", entry.name), snake(entry.name));
        }
        let title = format!("[{kind}.{}]", entry.name);
        if let Some(mut table) = entry.item.table(&title, "a table", reader) {
            table.at = entry.at;
            tables.push((entry.name.to_owned(), table));
        }
    }
    tables
}

/// `with` and `sums` name families of the same file.
fn check_references(families: &[crate::model::Family], root: &Table<'_>, reader: &mut Reader<'_>) {
    let Some(keys) = root.get("key").and_then(|item| item.as_table("key")) else {
        return;
    };
    for family in families {
        let Some(table) = keys.get(&family.name).and_then(|item| item.as_table("")) else {
            continue;
        };
        for (key, name) in
            family.with.iter().map(|name| ("with", name)).chain(family.sums.iter().map(|name| ("sums", name)))
        {
            if families.iter().any(|other| other.name == *name) {
                continue;
            }
            let at = table.get(key).map_or(table.at, |item| item.at);
            let near = hob_units::nearest(name, families.iter().map(|family| family.name.as_str()));
            reader.report(
                at,
                format!("`{key}` names the unknown family {name:?}"),
                near.unwrap_or("a family of this file"),
            );
        }
    }
}

/// Examples must fit their families.
fn check_examples(schema: &Schema, errors: &mut Vec<ParseError>) {
    for family in &schema.families {
        let Some(example) = &family.example else { continue };
        for (field, text) in &example.values {
            if let Err(mismatch) = crate::check::fits_example(schema, family, field.as_deref(), text) {
                errors.push(ParseError {
                    file: schema.file.clone(),
                    position: example.position,
                    message: format!("the example does not match the declared form: {mismatch}"),
                    suggestion: Some("a value that the family allows".into()),
                    families: vec![family.name.clone()],
                });
            }
        }
    }
}

/// A name that becomes an identifier in code.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|char: char| char.is_ascii_alphabetic())
        && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
}

/// `conversationId` as `conversation_id`.
pub fn snake(name: &str) -> String {
    let mut out = String::new();
    for char in name.chars() {
        if char.is_ascii_uppercase() && !out.is_empty() && !out.ends_with('_') {
            out.push('_');
        }
        out.push(char.to_ascii_lowercase());
    }
    out
}
