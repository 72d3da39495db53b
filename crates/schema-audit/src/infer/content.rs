//! What the keys of one pattern and one type contain.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hob_schema::check::{Expiry, GroupFacts, Sample};
use hob_schema::{KeyType, Value};

use super::expiry::longest_ttl;
use super::proposal::round_up;
use super::values::{Shapes, ValueStats, toml_text};

/// If a hash has more fields than this, their names are treated as ids.
const MAX_FIELDS: usize = 32;

/// If streams have more consumer groups than this, their names are treated as ids.
const MAX_GROUPS: usize = 32;

#[derive(Debug, Default)]
pub(super) struct ContentStats {
    /// The most elements, or bytes of a string.
    pub(super) longest: u64,
    values: ValueStats,
    scores: Scores,
    fields: FieldStats,
    groups: GroupStats,
}

impl ContentStats {
    /// Adds a key. Without a sample, its value was too long to be read.
    pub(super) fn add(&mut self, sample: Option<&Sample>, len: u64) {
        self.longest = self.longest.max(len);
        match sample {
            None | Some(Sample::Unread) => self.values.add_unread(len),
            Some(Sample::Text(value)) => self.values.add(value),
            Some(Sample::Items(items)) => items.iter().for_each(|item| self.values.add(item)),
            Some(Sample::Scored(members)) => {
                for (member, score) in members {
                    self.values.add(member);
                    self.scores.add(*score);
                }
            }
            Some(Sample::Hash { fields, whole }) => self.fields.add(fields, *whole),
            Some(Sample::Entries(entries)) => entries.iter().for_each(|fields| self.fields.add(fields, true)),
        }
    }

    /// Adds the consumer groups of a stream.
    pub(super) fn add_groups(&mut self, groups: &[GroupFacts]) {
        groups.iter().for_each(|group| self.groups.add(group));
    }

    /// Adds the TTLs of the fields of a hash, after the hash.
    pub(super) fn add_field_ttls(&mut self, fields: &[(Vec<u8>, Expiry)]) {
        self.fields.add_ttls(fields);
    }

    /// Whether keys of this type need no TTL: they are deleted with the last of their fields.
    pub(super) fn all_fields_expire(&self) -> bool {
        self.fields.all_expire()
    }

    pub(super) fn merge(&mut self, other: ContentStats) {
        self.longest = self.longest.max(other.longest);
        self.groups.merge(other.groups);
        self.values.merge(other.values);
        self.scores.merge(&other.scores);
        self.fields.merge(other.fields);
    }

    /// Writes the lines that declare the content of a family.
    pub(super) fn write(&self, family: &str, kind: KeyType, shapes: &mut Shapes, out: &mut String) {
        let mut value = || self.values.form(family, shapes);
        let _ = match kind {
            KeyType::String => writeln!(out, "value    = {}", value()),
            KeyType::List => writeln!(out, "item     = {}", value()),
            KeyType::Set => writeln!(out, "member   = {}", value()),
            KeyType::Zset => writeln!(out, "member   = {}\nscore    = {}", value(), self.scores.form()),
            KeyType::Hash | KeyType::Stream => {
                writeln!(out, "fields   = {}", self.fields.form(family, shapes))
            }
            KeyType::Module => Ok(()),
        };
        if let Some(ttl) = self.fields.ttl() {
            let _ = writeln!(out, "field_ttl = {ttl}");
        }
        self.groups.write(out);
    }

    /// What the values could be, although they do not prove it.
    pub(super) fn suspicions(&self) -> Vec<String> {
        let mut suspicions = Vec::new();
        if self.values.is_opaque() || self.fields.all.is_opaque() {
            suspicions.push(
                "values of unknown form: some are binary; they could be bitmaps or Protocol Buffers"
                    .to_owned(),
            );
        }
        if self.scores.may_be_places() {
            suspicions.push(
                "scores of unknown form: they could be places (`geo`) or times in microseconds".to_owned(),
            );
        }
        suspicions
    }
}

/// The score of a place has 52 bits. Only a small part of the earth has lower scores than this; counts have.
const MIN_PLACE: f64 = (1_u64 << 40) as f64;

#[derive(Debug)]
struct Scores {
    lowest: f64,
    highest: f64,
    /// All of them could be those of places.
    places: bool,
}

impl Default for Scores {
    fn default() -> Self {
        Scores { lowest: f64::INFINITY, highest: f64::NEG_INFINITY, places: true }
    }
}

impl Scores {
    fn add(&mut self, score: f64) {
        self.lowest = self.lowest.min(score);
        self.highest = self.highest.max(score);
        self.places &= score >= MIN_PLACE && Value::Geo.fits_score(score).is_ok();
    }

    fn merge(&mut self, other: &Scores) {
        self.lowest = self.lowest.min(other.lowest);
        self.highest = self.highest.max(other.highest);
        self.places &= other.places;
    }

    fn within(&self, from: f64, to: f64) -> bool {
        from <= self.lowest && self.lowest <= self.highest && self.highest < to
    }

    fn may_be_places(&self) -> bool {
        self.places && self.form() == "\"float\"" && self.lowest <= self.highest
    }

    fn form(&self) -> &'static str {
        if self.within(1e9, 1e10) {
            "\"unix_s\""
        } else if self.within(1e12, 1e13) {
            "\"unix_ms\""
        } else {
            "\"float\""
        }
    }
}

/// The consumer groups of streams.
#[derive(Debug, Default)]
struct GroupStats {
    /// The most pending entries of each group.
    pending: BTreeMap<String, u64>,
    /// Some name is not a text.
    binary: bool,
}

