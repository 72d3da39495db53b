//! What a page says of a JSON Schema: the type of a value, its limits and its fields.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::document::{Components, Schema};
use crate::components::{Escaped, Markup};

/// A field of a type, or a parameter.
#[derive(Debug)]
pub(super) struct Field {
    /// With the names of the fields that contain it: `retry.interval`, `steps[].name`.
    pub(super) name: String,
    pub(super) is_required: bool,
    pub(super) kind: Markup,
    pub(super) text: Markup,
}

/// A named type.
#[derive(Debug)]
pub(super) struct NamedType<'a> {
    pub(super) name: &'a str,
    pub(super) text: Markup,
    /// A value is one of these.
    pub(super) variants: Vec<Variant>,
}

#[derive(Debug)]
pub(super) struct Variant {
    pub(super) kind: Markup,
    /// Empty if the value is not an object with known fields.
    pub(super) fields: Vec<Field>,
}

impl Components {
    /// A field with this description, or that of its type.
    pub(super) fn field(&self, name: String, is_required: bool, schema: &Schema, description: &str) -> Field {
        let description = if description.is_empty() { &schema.description } else { description };
        let mut text = description.trim_end().to_owned();
        if let Some(limits) = sentence(&limits(schema)) {
            text += if text.is_empty() { "" } else { " " };
            text += &limits;
        }
        Field { name, is_required, kind: self.kind(schema), text: paragraphs(&text) }
    }

    pub(super) fn resolve<'a>(&'a self, schema: &'a Schema) -> &'a Schema {
        schema.target().and_then(|name| self.schemas.get(name)).unwrap_or(schema)
    }

    /// The types that these schemas refer to, directly or by other types, in the order in which they are found.
    pub(super) fn types_of<'a>(
        &'a self,
        schemas: impl IntoIterator<Item = &'a Schema>,
    ) -> Vec<NamedType<'a>> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        let mut waiting: Vec<&Schema> = schemas.into_iter().collect();
        waiting.reverse();
        while let Some(schema) = waiting.pop() {
            if let Some((name, target)) = schema.target().and_then(|name| self.schemas.get_key_value(name))
                && !target.is_plain()
                && seen.insert(name)
            {
                found.push(self.named(name, target));
                waiting.push(target);
            }
            let parts: Vec<&Schema> = schema.parts().collect();
            waiting.extend(parts.into_iter().rev());
        }
        found
    }

    fn named<'a>(&self, name: &'a str, schema: &Schema) -> NamedType<'a> {
        let variants: Vec<&Schema> = schema.variants().collect();
        let variants = if variants.is_empty() { vec![schema] } else { variants };
        let variant = |schema: &&Schema| Variant { kind: self.kind(schema), fields: self.fields(schema) };
        NamedType {
            name,
            text: paragraphs(&schema.description),
            variants: variants.iter().map(variant).collect(),
        }
    }

    /// The fields of an object, with those of the objects in it that have no name.
    fn fields(&self, schema: &Schema) -> Vec<Field> {
        let mut fields = Vec::new();
        self.add_fields(schema, "", &mut fields);
        // First what a request must have.
        fields.sort_by_key(|field| !field.is_required);
        fields
    }

    fn add_fields(&self, schema: &Schema, prefix: &str, fields: &mut Vec<Field>) {
        for part in &schema.all_of {
            self.add_fields(self.resolve(part), prefix, fields);
        }
        for (name, field) in &schema.properties {
            let name = format!("{prefix}{name}");
            let is_required = prefix.is_empty() && schema.required.contains(&name);
            fields.push(self.field(name.clone(), is_required, field, ""));
            self.add_fields(field, &format!("{name}."), fields);
            if let Some(element) = &field.items {
                self.add_fields(element, &format!("{name}[]."), fields);
            }
        }
    }

    /// The type of a value. Named types are links to their description on the same page.
    pub(super) fn kind(&self, schema: &Schema) -> Markup {
        Markup::trusted(self.kind_html(schema))
    }

    fn kind_html(&self, schema: &Schema) -> String {
        let mut html = if let Some((name, target)) =
            schema.target().and_then(|name| self.schemas.get_key_value(name))
        {
            if target.is_plain() {
                self.plain_html(target)
            } else {
                let name = Escaped(name);
                format!(r##"<a href="#type-{name}">{name}</a>"##)
            }
        } else if !schema.values.is_empty() {
            let values = schema.values.iter().filter(|value| !value.is_null());
            values.map(|value| format!("<code>{}</code>", Escaped(value))).collect::<Vec<_>>().join(" or ")
        } else if schema.variants().next().is_some() {
            let kinds: BTreeSet<String> = schema.variants().map(|variant| self.kind_html(variant)).collect();
            kinds.into_iter().collect::<Vec<_>>().join(" or ")
        } else if !schema.all_of.is_empty() {
            "object".to_owned()
        } else {
            self.simple_html(schema)
        };
        if schema.is_nullable() {
            html += " or null";
        }
        html
    }

    /// A type that has a name only for its limits.
    fn plain_html(&self, schema: &Schema) -> String {
        let (kind, limits) = (self.kind_html(schema), limits(schema));
        if limits.is_empty() { kind } else { format!("{kind} ({})", Escaped(limits)) }
    }

    fn simple_html(&self, schema: &Schema) -> String {
        match (schema.main_kind(), &schema.format) {
            (Some("array"), _) => match &schema.items {
                Some(element) => format!("array of {}", self.kind_html(element)),
                None => "array".to_owned(),
            },
            (Some("object"), _) => match &schema.additional_properties {
                Some(value) => format!("object, each value: {}", self.kind_html(value)),
                None => "object".to_owned(),
            },
            (Some("string"), Some(format)) => format!("string ({})", Escaped(format)),
            (Some(kind), _) => kind.to_owned(),
            (None, _) => "any value".to_owned(),
        }
    }
}

