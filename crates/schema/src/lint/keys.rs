//! Rules about the names of keys: prefix, ids, braces, spaces.

use super::{Linter, Subject};
use crate::model::id::{IdForm, IdRule, RawChars};
use crate::model::pattern::Segment;
use crate::model::value::Value;
use crate::model::{Content, FieldName, Schema};

pub(super) fn check(linter: &mut Linter<'_>) {
    let schema = linter.schema;
    if schema.prefix.value.is_empty() {
        let subject = Subject { kind: "schema", name: "", position: schema.position, allow: &schema.allow };
        linter.find("no-prefix", subject, "keys have no prefix");
    }
    for (index, id) in schema.ids.iter().enumerate() {
        check_id(linter, index, id);
    }
    for family in &schema.families {
        let subject =
            Subject { kind: "key", name: &family.name, position: family.position, allow: &family.allow };
        if has_loose_braces(&family.pattern.segments) {
            let message = format!("the braces in {:?} enclose no placeholder", family.pattern.text);
            linter.find("accidental-tag", subject, message);
        }
        if family
            .pattern
            .segments
            .iter()
            .any(|part| matches!(part, Segment::Literal(text) if text.contains(' ')))
        {
            linter.find(
                "space-in-key",
                subject,
                format!("the literal text of {:?} has a space", family.pattern.text),
            );
        }
    }
}

fn check_id(linter: &mut Linter<'_>, index: usize, id: &IdRule) {
    let schema = linter.schema;
    let subject = Subject { kind: "ids", name: &id.name, position: id.position, allow: &id.allow };
    if !is_used(schema, index, id) {
        linter.find("unused-id", subject, "is not used by any pattern, field or value");
        return;
    }
    if id.holds_separator() {
        linter.find("separator-in-id", subject, "may contain the separator");
    }
    if let Some(of) = &id.of {
        linter.find("two-encodings", subject, format!("is another encoding of `{of}`"));
    }
    let (slash, space) = match id.form {
        IdForm::Text(RawChars { slash, space, .. }) => (slash, space),
        IdForm::Endpoint { space } => (true, space == b' '),
        _ => (false, false),
    };
    if slash {
        linter.find("raw-path", subject, "may contain a path");
    }
    if space {
        linter.find("space-in-key", subject, "may contain a space");
    }
}

/// Whether there are braces other than around one placeholder.
fn has_loose_braces(segments: &[Segment]) -> bool {
    let mut open = false;
    for (position, segment) in segments.iter().enumerate() {
        let Segment::Literal(text) = segment else { continue };
        let after_id = position > 0;
        let mut rest = text.as_str();
        if open {
            match rest.strip_prefix('}') {
                Some(after) if after_id => rest = after,
                _ => return true,
            }
            open = false;
        }
        if position + 1 < segments.len()
            && let Some(before) = rest.strip_suffix('{')
        {
            rest = before;
            open = true;
        }
        if rest.contains(['{', '}']) {
            return true;
        }
    }
    open
}

fn is_used(schema: &Schema, index: usize, id: &IdRule) -> bool {
    let in_value = |value: &Value| matches!(value, Value::Id(used) if *used == index);
    let in_content = |content: &Content| match content {
        Content::String(value) | Content::List(value) | Content::Set(value) => in_value(value),
        Content::Zset { member, score } => in_value(member) || in_value(score),
        Content::Module(_) => false,
        Content::Hash(fields) | Content::Stream(fields) => {
            fields.iter().any(|field| field.name == FieldName::Id(index) || in_value(&field.value))
        }
    };
    schema
        .families
        .iter()
        .any(|family| family.pattern.ids().any(|used| used == index) || in_content(&family.content))
        || schema.channels.iter().any(|channel| channel.pattern.ids().any(|used| used == index))
        || schema.ids.iter().any(|other| other.of.as_ref() == Some(&id.name))
}