impl GroupStats {
    fn add(&mut self, group: &GroupFacts) {
        match std::str::from_utf8(&group.name) {
            Ok(name) => {
                let most = self.pending.entry(name.to_owned()).or_default();
                *most = group.pending.max(*most);
            }
            Err(_) => self.binary = true,
        }
    }

    fn merge(&mut self, other: GroupStats) {
        self.binary |= other.binary;
        for (name, pending) in other.pending {
            let most = self.pending.entry(name).or_default();
            *most = pending.max(*most);
        }
    }

    fn write(&self, out: &mut String) {
        let Some(most) = self.pending.values().max() else { return };
        if !self.binary && self.pending.len() <= MAX_GROUPS {
            let names: Vec<String> = self.pending.keys().map(|name| toml_text(name)).collect();
            let _ = writeln!(out, "groups   = [{}]", names.join(", "));
        }
        let _ = writeln!(out, "max_pending = {}", round_up(most * 2));
    }
}

/// The fields of hashes, or of the entries of streams.
#[derive(Debug, Default)]
struct FieldStats {
    hashes: u64,
    /// Cleared when there are too many.
    named: BTreeMap<String, FieldFacts>,
    /// The values of all fields.
    all: ValueStats,
    /// Some hash was read in part, or the names are not those of a few fields.
    open: bool,
    ttls: FieldTtls,
}

/// What the fields of one name have in common.
#[derive(Debug, Default)]
struct FieldFacts {
    /// How many hashes have the field.
    hashes: u64,
    values: ValueStats,
    /// Some hash may lose the field, because it has a TTL there.
    expires: bool,
}

/// The TTLs of the fields of hashes.
#[derive(Debug, Default)]
struct FieldTtls {
    longest_ms: u64,
    expiring: u64,
    /// Fields without a TTL.
    lasting: u64,
    /// Some hash was read in part, so its other fields may have no TTL.
    partial: bool,
}

impl FieldStats {
    fn add(&mut self, fields: &[(Vec<u8>, Vec<u8>)], whole: bool) {
        self.hashes += 1;
        self.open |= !whole;
        self.ttls.partial |= !whole;
        for (index, (name, value)) in fields.iter().enumerate() {
            self.all.add(value);
            let name = String::from_utf8_lossy(name);
            let plain = !name.is_empty()
                && name.len() <= 64
                && name.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-'));
            self.open |= !plain;
            if self.open {
                continue;
            }
            // An entry of a stream may have a field twice.
            let first = !fields[..index].iter().any(|(earlier, _)| earlier == name.as_bytes());
            let field = self.named.entry(name.into_owned()).or_default();
            field.hashes += u64::from(first);
            field.values.add(value);
        }
        self.close_if_many();
    }

    fn add_ttls(&mut self, fields: &[(Vec<u8>, Expiry)]) {
        for (name, expiry) in fields {
            match expiry {
                Expiry::InMillis(ms) => {
                    self.ttls.expiring += 1;
                    self.ttls.longest_ms = self.ttls.longest_ms.max(*ms);
                    let field = std::str::from_utf8(name).ok().and_then(|name| self.named.get_mut(name));
                    if let Some(field) = field {
                        field.expires = true;
                    }
                }
                Expiry::Never | Expiry::Unknown => self.ttls.lasting += 1,
            }
        }
    }

    fn all_expire(&self) -> bool {
        self.ttls.expiring > 0 && self.ttls.lasting == 0 && !self.ttls.partial
    }

    /// The rule for the TTLs of fields, if some field has one.
    fn ttl(&self) -> Option<String> {
        let longest = longest_ttl(self.ttls.longest_ms);
        match () {
            () if self.ttls.expiring == 0 => None,
            () if self.all_expire() => Some(format!("{{ max = \"{longest}\" }}")),
            () => Some(format!("{{ late = \"{longest}\", why = \"TODO\" }}")),
        }
    }

    fn merge(&mut self, other: FieldStats) {
        self.hashes += other.hashes;
        self.open |= other.open;
        self.all.merge(other.all);
        for (name, field) in other.named {
            let own = self.named.entry(name).or_default();
            own.hashes += field.hashes;
            own.values.merge(field.values);
            own.expires |= field.expires;
        }
        self.ttls.longest_ms = self.ttls.longest_ms.max(other.ttls.longest_ms);
        self.ttls.expiring += other.ttls.expiring;
        self.ttls.lasting += other.ttls.lasting;
        self.ttls.partial |= other.ttls.partial;
        self.close_if_many();
    }

    fn close_if_many(&mut self) {
        self.open |= self.named.len() > MAX_FIELDS;
        if self.open {
            self.named.clear();
        }
    }

    fn form(&self, family: &str, shapes: &mut Shapes) -> String {
        if self.open || self.named.is_empty() {
            return format!("{{ \"*\" = {} }}", self.all.form(family, shapes));
        }
        let mut words = Vec::new();
        for (name, field) in &self.named {
            let value =
                field.values.form(&format!("{family}_{}", name.replace('-', "_").to_lowercase()), shapes);
            let optional = field.hashes < self.hashes || field.expires;
            let value = match value.strip_suffix('"') {
                Some(word) if optional => format!("{word}?\""),
                None if optional => {
                    format!("{}, optional = true }}", value.trim_end_matches('}').trim_end())
                }
                _ => value,
            };
            words.push(format!("{name} = {value}"));
        }
        format!("{{ {} }}", words.join(", "))
    }
}