/// The limits of a value in words; empty if it has none.
fn limits(schema: &Schema) -> String {
    let mut words = Vec::new();
    let mut range = |least: Option<String>, most: Option<String>, unit: &str| match (least, most) {
        (Some(least), Some(most)) => words.push(format!("{least} to {most}{unit}")),
        (Some(least), None) => words.push(format!("at least {least}{unit}")),
        (None, Some(most)) => words.push(format!("at most {most}{unit}")),
        (None, None) => {}
    };
    let text = |value: Option<&Value>| value.map(Value::to_string);
    let count = |value: Option<u64>| value.map(|value| value.to_string());
    // The largest number of the database is not worth a word, and neither is 0 alone.
    let maximum = schema.maximum.as_ref().filter(|value| value.as_u64() != Some(i64::MAX.unsigned_abs()));
    let minimum = schema.minimum.as_ref().filter(|value| maximum.is_some() || value.as_u64() != Some(0));
    range(text(minimum), text(maximum), "");
    range(count(schema.min_length), count(schema.max_length), " characters");
    range(count(schema.min_items), count(schema.max_items), " items");
    range(None, count(schema.max_properties), " fields");
    if let Some(pattern) = &schema.pattern {
        words.push(format!("matches `{pattern}`"));
    }
    if let Some(default) = schema.default.as_ref().filter(|default| !default.is_null()) {
        words.push(format!("default `{default}`"));
    }
    if let Some(example) = schema.example.as_ref().or(schema.examples.first()) {
        words.push(format!("for example `{example}`"));
    }
    words.join(", ")
}

/// A sentence of these words; `None` if they are empty.
fn sentence(words: &str) -> Option<String> {
    let first = words.chars().next()?;
    Some(format!("{}{}.", first.to_uppercase(), &words[first.len_utf8()..]))
}

