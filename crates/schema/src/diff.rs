//! Compares two versions of a schema: which edits are compatible, need a migration of the data, or break programs that
//! still use the old version.

mod forms;
mod limits;

use std::fmt::Write as _;

use serde::Serialize;

use crate::model::pattern::Segment;
use crate::model::{Channel, Content, Family, Field, FieldName, Limit, Presence, Schema, Tag, TtlRule};
use crate::parse::source::Position;
use crate::units::format_duration;
use forms::{Fit, id_fit, json_fit, value_fit};

/// What an edit affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// A program with the old schema reads what it does not expect.
    Readers,
    /// A program with the old schema writes what the new schema forbids.
    Writers,
    /// Keys that exist already break the new schema.
    Data,
}

hob_units::names!(Effect { Readers = "readers", Writers = "writers", Data = "data" });

/// How an edit must be rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Compatible,
    Migration,
    Breaking,
}

hob_units::names!(Class { Compatible = "compatible", Migration = "migration", Breaking = "breaking" });

/// One edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub class: Class,
    pub effects: Vec<Effect>,
    /// The file of the new version.
    pub file: String,
    #[serde(flatten)]
    pub position: Position,
    /// `key.recent`, `ids.userId`, `channel.events`, `shape.message` or `schema`.
    pub subject: String,
    /// What changed, and why it has this class.
    pub message: String,
}

/// All edits between two versions, the most severe first.
pub fn diff(old: &Schema, new: &Schema) -> Vec<Change> {
    let mut differ = Differ { old, new, changes: Vec::new() };
    differ.head();
    differ.ids();
    differ.families();
    differ.channels();
    differ.shapes();
    let mut changes = differ.changes;
    changes.sort_by(|left, right| right.class.cmp(&left.class).then(left.position.cmp(&right.position)));
    changes
}

/// The edits as text; the last line counts them.
pub fn report_text(changes: &[Change]) -> String {
    let mut text = String::new();
    for change in changes {
        let effects: Vec<&str> = change.effects.iter().map(|effect| effect.as_str()).collect();
        let effects = if effects.is_empty() { String::new() } else { format!(" for {}", effects.join(", ")) };
        let (class, position) = (change.class.as_str(), change.position);
        let _ = writeln!(
            text,
            "{}:{}:{}: {class}{effects}: {}: {}",
            change.file, position.line, position.column, change.subject, change.message
        );
    }
    let count = |class| changes.iter().filter(|change| change.class == class).count();
    let (breaking, migration) = (count(Class::Breaking), count(Class::Migration));
    let _ =
        writeln!(text, "{breaking} breaking, {migration} migration, {} compatible", count(Class::Compatible));
    text
}

const EVERYTHING: &[Effect] = &[Effect::Readers, Effect::Writers, Effect::Data];
const WRITES: &[Effect] = &[Effect::Writers, Effect::Data];

struct Differ<'s> {
    old: &'s Schema,
    new: &'s Schema,
    changes: Vec<Change>,
}

/// What a change is about.
#[derive(Clone, Copy)]
struct Subject<'s> {
    kind: &'static str,
    name: &'s str,
    position: Position,
}

impl<'s> Differ<'s> {
    fn change(&mut self, subject: Subject<'_>, effects: &[Effect], message: impl Into<String>) {
        let class = match effects {
            [] => Class::Compatible,
            [Effect::Data] => Class::Migration,
            _ => Class::Breaking,
        };
        let dot = if subject.name.is_empty() { "" } else { "." };
        self.changes.push(Change {
            class,
            effects: effects.to_vec(),
            file: self.new.file.clone(),
            position: subject.position,
            subject: format!("{}{dot}{}", subject.kind, subject.name),
            message: message.into(),
        });
    }

    fn head(&mut self) {
        let (old, new) = (self.old, self.new);
        let subject = Subject { kind: "schema", name: "", position: new.position };
        if old.prefix.value != new.prefix.value {
            let message = format!(
                "the prefix {:?} became {:?}: every key has another name",
                old.prefix.value, new.prefix.value
            );
            self.change(subject, EVERYTHING, message);
        }
        if old.prefix.env != new.prefix.env {
            let message = "another variable sets the prefix: deployments that set it use other keys";
            self.change(subject, EVERYTHING, message);
        }
        if old.shards.value != new.shards.value {
            let message = format!(
                "{} shards became {}: in the tagged layout, keys move to other shards",
                old.shards.value, new.shards.value
            );
            self.change(subject, EVERYTHING, message);
        }
    }

