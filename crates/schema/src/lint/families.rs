//! Rules about TTLs, bounds, values, tags and purposes.

use std::collections::BTreeSet;

use super::{Linter, Subject};
use crate::model::value::Value;
use crate::model::{Content, Family, KeyType, Renewal, Role, Schema, Tag, TtlRule};

pub(super) fn check(linter: &mut Linter<'_>) {
    let schema = linter.schema;
    for family in &schema.families {
        let subject =
            Subject { kind: "key", name: &family.name, position: family.position, allow: &family.allow };
        check_ttl(linter, family, subject);
        check_bounds(linter, family, subject);
        check_tags(linter, family, subject);
        if samples_collapse(family) {
            linter.find("sample-as-member", subject, "equal samples become one member");
        }
        if family.purpose.as_deref().is_none_or(|purpose| purpose.trim().is_empty()) {
            linter.find("no-purpose", subject, "has no `purpose`");
        }
        if !family.also.is_empty() {
            let types = [family.type_name()].into_iter().chain(family.also.iter().map(String::as_str));
            linter.find(
                "mixed-types",
                subject,
                format!("its keys have several types: {}", types.collect::<Vec<_>>().join(", ")),
            );
        }
        for suspicion in &family.unconfirmed {
            linter.find("unconfirmed", subject, suspicion);
        }
    }
    check_todo_purposes(linter);
    check_channels(linter);
    check_purposes(linter);
}

/// The purpose that `infer` writes. One finding for all of them, so that they do not hide the others.
fn check_todo_purposes(linter: &mut Linter<'_>) {
    let schema = linter.schema;
    let todo = |family: &&Family| family.purpose.as_deref().is_some_and(|purpose| purpose.trim() == "TODO");
    let families: Vec<&Family> = schema.families.iter().filter(todo).collect();
    let Some(first) = families.first() else { return };
    let names: Vec<&str> = families.iter().take(3).map(|family| family.name.as_str()).collect();
    let more = if families.len() > names.len() { ", …" } else { "" };
    let count =
        if families.len() == 1 { "1 family has".into() } else { format!("{} families have", families.len()) };
    let message = format!("{count} the purpose TODO: {}{more}", names.join(", "));
    let subject = Subject { kind: "schema", name: "", position: first.position, allow: &schema.allow };
    linter.find("no-purpose", subject, message);
}

fn check_ttl(linter: &mut Linter<'_>, family: &Family, subject: Subject<'_>) {
    match &family.ttl.rule {
        TtlRule::Undeclared => linter.find("ttl-missing", subject, "has no `ttl`"),
        TtlRule::None { why } if why.trim().is_empty() => {
            linter.find("ttl-missing", subject, "never expires and gives no reason");
        }
        TtlRule::After { event, backstop: None, .. } => {
            linter.find("no-backstop", subject, format!("has a TTL only after {event}"));
        }
        _ => {}
    }
    let expires = family.ttl.rule.longest().is_some();
    if expires && family.role == Some(Role::Window) && family.ttl.renewal == Renewal::EachWrite {
        linter.find("renewed-window", subject, "each write restarts the window");
    }
    if expires && is_buffer(family) {
        linter.find("expiring-buffer", subject, "entries are lost when no reader comes before they expire");
    }
}

/// A buffer or queue by its role, else by its name.
fn is_buffer(family: &Family) -> bool {
    match family.role {
        Some(role) => matches!(role, Role::Buffer | Role::Queue),
        None => family
            .pattern
            .text
            .split(':')
            .any(|word| matches!(word, "buffer" | "queue" | "pending" | "outbox")),
    }
}

fn check_bounds(linter: &mut Linter<'_>, family: &Family, subject: Subject<'_>) {
    let bounded = matches!(family.kind(), KeyType::String | KeyType::Module);
    let by_age = family.stream.max_age.is_some();
    if !bounded && !by_age && family.max_len.is_none() && !has_only_exact_fields(family) {
        linter.find("no-cap", subject, format!("a {} without `max_len`", family.kind().as_str()));
    }
    let has_groups = family.stream.groups.as_ref().is_some_and(|groups| !groups.is_empty());
    if has_groups && family.stream.max_pending.is_none() {
        linter.find("no-max-pending", subject, "has consumer groups but no `max_pending`");
    }
    if family.max_keys.is_none() && family.pattern.ids().next().is_some() {
        linter.find("no-max-keys", subject, "has placeholders but no `max_keys`");
    }
}

/// A hash whose fields are all named is bounded by them.
fn has_only_exact_fields(family: &Family) -> bool {
    match &family.content {
        Content::Hash(fields) => {
            !fields.is_empty()
                && fields.iter().all(|field| matches!(field.name, crate::model::FieldName::Exact(_)))
        }
        _ => false,
    }
}

fn samples_collapse(family: &Family) -> bool {
    let Content::Zset { member, score } = &family.content else {
        return false;
    };
    matches!(member, Value::Int { .. } | Value::Float { .. })
        && matches!(score, Value::UnixMillis | Value::UnixSeconds)
}

fn check_tags(linter: &mut Linter<'_>, family: &Family, subject: Subject<'_>) {
    let schema = linter.schema;
    for name in &family.with {
        let Some(other) = schema.family(name) else {
            continue;
        };
        if !share_a_slot(schema, family, other) {
            let message = format!("used together with `{name}`, which has another tag");
            linter.find("no-common-tag", subject, message);
        }
    }
}

fn share_a_slot(schema: &Schema, left: &Family, right: &Family) -> bool {
    let name = |id: usize| &schema.ids[id].name;
    match (&left.tag, &right.tag) {
        (Tag::Id(left), Tag::Id(right)) => name(*left) == name(*right),
        (Tag::Shard { by: Some(left) }, Tag::Shard { by: Some(right) }) => name(*left) == name(*right),
        (Tag::Shard { .. }, Tag::Shard { .. }) => true,
        _ => false,
    }
}

fn check_channels(linter: &mut Linter<'_>) {
    let schema = linter.schema;
    for channel in &schema.channels {
        if channel.purpose.as_deref().is_none_or(|purpose| purpose.trim().is_empty()) {
            let subject =
                Subject { kind: "channel", name: &channel.name, position: channel.position, allow: &[] };
            linter.find("no-purpose", subject, "has no `purpose`");
        }
    }
}

fn check_purposes(linter: &mut Linter<'_>) {
    let schema = linter.schema;
    for (later, family) in schema.families.iter().enumerate() {
        for earlier in &schema.families[..later] {
            if have_similar_purpose(earlier, family) {
                let subject = Subject {
                    kind: "key",
                    name: &family.name,
                    position: family.position,
                    allow: &family.allow,
                };
                linter.find(
                    "same-purpose",
                    subject,
                    format!("`{}` has nearly the same purpose", earlier.name),
                );
            }
        }
    }
}

/// Whether two purposes use nearly the same words.
fn have_similar_purpose(left: &Family, right: &Family) -> bool {
    let words = |family: &Family| -> BTreeSet<String> {
        let text = family.purpose.as_deref().unwrap_or_default().to_lowercase();
        text.split(|char: char| !char.is_alphanumeric())
            .filter(|word| word.len() > 3)
            .map(ToOwned::to_owned)
            .collect()
    };
    let (left, right) = (words(left), words(right));
    let (shared, all) = (left.intersection(&right).count(), left.union(&right).count());
    shared >= 2 && shared * 5 >= all * 4
}
