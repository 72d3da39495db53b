//! Value shapes: `"int"`, `{ enum = [...] }`, `{ json = "message" }`, and the JSON objects of `[shape]`.

use super::limit::read_count;
use super::table::{Item, Reader, Table};
use crate::model::id::IdRule;
use crate::model::value::{JsonForm, Member, Shape, Value};
use crate::model::{Field, FieldName, Presence};

pub(crate) const VALUE_WORDS: [&str; 11] =
    ["any", "int", "float", "bool", "rfc3339", "iso8601", "unix_s", "unix_ms", "json", "hyperloglog", "geo"];
/// The keys that name a form come first.
pub(crate) const VALUE_KEYS: [&str; 12] = [
    "int",
    "float",
    "enum",
    "text",
    "id",
    "json",
    "bitmap",
    "msgpack",
    "protobuf",
    "max_bytes",
    "is",
    "optional",
];
pub(crate) const JSON_WORDS: [&str; 9] =
    ["any", "string", "int", "number", "bool", "rfc3339", "iso8601", "unix_s", "unix_ms"];
pub(crate) const JSON_KEYS: [&str; 4] = ["enum", "list", "shape", "optional"];

/// The default limit of a JSON value.
const DEFAULT_JSON_BYTES: u64 = 64 << 10;

/// The names that values can refer to.
#[derive(Clone, Copy)]
pub(super) struct Names<'n> {
    pub(super) ids: &'n [IdRule],
    pub(super) shapes: &'n [String],
}

pub(super) fn read_value(item: Item<'_>, names: Names<'_>, reader: &mut Reader<'_>) -> Option<Value> {
    if let Some(word) = item.as_text() {
        return read_word(word, item.at, reader);
    }
    let table = item.table("a value", "\"int\" or { text = 128 }", reader)?;
    table.only(&VALUE_KEYS, reader);
    let value = read_value_table(&table, names, reader);
    if value.is_none() {
        let said = VALUE_KEYS.iter().take(9).any(|key| table.get(key).is_some()) || table.get("is").is_some();
        if !said {
            reader.report(
                item.at,
                "the table does not name the form of the value",
                "{ text = 128 }, { int = [0, 9] }, …",
            );
        }
    }
    value
}

fn read_word(word: &str, at: usize, reader: &mut Reader<'_>) -> Option<Value> {
    let value = value_word(word);
    if value.is_none() {
        let near = hob_units::nearest(word, VALUE_WORDS);
        let suggestion = near.map_or_else(
            || format!("one of {}, or a table such as {{ text = 128 }}", VALUE_WORDS.join(", ")),
            |near| format!("{near:?}"),
        );
        reader.report(at, format!("unknown form of a value {word:?}"), suggestion);
    }
    value
}

fn value_word(word: &str) -> Option<Value> {
    Some(match word {
        "any" => Value::Any,
        "int" => Value::int(),
        "float" => Value::float(),
        "bool" => Value::Bool,
        "rfc3339" => Value::Rfc3339,
        "iso8601" => Value::Iso8601,
        "unix_s" => Value::UnixSeconds,
        "unix_ms" => Value::UnixMillis,
        "json" => Value::Json { form: JsonForm::Any, max_bytes: DEFAULT_JSON_BYTES },
        "hyperloglog" => Value::HyperLogLog,
        "geo" => Value::Geo,
        _ => return None,
    })
}

fn read_value_table(table: &Table<'_>, names: Names<'_>, reader: &mut Reader<'_>) -> Option<Value> {
    if let Some(item) = table.get("is") {
        return read_value(item, names, reader);
    }
    if let Some(item) = table.get("int") {
        let (min, max) = bounds(item, Item::as_int, reader)?;
        return Some(Value::Int { min: min.unwrap_or(i64::MIN), max: max.unwrap_or(i64::MAX) });
    }
    if let Some(item) = table.get("float") {
        let (min, max) = bounds(item, Item::as_float, reader)?;
        return Some(Value::Float {
            min: min.unwrap_or(f64::NEG_INFINITY),
            max: max.unwrap_or(f64::INFINITY),
        });
    }
    if let Some(item) = table.get("enum") {
        return some_words(item, reader).map(Value::OneOf);
    }
    if let Some(item) = table.get("text") {
        return Some(Value::Text { max_bytes: read_count(item, reader)?.value });
    }
    let bytes = |key: &str, reader: &mut Reader<'_>| Some(read_count(table.get(key)?, reader)?.value);
    if let Some(max_bytes) = bytes("bitmap", reader) {
        return Some(Value::Bitmap { max_bytes });
    }
    if let Some(max_bytes) = bytes("msgpack", reader) {
        return Some(Value::MsgPack { max_bytes });
    }
    if let Some(max_bytes) = bytes("protobuf", reader) {
        return Some(Value::Protobuf { max_bytes });
    }
    if let Some(item) = table.get("id") {
        let name = item.text(reader)?;
        let id = names.ids.iter().position(|id| id.name == name);
        if id.is_none() {
            reader.report(item.at, format!("`{name}` is not declared under [ids]"), declared(names.ids));
        }
        return id.map(Value::Id);
    }
    let form = read_json(table.get("json")?, names, reader)?;
    let max_bytes = match table.get("max_bytes") {
        Some(item) => read_count(item, reader)?.value,
        None => DEFAULT_JSON_BYTES,
    };
    Some(Value::Json { form, max_bytes })
}

