//! Descriptions of TTLs, bounds and values for the pages. Code is in backticks.

use crate::model::id::{IdForm, IdRule};
use crate::model::value::{JsonForm, Value};
use crate::model::{Content, EnvVar, Family, FieldName, Limit, Presence, Renewal, Schema, Tag, TtlRule};
use crate::units::{format_count, format_duration, format_size};

/// Short enough for a table.
pub fn ttl(rule: &TtlRule) -> String {
    match rule {
        TtlRule::Undeclared => "?".into(),
        TtlRule::Max(limit) => format!("≤ {}", format_duration(limit.value)),
        TtlRule::Exact(limit) => format_duration(limit.value),
        TtlRule::Range(min, max) => {
            format!("{} – {}", format_duration(min.value), format_duration(max.value))
        }
        TtlRule::None { .. } => "none".into(),
        TtlRule::Late { max, .. } => format!("none, later ≤ {}", format_duration(max.value)),
        TtlRule::After { keep, event, .. } => format!("{} after {event}", format_duration(keep.value)),
    }
}

/// A sentence or two.
pub fn ttl_sentence(family: &Family) -> String {
    let mut text = rule_sentence(&family.ttl.rule);
    match family.ttl.renewal {
        Renewal::Unspecified => {}
        Renewal::EachWrite => text += " Each write renews it.",
        Renewal::Never => text += " Writes do not renew it.",
    }
    text
}

pub(super) fn rule_sentence(rule: &TtlRule) -> String {
    match rule {
        TtlRule::Undeclared => "not declared.".to_owned(),
        TtlRule::Max(limit) => format!("always set, at most {}.", duration(limit)),
        TtlRule::Exact(limit) => format!("always set, to {}.", duration(limit)),
        TtlRule::Range(min, max) => format!("always set, from {} to {}.", duration(min), duration(max)),
        TtlRule::None { why } => format!("none. {why}"),
        TtlRule::Late { max, why } => format!("none at first, at most {} later. {why}", duration(max)),
        TtlRule::After { event, keep, backstop } => {
            let until = backstop.as_ref().map(|backstop| format!(", and {} until then", duration(backstop)));
            format!("{} after {event}{}.", duration(keep), until.unwrap_or_default())
        }
    }
}

pub(super) fn duration(limit: &Limit<std::time::Duration>) -> String {
    format!("{}{}", format_duration(limit.value), env(limit.env.as_ref()))
}

pub fn count(limit: &Limit<u64>) -> String {
    format!("{}{}", format_count(limit.value), env(limit.env.as_ref()))
}

fn env(env: Option<&EnvVar>) -> String {
    match env {
        Some(EnvVar { name, unit: Some(unit) }) => format!(" (`{name}`, in {unit})"),
        Some(EnvVar { name, unit: None }) => format!(" (`{name}`)"),
        None => String::new(),
    }
}

/// Short enough for a table.
pub fn bound(family: &Family) -> String {
    let len = family.max_len.as_ref().map(|limit| format!("{} long", format_count(limit.value)));
    let keys = family.max_keys.as_ref().map(|limit| format!("{} keys", format_count(limit.value)));
    let words: Vec<String> = len.into_iter().chain(keys).collect();
    if words.is_empty() { "one key".into() } else { words.join(", ") }
}

pub fn content(content: &Content, schema: &Schema) -> String {
    match content {
        Content::String(shape) => format!("string, {}", value(shape, schema)),
        Content::Hash(_) => "hash with the fields below".into(),
        Content::List(item) => format!("list of {}", each(item, schema)),
        Content::Set(member) => format!("set of {}", each(member, schema)),
        Content::Zset { member, score } => {
            format!("sorted set; member {}, score {}", value(member, schema), value(score, schema))
        }
        Content::Stream(_) => "stream; each entry has the fields below".into(),
        Content::Module(name) => format!("the type `{name}` of a module"),
    }
}

/// A value of which a key has many.
fn each(shape: &Value, schema: &Schema) -> String {
    match shape {
        Value::Id(id) => format!("`{}`", schema.ids[*id].name),
        Value::Json { form, max_bytes } => {
            format!("JSON {}, each at most {}", json(form), format_size(*max_bytes))
        }
        shape => value(shape, schema),
    }
}

