//! `[key.NAME]` and `[channel.NAME]`.

use super::limit::{read_count, read_duration};
use super::table::{Item, Reader, Table};
use super::value::{Names, read_fields, read_value};
use crate::model::pattern::Pattern;
use crate::model::value::Value;
use crate::model::{
    Allow, Channel, Content, Example, Family, Field, FieldName, KeyType, Presence, Renewal, Role,
    StreamRules, Tag, Ttl, TtlRule,
};

pub(crate) const FAMILY_KEYS: [&str; 26] = [
    "pattern",
    "type",
    "also",
    "value",
    "fields",
    "item",
    "member",
    "score",
    "max_len",
    "max_keys",
    "ttl",
    "field_ttl",
    "groups",
    "max_pending",
    "max_age",
    "tag",
    "role",
    "with",
    "sums",
    "writers",
    "contract",
    "purpose",
    "note",
    "example",
    "allow",
    "unconfirmed",
];
/// The type of a module is written with its name: `module:ReJSON-RL`.
const MODULE: &str = "module:";
pub(crate) const CHANNEL_KEYS: [&str; 5] = ["name", "payload", "contract", "purpose", "note"];
pub(crate) const TTL_KEYS: [&str; 9] =
    ["max", "exact", "range", "none", "late", "why", "after", "backstop", "renewed"];
pub(crate) const ALLOW_KEYS: [&str; 2] = ["rule", "reason"];

pub(super) fn read_family(
    name: &str,
    table: &Table<'_>,
    names: Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Family> {
    table.only(&FAMILY_KEYS, reader);
    let pattern = table
        .need("pattern", "\"user:<userId>:online\"", reader)
        .and_then(|item| read_pattern(item, names, reader));
    let content = read_content(table, names, reader);
    let max_len = table.get("max_len").and_then(|item| read_count(item, reader));
    match (&content, table.get("max_len")) {
        (Some(Content::String(_)), Some(item)) => {
            reader.report(item.at, "a string has no `max_len`", "value = { text = 4096 }");
        }
        (Some(Content::Module(_)), Some(item)) => {
            reader.report(item.at, "the length of a module's type is unknown", "no `max_len`");
        }
        _ => {}
    }
    let (pattern, mut content) = (pattern?, content?);
    only_for(table, &["groups", "max_pending", "max_age"], &content, KeyType::Stream, reader);
    only_for(table, &["field_ttl"], &content, KeyType::Hash, reader);
    // To check their TTLs, the fields have to be read.
    if let Content::Hash(fields) = &mut content
        && fields.is_empty()
        && table.get("field_ttl").is_some()
    {
        fields.push(Field { name: FieldName::Any, value: Value::Any, presence: Presence::Optional });
    }
    Some(Family {
        name: name.to_owned(),
        content,
        also: read_also(table, reader),
        max_len,
        max_keys: table.get("max_keys").and_then(|item| read_count(item, reader)),
        ttl: read_ttl(table.get("ttl"), reader),
        field_ttl: table.get("field_ttl").map(|item| read_ttl(Some(item), reader).rule),
        stream: StreamRules {
            groups: table.get("groups").map(|item| item.texts(reader)),
            max_pending: table.get("max_pending").and_then(|item| read_count(item, reader)),
            max_age: table.get("max_age").and_then(|item| read_duration(item, reader)),
        },
        tag: read_tag(table.get("tag"), &pattern, names, reader),
        role: table.get("role").and_then(|item| read_role(item, reader)),
        with: texts(table, "with", reader),
        sums: table.text("sums", reader),
        writers: texts(table, "writers", reader),
        contract: texts(table, "contract", reader),
        purpose: table.text("purpose", reader),
        note: table.text("note", reader),
        example: table.get("example").map(|item| read_example(item, reader)),
        allow: read_allow(table.get("allow"), reader),
        unconfirmed: texts(table, "unconfirmed", reader),
        position: reader.source().position(table.at),
        pattern,
    })
}

pub(super) fn read_channel(
    name: &str,
    table: &Table<'_>,
    names: Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Channel> {
    table.only(&CHANNEL_KEYS, reader);
    let item = table.need("name", "\"events:message.created\"", reader)?;
    let (env, pattern) = match item.as_table("a channel name") {
        None => (None, item),
        Some(table) => {
            table.only(&["env", "default"], reader);
            let env = table.need("env", "\"CHANNEL\"", reader).and_then(|item| item.text(reader));
            (env, table.need("default", "\"events:message.created\"", reader)?)
        }
    };
    let payload = match table.get("payload") {
        Some(item) => read_value(item, names, reader)?,
        None => Value::Any,
    };
    Some(Channel {
        name: name.to_owned(),
        pattern: read_pattern(pattern, names, reader)?,
        env,
        renamed: None,
        payload,
        contract: texts(table, "contract", reader),
        purpose: table.text("purpose", reader),
        note: table.text("note", reader),
        position: reader.source().position(table.at),
    })
}

/// Reports keys that another type of family has.
fn only_for(table: &Table<'_>, keys: &[&str], content: &Content, kind: KeyType, reader: &mut Reader<'_>) {
    for key in keys {
        if let Some(item) = table.get(key)
            && content.kind() != kind
        {
            let message = format!("a {} has no `{key}`", content.kind().as_str());
            reader.report(item.at, message, format!("type = \"{}\"", kind.as_str()));
        }
    }
}

fn texts(table: &Table<'_>, name: &str, reader: &mut Reader<'_>) -> Vec<String> {
    table.get(name).map(|item| item.texts(reader)).unwrap_or_default()
}

fn read_pattern(item: Item<'_>, names: Names<'_>, reader: &mut Reader<'_>) -> Option<Pattern> {
    match Pattern::parse(&item.text(reader)?, names.ids) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            // Adds one for the quote. Escapes in a pattern would shift the position, but patterns do not need escapes.
            let at = item.at + 1 + error.offset;
            reader.report(at, error.message, error.suggestion);
            None
        }
    }
}

