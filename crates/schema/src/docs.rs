//! The documentation page of a schema, in Markdown.

mod memory;
pub mod words;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::examples::{example_key, example_publish, example_read, example_write, shell_words};
use crate::keyspace::{Keyspace, Layout};
use crate::model::{Content, Family, Schema, StreamRules, Tag};
use crate::units::format_size;

/// The whole page.
pub fn markdown(schema: &Schema) -> String {
    let page = Page {
        plain: Keyspace::new(schema.clone(), Layout::Plain),
        tagged: Keyspace::new(schema.clone(), Layout::Tagged),
        schema,
    };
    let mut out = String::new();
    page.head(&mut out);
    page.overview(&mut out);
    page.ids(&mut out);
    page.families(&mut out);
    page.channels(&mut out);
    page.shapes(&mut out);
    page.memory(&mut out);
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// The estimated bytes of one key with `items` elements like its example.
pub fn estimated_bytes(space: &Keyspace, family: usize, items: u64) -> u64 {
    let key_len = example_key(space, family).len();
    memory::key_bytes(space.schema(), &space.schema().families[family], key_len, items)
}

struct Page<'s> {
    schema: &'s Schema,
    plain: Keyspace,
    tagged: Keyspace,
}

// Writing into a String cannot fail, so the results of writeln! are dropped throughout.
impl Page<'_> {
    fn head(&self, out: &mut String) {
        let schema = self.schema;
        let file = std::path::Path::new(&schema.file)
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into());
        let _ = writeln!(out, "# Keys of `{}`\n", schema.name);
        let _ =
            writeln!(out, "<!-- Generated from schemas/{file} by `hob schema docs`; edit that file. -->\n");
        let paragraph = [schema.purpose.as_deref(), schema.note.as_deref()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ");
        let _ = writeln!(out, "{paragraph}\n");
        let prefix = match schema.prefix.value.as_str() {
            "" => "Keys have no prefix".to_owned(),
            prefix => format!("Every key starts with `{prefix}`"),
        };
        let other = if schema.prefix.value.is_empty() { "one" } else { "another" };
        let env = schema.prefix.env.as_ref().map(|env| format!("; `{env}` sets {other}")).unwrap_or_default();
        let _ = writeln!(out, "{prefix}{env}. Version {} of the schema.\n", schema.version);
    }

    fn overview(&self, out: &mut String) {
        let _ =
            writeln!(out, "## Overview\n\n| key | type | TTL | bound | contract |\n|---|---|---|---|---|");
        for family in &self.schema.families {
            let _ = writeln!(
                out,
                "| [`{}`](#{}) | {} | {} | {} | {} |",
                family.pattern.text,
                family.name,
                family.type_name(),
                words::ttl(&family.ttl.rule),
                words::bound(family),
                family.contract.join(" ")
            );
        }
        for channel in &self.schema.channels {
            let row = (&channel.pattern.text, &channel.name, channel.contract.join(" "));
            let _ = writeln!(out, "| [`{}`](#{}) | channel | | | {} |", row.0, row.1, row.2);
        }
        out.push('\n');
    }

    fn ids(&self, out: &mut String) {
        if self.schema.ids.is_empty() {
            return;
        }
        let _ = writeln!(out, "## Ids\n\n| placeholder | value | example |\n|---|---|---|");
        for id in &self.schema.ids {
            let note = id.note.as_ref().map(|note| format!(". {note}")).unwrap_or_default();
            let _ = writeln!(out, "| `<{}>` | {}{note} | `{}` |", id.name, words::id(id), id.example);
        }
        let _ = writeln!(
            out,
            "\nCharacters with a special meaning (`:` `/` `*` `?` `[` `]` `{{` `}}` `\\` `%`, quotes, spaces, control \
             characters) are percent-encoded unless the table says otherwise.\n"
        );
    }

    fn families(&self, out: &mut String) {
        let _ = writeln!(out, "## Keys\n");
        for (index, family) in self.schema.families.iter().enumerate() {
            self.family(index, family, out);
        }
    }

    fn stream(&self, rules: &StreamRules, out: &mut String) {
        if let Some(groups) = &rules.groups {
            let groups: Vec<String> = groups.iter().map(|group| format!("`{group}`")).collect();
            let groups = if groups.is_empty() { "none".to_owned() } else { groups.join(", ") };
            let _ = writeln!(out, "- **Consumer groups**: {groups}.");
        }
        if let Some(limit) = &rules.max_pending {
            let _ = writeln!(out, "- **Pending entries** of each group: at most {}.", words::count(limit));
        }
        if let Some(limit) = &rules.max_age {
            let _ = writeln!(out, "- **Age of the oldest entry**: at most {}.", words::duration(limit));
        }
    }

    fn family(&self, index: usize, family: &Family, out: &mut String) {
        let schema = self.schema;
        let _ = writeln!(out, "### {}\n\n`{}{}`\n", family.name, schema.prefix.value, family.pattern.text);
        if let Some(purpose) = &family.purpose {
            let _ = writeln!(out, "{purpose}\n");
        }
        let _ = writeln!(out, "- **Holds**: {}.", words::content(&family.content, schema));
        if let Content::Hash(fields) | Content::Stream(fields) = &family.content {
            for field in fields {
                let (name, value) =
                    (words::field_name(&field.name, schema), words::value(&field.value, schema));
                let _ = writeln!(out, "  - {name}: {value}{}", words::presence(field.presence));
            }
        }
        let _ = writeln!(out, "- **TTL**: {}", words::ttl_sentence(family));
        if let Some(rule) = &family.field_ttl {
            let _ = writeln!(out, "- **TTL of each field**: {}", words::rule_sentence(rule));
        }
        self.stream(&family.stream, out);
        if let Some(limit) = &family.max_len {
            let _ = writeln!(out, "- **Length**: at most {}.", words::count(limit));
        }
        if let Some(limit) = &family.max_keys {
            let _ = writeln!(out, "- **Keys**: at most {}.", words::count(limit));
        }
        let (tagged, slot) = (example_key(&self.tagged, index), words::tag(family, schema));
        let slot = slot.trim_end_matches('.');
        let _ = writeln!(out, "- **Slot** under the tagged layout: `{tagged}`, {slot}.");
        if let Some(sums) = &family.sums {
            let _ = writeln!(out, "- **Sum of**: [`{sums}`](#{sums}).");
        }
        let _ = writeln!(
            out,
            "- **Written by**: {}. **Contract**: {}.",
            none_if_empty(&family.writers),
            none_if_empty(&family.contract)
        );
        for allow in &family.allow {
            let _ = writeln!(out, "- **Exception** to `{}`: {}", allow.rule, allow.reason);
        }
        if let Some(note) = &family.note {
            let _ = writeln!(out, "\n{note}");
        }
        let _ = writeln!(out, "\n```sh");
        for command in example_write(&self.plain, index).iter().chain([&example_read(&self.plain, index)]) {
            let _ = writeln!(out, "redis-cli {}", shell_words(command));
        }
        let _ = writeln!(out, "```\n");
    }

    fn channels(&self, out: &mut String) {
        if self.schema.channels.is_empty() {
            return;
        }
        let _ = writeln!(out, "## Channels\n");
        for (index, channel) in self.schema.channels.iter().enumerate() {
            let _ = writeln!(out, "### {}\n\n`{}`\n", channel.name, channel.pattern.text);
            let text = [channel.purpose.as_deref(), channel.note.as_deref()]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>();
            let _ = writeln!(out, "{}\n", text.join(" "));
            let _ = writeln!(out, "- **Payload**: {}.", words::value(&channel.payload, self.schema));
            if let Some(env) = &channel.env {
                let _ = writeln!(out, "- **Name**: set by `{env}`.");
            }
            let _ = writeln!(out, "- **Contract**: {}.\n", none_if_empty(&channel.contract));
            let _ = writeln!(
                out,
                "```sh\nredis-cli {}\n```\n",
                shell_words(&example_publish(&self.plain, index))
            );
        }
    }

    fn shapes(&self, out: &mut String) {
        if self.schema.shapes.is_empty() {
            return;
        }
        let _ = writeln!(out, "## JSON shapes\n");
        for shape in &self.schema.shapes {
            let _ = writeln!(out, "### Shape {}\n\n| member | is |\n|---|---|", shape.name);
            for member in &shape.members {
                let _ = writeln!(
                    out,
                    "| `{}` | {}{} |",
                    member.name,
                    words::json(&member.form),
                    words::presence(member.presence)
                );
            }
            if let Some(others) = &shape.others {
                let _ = writeln!(out, "| any other | {} |", words::json(others));
            }
            out.push('\n');
        }
    }

    fn memory(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "## Memory\n\nEstimated memory in Redis 7: of a key with one element like the example, and of a key of the greatest length.\n\n\
             | family | one key | full |\n|---|---|---|"
        );
        let mut entities: BTreeMap<String, (u64, u64, usize)> = BTreeMap::new();
        for (index, family) in self.schema.families.iter().enumerate() {
            let one = estimated_bytes(&self.plain, index, 1);
            let max = family.max_len.as_ref().map_or(1, |limit| limit.value);
            let full = estimated_bytes(&self.plain, index, max);
            let _ = writeln!(
                out,
                "| [`{0}`](#{0}) | {1} | {2} |",
                family.name,
                format_size(one),
                format_size(full)
            );
            if let Some(entity) = self.entity(family) {
                let sum = entities.entry(entity).or_default();
                *sum = (sum.0 + one, sum.1 + full, sum.2 + 1);
            }
        }
        if entities.is_empty() {
            return;
        }
        let _ = writeln!(
            out,
            "\nOne key of each family that belongs to an entity:\n\n| entity | families | small | full |\n|---|---|---|---|"
        );
        for (entity, (one, full, families)) in entities {
            let _ =
                writeln!(out, "| `{entity}` | {families} | {} | {} |", format_size(one), format_size(full));
        }
    }

    /// The id that a family's keys belong to: its tag, else its only placeholder.
    fn entity(&self, family: &Family) -> Option<String> {
        let id = match family.tag {
            Tag::Id(id) | Tag::Shard { by: Some(id) } => id,
            _ => family.pattern.ids().next()?,
        };
        let rule = &self.schema.ids[id];
        Some(rule.of.clone().unwrap_or_else(|| rule.name.clone()))
    }
}

fn none_if_empty(words: &[String]) -> String {
    if words.is_empty() { "not declared".to_owned() } else { words.join(", ") }
}
