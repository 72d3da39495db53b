//! Builds the keys of a schema under a prefix and a layout.

use crate::model::id::{IdRule, SEPARATOR};
use crate::model::pattern::{Pattern, Segment};
use crate::model::{Schema, Tag};

/// Whether keys have hash tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Keys as documented, without hash tags.
    #[default]
    Plain,
    /// Braces around the entity that a script works on, so that its keys share a Cluster slot.
    Tagged,
}

/// One of the shards that a global key has under the tagged layout; the plain layout has only the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard(u32);

impl Shard {
    pub fn number(self) -> u32 {
        self.0
    }
}

/// A schema with the prefix and the layout that one deployment uses.
#[derive(Clone, Debug)]
pub struct Keyspace {
    schema: Schema,
    layout: Layout,
    families: Vec<Template>,
    channels: Vec<Template>,
}

impl Keyspace {
    /// The schema's own prefix is used: see [`Schema::apply_env`].
    pub fn new(schema: Schema, layout: Layout) -> Keyspace {
        let prefix = schema.prefix.value.as_str();
        let families = schema
            .families
            .iter()
            .map(|family| Template::new(&family.pattern, &family.tag, prefix, layout))
            .collect();
        let channels = schema
            .channels
            .iter()
            .map(|channel| Template::new(&channel.pattern, &Tag::Undeclared, prefix, Layout::Plain))
            .collect();
        Keyspace { schema, layout, families, channels }
    }

    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Every shard of a global key.
    pub fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        (0..self.shard_count()).map(Shard)
    }

    /// The shard of this number, if there is one.
    pub fn shard(&self, number: u32) -> Option<Shard> {
        (number < self.shard_count()).then_some(Shard(number))
    }

    /// The shard that an entity belongs to, the same on every node.
    pub fn shard_of(&self, id: &str) -> Shard {
        // FNV-1a gives the same result on every node. The mixing at the end distributes ids that differ only in their
        // last digit.
        let mut hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
            hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
        }
        hash ^= hash >> 33;
        Shard(u32::try_from(hash % u64::from(self.shard_count())).unwrap_or(0))
    }

    fn shard_count(&self) -> u32 {
        match self.layout {
            Layout::Plain => 1,
            Layout::Tagged => u32::try_from(self.schema.shards.value).unwrap_or(u32::MAX).max(1),
        }
    }

    /// The key of a family, by index, for ids that were checked. Typed constructors call this.
    pub fn key(&self, family: usize, ids: &[&str], shard: Option<Shard>) -> String {
        let shard = match (&self.schema.families[family].tag, shard) {
            (_, Some(shard)) => shard,
            (Tag::Shard { by: Some(by) }, None) => {
                let position = self.schema.families[family].pattern.ids().position(|id| id == *by);
                position.map_or(Shard(0), |position| self.shard_of(ids[position]))
            }
            _ => Shard(0),
        };
        self.families[family].render(ids, shard, &self.schema.ids)
    }

    /// The name of a channel, by index, for ids that were checked.
    pub fn channel(&self, channel: usize, ids: &[&str]) -> String {
        if let Some(name) = &self.schema.channels[channel].renamed {
            return name.clone();
        }
        self.channels[channel].render(ids, Shard(0), &self.schema.ids)
    }

    /// The glob of a family for SCAN MATCH.
    pub fn glob(&self, family: usize) -> Vec<u8> {
        self.families[family].glob()
    }

    /// The glob of a channel for PSUBSCRIBE.
    pub fn channel_glob(&self, channel: usize) -> Vec<u8> {
        match &self.schema.channels[channel].renamed {
            Some(name) => Template { parts: vec![Part::Literal(name.as_bytes().to_vec())] }.glob(),
            None => self.channels[channel].glob(),
        }
    }

    pub(crate) fn templates(&self) -> &[Template] {
        &self.families
    }

    pub(crate) fn channel_templates(&self) -> &[Template] {
        &self.channels
    }
}

