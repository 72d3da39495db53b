//! The positions of the values in a valid document.
//!
//! It is created only when an error needs a position. The parsers limit nesting, so the recursion here is limited as
//! well.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_saphyr::Spanned as YamlSpanned;
use toml::de::{DeTable, DeValue};

use crate::mistake::Position;

/// A value, its start, and the values in it.
#[derive(Debug)]
pub(crate) struct Outline {
    start: Start,
    inner: Inner,
}

#[derive(Clone, Copy, Debug)]
enum Start {
    Byte(usize),
    Position(Position),
}

#[derive(Debug)]
enum Inner {
    Leaf,
    List(Vec<Outline>),
    Map(Vec<(String, Outline)>),
}

impl Outline {
    pub(crate) fn of_json(text: &str) -> Option<Self> {
        json(text, serde_json::from_str(text).ok()?)
    }

    pub(crate) fn of_toml(text: &str) -> Option<Self> {
        let root = DeTable::parse(text).ok()?;
        Some(Self { start: Start::Byte(0), inner: table(root.get_ref()) })
    }

    pub(crate) fn of_yaml(text: &str, options: serde_saphyr::Options) -> Option<Self> {
        let root: YamlNode = serde_saphyr::from_str_with_options(text, options).ok()?;
        Some(root.0)
    }

    /// The start of a field, or of its innermost existing parent.
    pub(crate) fn position(&self, text: &str, field: &str) -> Position {
        match self.find(field).start {
            Start::Byte(byte) => Position::of_byte(text, byte),
            Start::Position(position) => position,
        }
    }

    fn find(&self, field: &str) -> &Self {
        let inner = match &self.inner {
            Inner::Leaf => None,
            Inner::List(items) => {
                after_index(field).and_then(|(index, rest)| Some((items.get(index)?, rest)))
            }
            // A key may contain a dot or a bracket; the longest matching key wins.
            Inner::Map(members) => members
                .iter()
                .filter_map(|(key, inner)| Some((key.len(), inner, after_key(field, key)?)))
                .max_by_key(|(length, ..)| *length)
                .map(|(_, inner, rest)| (inner, rest)),
        };
        inner.map_or(self, |(inner, rest)| inner.find(rest))
    }
}

/// The rest of a path after a leading index.
fn after_index(path: &str) -> Option<(usize, &str)> {
    let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest.strip_prefix('.').unwrap_or(rest)))
}

/// The rest of a path after a leading key.
fn after_key<'p>(path: &'p str, key: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(key)?;
    match rest.as_bytes().first() {
        None | Some(b'[') => Some(rest),
        Some(b'.') => Some(&rest[1..]),
        Some(_) => None,
    }
}

fn json(text: &str, raw: &RawValue) -> Option<Outline> {
    let inner = match raw.get().as_bytes().first()? {
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
            Inner::List(items.into_iter().map(|item| json(text, item)).collect::<Option<_>>()?)
        }
        b'{' => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).ok()?;
            let member = |(key, value)| Some((key, json(text, value)?));
            Inner::Map(members.into_iter().map(member).collect::<Option<_>>()?)
        }
        _ => Inner::Leaf,
    };
    // A raw value borrows from the text.
    let start = (raw.get().as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    Some(Outline { start: Start::Byte(start), inner })
}

fn table(table: &DeTable<'_>) -> Inner {
    let member = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        // The position of the key, because the span of a table may cover only its header.
        let start = Start::Byte(key.span().start.min(value.span().start));
        (name.to_string(), Outline { start, inner: inner(value.get_ref()) })
    };
    Inner::Map(table.iter().map(member).collect())
}

fn inner(value: &DeValue<'_>) -> Inner {
    match value {
        DeValue::Table(inner) => table(inner),
        DeValue::Array(items) => Inner::List(
            items
                .iter()
                .map(|item| Outline { start: Start::Byte(item.span().start), inner: inner(item.get_ref()) })
                .collect(),
        ),
        _ => Inner::Leaf,
    }
}

struct YamlNode(Outline);

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = YamlSpanned::<YamlInner>::deserialize(deserializer)?;
        let position = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).max(1);
        let start =
            Position { line: position(node.referenced.line()), column: position(node.referenced.column()) };
        Ok(Self(Outline { start: Start::Position(start), inner: node.value.0 }))
    }
}

struct YamlInner(Inner);

impl<'de> Deserialize<'de> for YamlInner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor).map(Self)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = Inner;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Inner, E> {
        Ok(Inner::Leaf)
    }

    fn visit_none<E: de::Error>(self) -> Result<Inner, E> {
        Ok(Inner::Leaf)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Inner, D::Error> {
        deserializer.deserialize_any(Self)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Inner, E> {
        Ok(Inner::Leaf)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Inner, E> {
        Ok(Inner::Leaf)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Inner, E> {
        Ok(Inner::Leaf)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Inner, E> {
        Ok(Inner::Leaf)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Inner, E> {
        Ok(Inner::Leaf)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Inner, A::Error> {
        let mut list = Vec::new();
        while let Some(YamlNode(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Inner::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Inner, A::Error> {
        let mut map = Vec::new();
        while let Some((key, YamlNode(value))) = members.next_entry::<String, _>()? {
            map.push((key, value));
        }
        Ok(Inner::Map(map))
    }
}