fn read_content(table: &Table<'_>, names: Names<'_>, reader: &mut Reader<'_>) -> Option<Content> {
    let item = table.need("type", "\"string\"", reader)?;
    let (kind, name) = read_type(&item.text(reader)?, item, reader)?;
    let belongs: &[&str] = match kind {
        KeyType::String => &["value"],
        KeyType::Hash => &["fields"],
        KeyType::List => &["item"],
        KeyType::Set => &["member"],
        KeyType::Zset => &["member", "score"],
        KeyType::Stream => &["fields"],
        KeyType::Module => &[],
    };
    for key in ["value", "fields", "item", "member", "score"] {
        if let Some(item) = table.get(key)
            && !belongs.contains(&key)
        {
            let message = format!("a {} has no `{key}`", kind.as_str());
            match belongs {
                [] => reader.report_without_suggestion(item.at, message),
                _ => reader.report(item.at, message, format!("`{}`", belongs.join("` and `"))),
            }
        }
    }
    let value = |key: &str, reader: &mut Reader<'_>| match table.get(key) {
        Some(item) => {
            let value = read_value(item, names, reader)?;
            if value == Value::Geo && key != "score" {
                reader.report(item.at, "\"geo\" is the form of a score", "score = \"geo\" of a sorted set");
            }
            Some(value)
        }
        None => Some(Value::Any),
    };
    let fields = |reader: &mut Reader<'_>| {
        table.get("fields").map(|item| read_fields(item, names, reader)).unwrap_or_default()
    };
    Some(match kind {
        KeyType::String => Content::String(value("value", reader)?),
        KeyType::Hash => Content::Hash(fields(reader)),
        KeyType::Stream => Content::Stream(fields(reader)),
        KeyType::Module => Content::Module(name),
        KeyType::List => Content::List(value("item", reader)?),
        KeyType::Set => Content::Set(value("member", reader)?),
        KeyType::Zset => Content::Zset { member: value("member", reader)?, score: value("score", reader)? },
    })
}

/// A type, and its name as `TYPE` replies it.
fn read_type(text: &str, item: Item<'_>, reader: &mut Reader<'_>) -> Option<(KeyType, String)> {
    if let Some(name) = text.strip_prefix(MODULE).filter(|name| !name.is_empty()) {
        return Some((KeyType::Module, name.to_owned()));
    }
    match text.parse::<KeyType>() {
        Ok(kind) if kind != KeyType::Module => Some((kind, text.to_owned())),
        _ => {
            let all = KeyType::ALL.map(|kind| match kind {
                KeyType::Module => "module:NAME",
                kind => kind.as_str(),
            });
            reader.report(item.at, format!("unknown type {text:?}"), format!("one of {}", all.join(", ")));
            None
        }
    }
}

fn read_also(table: &Table<'_>, reader: &mut Reader<'_>) -> Vec<String> {
    let Some(item) = table.get("also") else { return Vec::new() };
    let types = item.texts(reader);
    types.iter().filter_map(|text| Some(read_type(text, item, reader)?.1)).collect()
}

fn read_ttl(item: Option<Item<'_>>, reader: &mut Reader<'_>) -> Ttl {
    let undeclared = Ttl { rule: TtlRule::Undeclared, renewal: Renewal::Unspecified };
    let example = "{ max = \"1h\" }, { exact = \"1h\" }, { range = [\"5m\", \"1d\"] } or { none = \"why\" }";
    let Some(item) = item else { return undeclared };
    let Some(table) = item.table("ttl", example, reader) else {
        return undeclared;
    };
    table.only(&TTL_KEYS, reader);
    let renewal = match table.get("renewed").and_then(|item| item.flag(reader)) {
        None => Renewal::Unspecified,
        Some(true) => Renewal::EachWrite,
        Some(false) => Renewal::Never,
    };
    let rules: Vec<&str> = ["max", "exact", "range", "none", "late", "after"]
        .into_iter()
        .filter(|key| table.get(key).is_some())
        .collect();
    let rule = match rules.as_slice() {
        ["max"] => limit(&table, "max", reader).map(TtlRule::Max),
        ["exact"] => limit(&table, "exact", reader).map(TtlRule::Exact),
        ["range"] => read_range(&table, reader),
        ["none"] => table.text("none", reader).map(|why| TtlRule::None { why }),
        ["late"] => read_late(&table, reader),
        ["max" | "exact", "after"] => read_after(&table, rules[0], reader),
        _ => {
            reader.report(item.at, "the TTL needs exactly one rule", example);
            None
        }
    };
    Ttl { rule: rule.unwrap_or(TtlRule::Undeclared), renewal }
}