/// A pattern under a prefix and a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(Vec<u8>),
    Id(usize),
    /// The number of a shard.
    Shard,
}

impl Template {
    pub(crate) fn new(pattern: &Pattern, tag: &Tag, prefix: &str, layout: Layout) -> Template {
        let mut template = Template { parts: Vec::new() };
        template.literal(prefix.as_bytes());
        let tagged = layout == Layout::Tagged;
        let mut shard_due = tagged && matches!(tag, Tag::Shard { .. });
        let braced = if let Tag::Id(id) = tag { tagged.then_some(*id) } else { None };
        for segment in &pattern.segments {
            match segment {
                Segment::Literal(text) => template.literal(text.as_bytes()),
                Segment::Id(id) => {
                    if std::mem::take(&mut shard_due) {
                        template.shard();
                        template.literal(&[SEPARATOR]);
                    }
                    // A pattern with its own tag keeps it.
                    let own_tag = template.ends_with(b'{');
                    let brace = braced == Some(*id) && !own_tag;
                    template.literal(if brace { b"{" } else { b"" });
                    template.parts.push(Part::Id(*id));
                    template.literal(if brace { b"}" } else { b"" });
                }
            }
        }
        if shard_due {
            template.literal(&[SEPARATOR]);
            template.shard();
        }
        template
    }

    fn shard(&mut self) {
        self.literal(b"{");
        self.parts.push(Part::Shard);
        self.literal(b"}");
    }

    fn literal(&mut self, bytes: &[u8]) {
        match self.parts.last_mut() {
            _ if bytes.is_empty() => {}
            Some(Part::Literal(text)) => text.extend_from_slice(bytes),
            _ => self.parts.push(Part::Literal(bytes.to_vec())),
        }
    }

    fn ends_with(&self, byte: u8) -> bool {
        matches!(self.parts.last(), Some(Part::Literal(text)) if text.ends_with(&[byte]))
    }

    /// The literal prefix of every key of the template.
    pub(crate) fn head(&self) -> &[u8] {
        match self.parts.first() {
            Some(Part::Literal(text)) => text,
            _ => &[],
        }
    }

    pub(crate) fn render(&self, ids: &[&str], shard: Shard, rules: &[IdRule]) -> String {
        let mut key = Vec::with_capacity(64);
        let mut ids = ids.iter();
        for part in &self.parts {
            match part {
                Part::Literal(text) => key.extend_from_slice(text),
                Part::Shard => key.extend_from_slice(shard.0.to_string().as_bytes()),
                Part::Id(rule) => {
                    if let Some(id) = ids.next() {
                        rules[*rule].encode_into(id, &mut key);
                    }
                }
            }
        }
        String::from_utf8(key).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    fn glob(&self) -> Vec<u8> {
        let mut glob = Vec::new();
        for part in &self.parts {
            match part {
                Part::Id(_) | Part::Shard => glob.push(b'*'),
                Part::Literal(text) => {
                    for byte in text {
                        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\') {
                            glob.push(b'\\');
                        }
                        glob.push(*byte);
                    }
                }
            }
        }
        glob
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_layout_has_one_shard_and_the_tagged_one_as_many_as_declared() {
        let text = "[schema]\nname = \"t\"\nversion = 1\nshards = 16\n";
        let schema = Schema::parse("t.toml", text).unwrap();
        for (layout, count) in [(Layout::Plain, 1), (Layout::Tagged, 16)] {
            let space = Keyspace::new(schema.clone(), layout);
            assert_eq!(space.shards().count(), count);
            assert_eq!((0..99).filter_map(|number| space.shard(number)).count(), count);
            let mut ids_of = vec![0; count];
            for id in 0..1_600 {
                ids_of[space.shard_of(&format!("monitor_{id}")).number() as usize] += 1;
            }
            let fair = 1_600 / count * 7 / 10..=1_600 / count * 13 / 10;
            assert!(ids_of.iter().all(|ids| fair.contains(ids)), "{ids_of:?}");
        }
    }
}