    /// Ids of the same name. An id that was added or removed changes patterns or values, and is reported there.
    fn ids(&mut self) {
        let (old, new) = (self.old, self.new);
        for id in &new.ids {
            let Some(before) = old.id(&id.name) else { continue };
            let subject = Subject { kind: "ids", name: &id.name, position: id.position };
            self.fit(subject, id_fit(before, id), "the id");
        }
    }

    fn families(&mut self) {
        let (old, new) = (self.old, self.new);
        for family in &new.families {
            let subject = Subject { kind: "key", name: &family.name, position: family.position };
            let by_pattern = || old.families.iter().find(|other| self.same_keys(other, family));
            match old.family(&family.name).or_else(by_pattern) {
                Some(before) => self.family(before, family, subject),
                None => self.change(subject, &[], "is new"),
            }
        }
        for family in &old.families {
            let kept = |other: &Family| other.name == family.name || self.same_keys(family, other);
            if !new.families.iter().any(kept) {
                let subject = Subject { kind: "key", name: &family.name, position: new.position };
                let message =
                    format!("was removed: keys like {:?} are not declared any more", family.pattern.text);
                self.change(subject, EVERYTHING, message);
            }
        }
    }

    /// Whether two families of the two versions have the same keys, whatever their placeholders are called.
    fn same_keys(&self, old: &Family, new: &Family) -> bool {
        self.same_pattern(&old.pattern.segments, &new.pattern.segments)
    }

    fn same_pattern(&self, old: &[Segment], new: &[Segment]) -> bool {
        old.len() == new.len()
            && old.iter().zip(new).all(|pair| match pair {
                (Segment::Literal(old), Segment::Literal(new)) => old == new,
                (Segment::Id(old), Segment::Id(new)) => {
                    let (old, new) = (&self.old.ids[*old], &self.new.ids[*new]);
                    old.name == new.name || id_fit(old, new) == Fit::Same
                }
                _ => false,
            })
    }

    fn family(&mut self, old: &'s Family, new: &'s Family, subject: Subject<'_>) {
        let before = self.changes.len();
        if old.name != new.name {
            self.change(subject, &[], format!("was called `{}`; the keys are the same", old.name));
        }
        if !self.same_keys(old, new) {
            let message = format!(
                "the pattern {:?} became {:?}: the keys have other names",
                old.pattern.text, new.pattern.text
            );
            self.change(subject, EVERYTHING, message);
        }
        if tag_name(self.old, old) != tag_name(self.new, new) {
            let message = "the tag changed: in the tagged layout the keys have other names";
            self.change(subject, EVERYTHING, message);
        }
        self.content(old, new, subject);
        self.ttl(&old.ttl.rule, &new.ttl.rule, subject);
        self.field_ttl(old, new, subject);
        self.stream(&old.stream, &new.stream, subject);
        self.limit(old.max_len.as_ref(), new.max_len.as_ref(), "max_len", WRITES, subject);
        self.limit(old.max_keys.as_ref(), new.max_keys.as_ref(), "max_keys", &[Effect::Data], subject);
        if self.changes.len() == before && words(old) != words(new) {
            self.change(subject, &[], "only its description changed");
        }
    }

    fn content(&mut self, old: &Family, new: &Family, subject: Subject<'_>) {
        let value = |differ: &mut Self, old, new, name: &str| {
            let fit = value_fit((old, differ.old), (new, differ.new));
            differ.fit(subject, fit, name);
        };
        match (&old.content, &new.content) {
            (Content::String(old), Content::String(new)) => value(self, old, new, "the value"),
            (Content::List(old), Content::List(new)) => value(self, old, new, "the item"),
            (Content::Set(old), Content::Set(new)) => value(self, old, new, "the member"),
            (Content::Zset { member, score }, Content::Zset { member: new_member, score: new_score }) => {
                value(self, member, new_member, "the member");
                value(self, score, new_score, "the score");
            }
            (Content::Hash(old), Content::Hash(new)) | (Content::Stream(old), Content::Stream(new)) => {
                self.fields(old, new, subject);
            }
            (old_content, new_content) if old_content == new_content => {}
            _ => {
                let message = format!(
                    "the type {} became {}: commands for the old type fail with WRONGTYPE",
                    old.type_name(),
                    new.type_name()
                );
                self.change(subject, EVERYTHING, message);
            }
        }
        for removed in old.also.iter().filter(|also| !new.also.contains(also)) {
            self.change(subject, WRITES, format!("keys of the type {removed} are not allowed any more"));
        }
        for added in new.also.iter().filter(|also| !old.also.contains(also)) {
            self.change(subject, &[Effect::Readers], format!("keys may now have the type {added}"));
        }
    }