/// `[0, 100]`; either end may be left open as `"-"`.
fn bounds<'a, T: Copy + PartialOrd>(
    item: Item<'a>,
    read: fn(&Item<'a>) -> Option<T>,
    reader: &mut Reader<'_>,
) -> Option<(Option<T>, Option<T>)> {
    let end = |item: &Item<'a>| match item.as_text() {
        Some("-") => Some(None),
        _ => read(item).map(Some),
    };
    let ends: Option<Vec<Option<T>>> = item.as_list().and_then(|items| items.iter().map(end).collect());
    match ends.as_deref() {
        Some([Some(min), Some(max)]) if min > max => {}
        Some([min, max]) => return Some((*min, *max)),
        _ => {}
    }
    reader.report(
        item.at,
        "expected the smallest and the largest number",
        "[0, 100], or [0, \"-\"] for no end",
    );
    None
}

fn some_words(item: Item<'_>, reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let words = item.texts(reader);
    if words.is_empty() {
        reader.report(item.at, "the list of words is empty", "[\"true\", \"false\"]");
        return None;
    }
    Some(words)
}

fn declared(ids: &[IdRule]) -> String {
    format!("one of {}", ids.iter().map(|id| id.name.as_str()).collect::<Vec<_>>().join(", "))
}

/// The fields of a hash: exact names, `"<id>"` for names that are ids, `"*"` for all others. A word that
/// ends in `?` makes the field optional.
pub(super) fn read_fields(item: Item<'_>, names: Names<'_>, reader: &mut Reader<'_>) -> Vec<Field> {
    let Some(table) = item.table("fields", "{ status_code = \"int\" }", reader) else {
        return Vec::new();
    };
    let mut fields = Vec::new();
    for entry in &table.entries {
        let name = match entry.name.strip_prefix('<').and_then(|name| name.strip_suffix('>')) {
            _ if entry.name == "*" => FieldName::Any,
            None => FieldName::Exact(entry.name.to_owned()),
            Some(id) => match names.ids.iter().position(|rule| rule.name == id) {
                Some(id) => FieldName::Id(id),
                None => {
                    reader.report(
                        entry.at,
                        format!("<{id}> is not declared under [ids]"),
                        declared(names.ids),
                    );
                    continue;
                }
            },
        };
        let named = matches!(name, FieldName::Exact(_));
        let presence = if named { presence(entry.item) } else { Presence::Optional };
        let value = match entry.item.as_text() {
            Some(word) => read_word(word.strip_suffix('?').unwrap_or(word), entry.item.at, reader),
            None => read_value(entry.item, names, reader),
        };
        fields.extend(value.map(|value| Field { name, value, presence }));
    }
    fields
}

/// `[shape.NAME]`: the members of a JSON object. A word that ends in `?` makes the member optional.
pub(super) fn read_shape(table: &Table<'_>, name: &str, names: Names<'_>, reader: &mut Reader<'_>) -> Shape {
    let mut shape = Shape { name: name.to_owned(), members: Vec::new(), others: None };
    for entry in &table.entries {
        let Some(form) = read_json(entry.item, names, reader) else {
            continue;
        };
        if entry.name == "*" {
            shape.others = Some(form);
        } else {
            shape.members.push(Member { name: entry.name.to_owned(), form, presence: presence(entry.item) });
        }
    }
    shape
}

fn presence(item: Item<'_>) -> Presence {
    let flagged = item.as_table("").and_then(|table| table.get("optional")?.value.as_bool());
    let marked = item.as_text().is_some_and(|word| word.ends_with('?'));
    if marked || flagged == Some(true) { Presence::Optional } else { Presence::Required }
}

fn read_json(item: Item<'_>, names: Names<'_>, reader: &mut Reader<'_>) -> Option<JsonForm> {
    if let Some(items) = item.as_list() {
        let [inner] = items.as_slice() else {
            reader.report(item.at, "a list must contain exactly one form, that of its items", "[\"string\"]");
            return None;
        };
        return Some(JsonForm::List(Box::new(read_json(*inner, names, reader)?)));
    }
    if let Some(word) = item.as_text() {
        let word = word.strip_suffix('?').unwrap_or(word);
        return json_word(word, names).or_else(|| {
            let known: Vec<&str> =
                JSON_WORDS.iter().copied().chain(names.shapes.iter().map(String::as_str)).collect();
            let suggestion = hob_units::nearest(word, known.iter().copied())
                .map_or_else(|| format!("one of {}", known.join(", ")), |near| format!("{near:?}"));
            reader.report(item.at, format!("unknown form or shape {word:?}"), suggestion);
            None
        });
    }
    let table = item.table("a JSON form", "\"string\" or [\"string\"]", reader)?;
    table.only(&JSON_KEYS, reader);
    if let Some(item) = table.get("enum") {
        return some_words(item, reader).map(JsonForm::OneOf);
    }
    if let Some(item) = table.get("list") {
        return Some(JsonForm::List(Box::new(read_json(item, names, reader)?)));
    }
    read_json(table.need("shape", "\"message\"", reader)?, names, reader)
}

fn json_word(word: &str, names: Names<'_>) -> Option<JsonForm> {
    Some(match word {
        "any" => JsonForm::Any,
        "string" => JsonForm::Text,
        "int" => JsonForm::Int,
        "number" => JsonForm::Number,
        "bool" => JsonForm::Bool,
        "rfc3339" => JsonForm::Rfc3339,
        "iso8601" => JsonForm::Iso8601,
        "unix_s" => JsonForm::UnixSeconds,
        "unix_ms" => JsonForm::UnixMillis,
        shape if names.shapes.iter().any(|name| name == shape) => JsonForm::Shape(shape.to_owned()),
        _ => return None,
    })
}