pub fn field_name(name: &FieldName, schema: &Schema) -> String {
    match name {
        FieldName::Exact(name) => format!("`{name}`"),
        FieldName::Id(id) => format!("each `<{}>`", schema.ids[*id].name),
        FieldName::Any => "any other".into(),
    }
}

pub fn presence(presence: Presence) -> &'static str {
    match presence {
        Presence::Required => "",
        Presence::Optional => ", optional",
    }
}

pub fn value(value: &Value, schema: &Schema) -> String {
    match value {
        Value::Any => "any bytes".into(),
        Value::Int { min: i64::MIN, max: i64::MAX } => "a whole number".into(),
        Value::Int { min, max: i64::MAX } => format!("a whole number from {min}"),
        Value::Int { min, max } => format!("a whole number from {min} to {max}"),
        Value::Float { min, max } if min.is_infinite() && max.is_infinite() => "a number".into(),
        Value::Float { min, max } if max.is_infinite() => format!("a number from {min}"),
        Value::Float { min, max } => format!("a number from {min} to {max}"),
        Value::Bool => "`0` or `1`".into(),
        Value::OneOf(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or "),
        Value::Text { max_bytes } => format!("text of at most {}", format_size(*max_bytes)),
        Value::Rfc3339 => "an RFC 3339 time".into(),
        Value::Iso8601 => "an ISO 8601 time".into(),
        Value::UnixSeconds => "Unix seconds".into(),
        Value::UnixMillis => "Unix milliseconds".into(),
        Value::Id(id) => format!("a `{}`", schema.ids[*id].name),
        Value::Json { form, max_bytes } => {
            format!("JSON {}, at most {}", json(form), format_size(*max_bytes))
        }
        Value::Bitmap { max_bytes } => format!("a bitmap of at most {}", format_size(*max_bytes)),
        Value::HyperLogLog => "a HyperLogLog".into(),
        Value::MsgPack { max_bytes } => format!("MessagePack of at most {}", format_size(*max_bytes)),
        Value::Protobuf { max_bytes } => {
            format!("a Protocol Buffers message of at most {}", format_size(*max_bytes))
        }
        Value::Geo => "a place (geohash)".into(),
    }
}

pub fn json(form: &JsonForm) -> String {
    match form {
        JsonForm::Any => "of any shape".into(),
        JsonForm::Text => "text".into(),
        JsonForm::Int => "whole number".into(),
        JsonForm::Number => "number".into(),
        JsonForm::Bool => "true or false".into(),
        JsonForm::Rfc3339 => "RFC 3339 time".into(),
        JsonForm::Iso8601 => "ISO 8601 time".into(),
        JsonForm::UnixSeconds => "Unix seconds".into(),
        JsonForm::UnixMillis => "Unix milliseconds".into(),
        JsonForm::OneOf(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        JsonForm::List(item) => format!("list of {}", json(item)),
        JsonForm::Shape(name) => format!("[`{name}`](#shape-{name})"),
    }
}

pub fn id(rule: &IdRule) -> String {
    let mut words = vec![match &rule.form {
        IdForm::OneOf(all) => {
            format!("one of {}", all.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "))
        }
        IdForm::Text(_) => format!("text, at most {} bytes", rule.max),
        form => form.describe(),
    }];
    if !rule.not.is_empty() {
        words.push(format!(
            "never {}",
            rule.not.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        ));
    }
    if let Some(of) = &rule.of {
        words.push(format!("another encoding of `{of}`"));
    }
    if rule.holds_separator() {
        words.push("may contain colons".into());
    }
    words.join("; ")
}

pub fn tag(family: &Family, schema: &Schema) -> String {
    match &family.tag {
        Tag::Undeclared => "not declared".into(),
        Tag::Id(id) => format!("one for each `{}`", schema.ids[*id].name),
        Tag::Shard { by: Some(id) } => format!("the shard of the `{}`", schema.ids[*id].name),
        Tag::Shard { by: None } => format!("one for each of {} shards", schema.shards.value),
        Tag::Single { why } => format!("its own. {why}"),
    }
}