    fn fields(&mut self, old: &[Field], new: &[Field], subject: Subject<'_>) {
        for field in new {
            let name = field_name(self.new, &field.name);
            let Some(before) = old.iter().find(|other| field_name(self.old, &other.name) == name) else {
                match field.presence {
                    Presence::Required if matches!(field.name, FieldName::Exact(_)) => {
                        let message = format!("the required field {name} is new: existing keys lack it");
                        self.change(subject, WRITES, message);
                    }
                    _ => self.change(subject, &[], format!("the optional field {name} is new")),
                }
                continue;
            };
            match (before.presence, field.presence) {
                (Presence::Required, Presence::Optional) => self.change(
                    subject,
                    &[Effect::Readers],
                    format!("the field {name} may now be missing; readers expect it"),
                ),
                (Presence::Optional, Presence::Required) => self.change(
                    subject,
                    WRITES,
                    format!("the field {name} is now required; some keys lack it"),
                ),
                _ => {}
            }
            let fit = value_fit((&before.value, self.old), (&field.value, self.new));
            self.fit(subject, fit, &format!("the field {name}"));
        }
        for field in old {
            let name = field_name(self.old, &field.name);
            if new.iter().any(|other| field_name(self.new, &other.name) == name) {
                continue;
            }
            let effects = if field.presence == Presence::Required { EVERYTHING } else { WRITES };
            self.change(subject, effects, format!("the field {name} was removed"));
        }
    }

    fn ttl(&mut self, old: &TtlRule, new: &TtlRule, subject: Subject<'_>) {
        if old == new {
            return;
        }
        let expires = |rule: &TtlRule| rule.longest().is_some();
        match (old.longest(), new.longest()) {
            (None, Some(_)) if new.required() => {
                let message = "keys must now expire; existing keys and old writers set no TTL";
                self.change(subject, &[Effect::Readers, Effect::Writers, Effect::Data], message);
            }
            (Some(_), None) => {
                let message =
                    "keys do not expire any more; readers may rely on it, and old writers set a TTL";
                self.change(subject, EVERYTHING, message);
            }
            (Some(before), Some(after)) if after < before => {
                let message = format!(
                    "the longest TTL {} became {}: existing keys and old writers exceed it",
                    format_duration(before),
                    format_duration(after)
                );
                self.change(subject, WRITES, message);
            }
            (Some(before), Some(after)) if after > before => {
                let (before, after) = (format_duration(before), format_duration(after));
                self.change(subject, &[], format!("the longest TTL {before} became {after}"));
            }
            _ if !old.required() && new.required() => {
                self.change(subject, WRITES, "a TTL is now required; some keys have none");
            }
            _ if old.required() && !new.required() && expires(new) => {
                let message = "keys may now lack a TTL; readers may rely on it";
                self.change(subject, &[Effect::Readers], message);
            }
            _ => self.change(subject, &[], "the rule for the TTL allows the same keys"),
        }
    }

    fn limit(
        &mut self,
        old: Option<&Limit<u64>>,
        new: Option<&Limit<u64>>,
        name: &str,
        lowered: &[Effect],
        subject: Subject<'_>,
    ) {
        match (old.map(|limit| limit.value), new.map(|limit| limit.value)) {
            (before, after) if before == after => {}
            (None, Some(after)) => {
                self.change(subject, lowered, format!("`{name}` is new: keys may exceed {after}"));
            }
            (Some(before), Some(after)) if after < before => {
                let message = format!("`{name}` {before} became {after}: keys may exceed it");
                self.change(subject, lowered, message);
            }
            (Some(before), Some(after)) => {
                self.change(subject, &[], format!("`{name}` {before} became {after}"));
            }
            (before, None) => {
                let before = before.unwrap_or_default();
                self.change(subject, &[], format!("the limit `{name}` {before} was removed"));
            }
        }
    }

    fn channels(&mut self) {
        let (old, new) = (self.old, self.new);
        for channel in &new.channels {
            let subject = Subject { kind: "channel", name: &channel.name, position: channel.position };
            match old.channel(&channel.name) {
                None => self.change(subject, &[], "is new"),
                Some(before) => self.channel(before, channel, subject),
            }
        }
        for channel in old.channels.iter().filter(|channel| new.channel(&channel.name).is_none()) {
            let subject = Subject { kind: "channel", name: &channel.name, position: new.position };
            let message = "was removed: subscribers get nothing, and publishers use an undeclared channel";
            self.change(subject, &[Effect::Readers, Effect::Writers], message);
        }
    }