fn limit(
    table: &Table<'_>,
    key: &str,
    reader: &mut Reader<'_>,
) -> Option<crate::model::Limit<std::time::Duration>> {
    table.get(key).and_then(|item| read_duration(item, reader))
}

fn read_range(table: &Table<'_>, reader: &mut Reader<'_>) -> Option<TtlRule> {
    let item = table.get("range")?;
    let ends = item.as_list().unwrap_or_default();
    let [min, max] = ends.as_slice() else {
        reader.report(item.at, "a range must have two values", "[\"5m\", \"1d\"]");
        return None;
    };
    let (min, max) = (read_duration(*min, reader)?, read_duration(*max, reader)?);
    if min.value > max.value {
        reader.report(item.at, "the range ends before it starts", "the shorter duration first");
        return None;
    }
    Some(TtlRule::Range(min, max))
}

fn read_late(table: &Table<'_>, reader: &mut Reader<'_>) -> Option<TtlRule> {
    let max = limit(table, "late", reader)?;
    let why = table.need("why", "\"has no TTL while its instance lives\"", reader)?.text(reader)?;
    Some(TtlRule::Late { max, why })
}

fn read_after(table: &Table<'_>, key: &str, reader: &mut Reader<'_>) -> Option<TtlRule> {
    Some(TtlRule::After {
        keep: limit(table, key, reader)?,
        event: table.text("after", reader)?,
        backstop: limit(table, "backstop", reader),
    })
}

fn read_tag(item: Option<Item<'_>>, pattern: &Pattern, names: Names<'_>, reader: &mut Reader<'_>) -> Tag {
    let Some(item) = item else { return Tag::Undeclared };
    let mut placeholder = |item: Item<'_>, name: &str| {
        let id = pattern.ids().find(|id| names.ids[*id].name == name);
        if id.is_none() {
            let message = format!("{:?} has no placeholder <{name}>", pattern.text);
            reader.report(item.at, message, "a placeholder of the pattern, \"shard\", or { none = \"why\" }");
        }
        id
    };
    match item.as_text() {
        Some("shard") => return Tag::Shard { by: None },
        Some(name) => return placeholder(item, name).map_or(Tag::Undeclared, Tag::Id),
        None => {}
    }
    let example = "\"userId\", \"shard\", { shard_by = \"monitor_id\" } or { none = \"why\" }";
    let Some(table) = item.as_table("tag") else {
        reader.report(item.at, "the tag is not a table", example);
        return Tag::Undeclared;
    };
    match table.entries.as_slice() {
        [entry] if entry.name == "shard_by" => {
            let by = entry.item.as_text().and_then(|name| placeholder(entry.item, name));
            Tag::Shard { by }
        }
        [entry] if entry.name == "none" => {
            entry.item.text(reader).map_or(Tag::Undeclared, |why| Tag::Single { why })
        }
        _ => {
            reader.report(item.at, "unknown tag", example);
            Tag::Undeclared
        }
    }
}

/// A text, or the fields of a hash with their texts.
fn read_example(item: Item<'_>, reader: &mut Reader<'_>) -> Example {
    let position = reader.source().position(item.at);
    let values = match item.as_table("example") {
        None => item.text(reader).into_iter().map(|text| (None, text)).collect(),
        Some(table) => table
            .entries
            .iter()
            .filter_map(|entry| Some((Some(entry.name.to_owned()), entry.item.text(reader)?)))
            .collect(),
    };
    Example { values, position }
}

fn read_role(item: Item<'_>, reader: &mut Reader<'_>) -> Option<Role> {
    let text = item.text(reader)?;
    let role = text.parse::<Role>().ok();
    if role.is_none() {
        let all = Role::ALL.map(Role::as_str).join(", ");
        reader.report(item.at, format!("unknown role {text:?}"), format!("one of {all}"));
    }
    role
}

pub(super) fn read_allow(item: Option<Item<'_>>, reader: &mut Reader<'_>) -> Vec<Allow> {
    let Some(item) = item else { return Vec::new() };
    let items = item.as_list().unwrap_or_else(|| vec![item]);
    let mut allows = Vec::new();
    for item in items {
        let example = "{ rule = \"no-prefix\", reason = \"…\" }";
        let Some(table) = item.table("allow", example, reader) else {
            continue;
        };
        table.only(&ALLOW_KEYS, reader);
        let rule = table.need("rule", "\"no-prefix\"", reader).and_then(|item| item.text(reader));
        let reason = table.need("reason", "\"…\"", reader).and_then(|item| item.text(reader));
        if let (Some(rule), Some(reason)) = (rule, reason) {
            allows.push(Allow { rule, reason, position: reader.source().position(item.at) });
        }
    }
    allows
}