/// A text of a doc comment: paragraphs with code in backticks.
pub(super) fn paragraphs(text: &str) -> Markup {
    let mut html = String::new();
    for paragraph in text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()) {
        html += "<p>";
        // A paragraph with a backtick that is not closed ends with code.
        for (at, part) in paragraph.split('`').enumerate() {
            let _ = match at % 2 {
                0 => write!(html, "{}", Escaped(part)),
                _ => write!(html, "<code>{}</code>", Escaped(part)),
            };
        }
        html += "</p>";
    }
    Markup::trusted(html)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(schema: Value) -> Schema {
        serde_json::from_value(schema).unwrap()
    }

    fn kind_of(value: Value) -> String {
        let components: Components = serde_json::from_value(json!({ "schemas": {
            "Gnome": { "type": "object" },
            "Text64": { "type": "string", "maxLength": 64 },
        } }))
        .unwrap();
        components.kind(&schema(value)).as_str().to_owned()
    }

    #[test]
    fn kinds_are_words() {
        assert_eq!(kind_of(json!({})), "any value");
        assert_eq!(kind_of(json!({ "type": ["string", "null"] })), "string or null");
        assert_eq!(kind_of(json!({ "type": "string", "format": "uri" })), "string (uri)");
        let gnomes = json!({ "type": "array", "items": { "$ref": "#/components/schemas/Gnome" } });
        assert_eq!(kind_of(gnomes), r##"array of <a href="#type-Gnome">Gnome</a>"##);
        let nullable = json!({ "oneOf": [{ "type": "null" }, { "$ref": "#/components/schemas/Gnome" }] });
        assert_eq!(kind_of(nullable), r##"<a href="#type-Gnome">Gnome</a> or null"##);
        let names = json!({ "type": "array", "items": { "$ref": "#/components/schemas/Text64" } });
        assert_eq!(kind_of(names), "array of string (at most 64 characters)");
        let map = json!({ "type": "object", "additionalProperties": { "type": "integer" } });
        assert_eq!(kind_of(map), "object, each value: integer");
        let words = json!({ "type": "string", "enum": ["<a>", "b"] });
        assert_eq!(kind_of(words), "<code>&quot;&lt;a&gt;&quot;</code> or <code>&quot;b&quot;</code>");
    }

    #[test]
    fn limits_are_a_sentence() {
        let of = |value| sentence(&limits(&schema(value))).unwrap_or_default();
        assert_eq!(of(json!({ "type": "string" })), "");
        assert_eq!(of(json!({ "minimum": 0, "maximum": 9_223_372_036_854_775_807_u64 })), "");
        assert_eq!(of(json!({ "minimum": 1, "maximum": 500, "default": 50 })), "1 to 500, default `50`.");
        assert_eq!(
            of(json!({ "maxLength": 64, "pattern": "^[a-z]+$" })),
            "At most 64 characters, matches `^[a-z]+$`."
        );
    }

    #[test]
    fn texts_are_paragraphs_with_code() {
        let html = "<p>The scope <code>a&lt;b</code> is required.</p><p>Second.</p>";
        assert_eq!(paragraphs("The scope `a<b` is required.\n\n\nSecond.\n").as_str(), html);
        assert_eq!(paragraphs(" ").as_str(), "");
    }

    #[test]
    fn types_are_followed_to_their_fields_and_examples() {
        let components: Components = serde_json::from_value(json!({ "schemas": {
            "Plan": {
                "type": "object", "required": ["name", "steps"],
                "properties": {
                    "alerts": { "type": "object", "properties": { "channel": { "type": "string" } } },
                    "name": { "type": "string", "maxLength": 64 },
                    "next": { "$ref": "#/components/schemas/Plan" },
                    "steps": { "type": "array", "items": { "$ref": "#/components/schemas/Step" } },
                },
            },
            "Step": {
                "oneOf": [
                    { "allOf": [{ "$ref": "#/components/schemas/Fetch" }, {
                        "type": "object", "required": ["kind"], "properties": { "kind": { "type": "string", "enum": ["fetch"] } },
                    }] },
                    { "type": "string", "enum": ["wait"] },
                ],
            },
            "Fetch": { "type": "object", "required": ["url"], "properties": { "url": { "type": "string", "format": "uri" } } },
        } }))
        .unwrap();
        let body = schema(json!({ "$ref": "#/components/schemas/Plan" }));
        let types = components.types_of([&body]);
        let names: Vec<&str> = types.iter().map(|one| one.name).collect();
        assert_eq!(names, ["Plan", "Step", "Fetch"]);
        let fields = |variant: &Variant| {
            let fields = variant.fields.iter().map(|field| (field.name.clone(), field.is_required));
            fields.collect::<Vec<_>>()
        };
        let plan =
            [("name", true), ("steps", true), ("alerts", false), ("alerts.channel", false), ("next", false)];
        assert_eq!(fields(&types[0].variants[0]), plan.map(|(name, required)| (name.to_owned(), required)));
        assert_eq!(fields(&types[1].variants[0]), [("url".to_owned(), true), ("kind".to_owned(), true)]);
        assert_eq!(fields(&types[1].variants[1]), []);
        let example = json!({ "name": "…", "steps": [{ "url": "…", "kind": "fetch" }] });
        assert_eq!(components.example(&body), example);
    }
}