    /// Redis does not store messages, so an edit needs no migration.
    fn channel(&mut self, old: &Channel, new: &Channel, subject: Subject<'_>) {
        if !self.same_pattern(&old.pattern.segments, &new.pattern.segments) || old.env != new.env {
            let message = format!("the name {:?} became {:?}", old.pattern.text, new.pattern.text);
            self.change(subject, &[Effect::Readers, Effect::Writers], message);
        }
        match value_fit((&old.payload, self.old), (&new.payload, self.new)) {
            Fit::Same => {}
            Fit::Wider => self.change(subject, &[Effect::Readers], "the payload has a wider form"),
            Fit::Narrower => self.change(subject, &[Effect::Writers], "the payload has a narrower form"),
            Fit::Other => {
                self.change(subject, &[Effect::Readers, Effect::Writers], "the payload has another form");
            }
        }
    }

    /// A shape is reported once, not for each family that uses it.
    fn shapes(&mut self) {
        let (old, new) = (self.old, self.new);
        for shape in &new.shapes {
            let Some(before) = old.shape(&shape.name) else { continue };
            let subject = Subject { kind: "shape", name: &shape.name, position: new.position };
            for member in &shape.members {
                let name = format!("the member {:?}", member.name);
                match before.members.iter().find(|other| other.name == member.name) {
                    None if member.presence == Presence::Required => {
                        self.change(subject, WRITES, format!("{name} is new and required"));
                    }
                    // Old readers refuse members that are not declared, unless the shape is open.
                    None if before.others.is_none() => {
                        let message = format!("{name} is new; readers that refuse unknown members fail");
                        self.change(subject, &[Effect::Readers], message);
                    }
                    None => self.change(subject, &[], format!("{name} is new")),
                    Some(other) => {
                        match (other.presence, member.presence) {
                            (Presence::Required, Presence::Optional) => {
                                self.change(
                                    subject,
                                    &[Effect::Readers],
                                    format!("{name} may now be missing"),
                                );
                            }
                            (Presence::Optional, Presence::Required) => {
                                self.change(subject, WRITES, format!("{name} is now required"));
                            }
                            _ => {}
                        }
                        self.fit(subject, json_fit(&other.form, &member.form), &name);
                    }
                }
            }
            for member in &before.members {
                if !shape.members.iter().any(|other| other.name == member.name) {
                    let required = member.presence == Presence::Required;
                    let effects = if required { EVERYTHING } else { WRITES };
                    self.change(subject, effects, format!("the member {:?} was removed", member.name));
                }
            }
            if before.others != shape.others {
                let message = "the rule for other members changed";
                self.change(subject, EVERYTHING, message);
            }
        }
    }

    fn fit(&mut self, subject: Subject<'_>, fit: Fit, name: &str) {
        match fit {
            Fit::Same => {}
            Fit::Wider => {
                let message = format!("{name} has a wider form: readers may find values that they refuse");
                self.change(subject, &[Effect::Readers], message);
            }
            Fit::Narrower => {
                let message = format!("{name} has a narrower form: some values do not fit any more");
                self.change(subject, WRITES, message);
            }
            Fit::Other => self.change(subject, EVERYTHING, format!("{name} has another form")),
        }
    }
}

/// The tag without the indexes, which differ between the two versions.
fn tag_name(schema: &Schema, family: &Family) -> String {
    match &family.tag {
        Tag::Undeclared | Tag::Single { .. } => String::new(),
        Tag::Id(id) => format!("id {}", family.pattern.ids().position(|other| other == *id).unwrap_or(0)),
        Tag::Shard { by: None } => "shard".to_owned(),
        Tag::Shard { by: Some(id) } => format!("shard by {}", schema.ids[*id].name),
    }
}

fn field_name(schema: &Schema, name: &FieldName) -> String {
    match name {
        FieldName::Exact(name) => format!("{name:?}"),
        FieldName::Id(id) => format!("<{}>", schema.ids[*id].name),
        FieldName::Any => "*".to_owned(),
    }
}

/// What a family says to people and to lint.
fn words(family: &Family) -> String {
    format!(
        "{:?}",
        (
            (&family.purpose, &family.note, &family.writers, &family.contract, family.role),
            (&family.with, &family.sums, &family.unconfirmed),
            family.allow.iter().map(|allow| (&allow.rule, &allow.reason)).collect::<Vec<_>>(),
            family.example.as_ref().map(|example| &example.values),
        )
    )
}
