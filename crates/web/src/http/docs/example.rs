//! Example values of a JSON Schema.

use serde_json::{Map, Value};

use super::document::{Components, Schema};

/// How deep types are followed. Some contain themselves.
const MAX_DEPTH: usize = 12;

impl Components {
    /// A value with the required fields.
    pub(super) fn example(&self, schema: &Schema) -> Value {
        self.example_at(schema, 0)
    }

    fn example_at(&self, schema: &Schema, depth: usize) -> Value {
        let Schema { example, examples, values, default, .. } = schema;
        if let Some(given) = example.iter().chain(examples).chain(values).chain(default).next() {
            return given.clone();
        }
        if depth == MAX_DEPTH {
            return Value::Null;
        }
        if schema.reference.is_some() {
            return self.example_at(self.resolve(schema), depth + 1);
        }
        if let Some(variant) = schema.variants().next() {
            return self.example_at(variant, depth + 1);
        }
        if !schema.all_of.is_empty() || !schema.properties.is_empty() {
            return self.object_at(schema, depth).into();
        }
        match (schema.main_kind(), schema.format.as_deref()) {
            (Some("object"), _) => Map::new().into(),
            (Some("array"), _) => schema.items.iter().map(|one| self.example_at(one, depth + 1)).collect(),
            (Some("integer" | "number"), _) => schema.minimum.clone().unwrap_or_else(|| 1.into()),
            (Some("boolean"), _) => true.into(),
            (Some("string"), Some("date-time")) => "2026-01-31T12:00:00Z".into(),
            (Some("string"), _) => "…".into(),
            _ => Value::Null,
        }
    }

    fn object_at(&self, schema: &Schema, depth: usize) -> Map<String, Value> {
        let mut object = Map::new();
        for part in &schema.all_of {
            if let Value::Object(fields) = self.example_at(part, depth + 1) {
                object.extend(fields);
            }
        }
        let required = schema.properties.iter().filter(|(name, _)| schema.required.contains(*name));
        object.extend(required.map(|(name, field)| (name.clone(), self.example_at(field, depth + 1))));
        object
    }
}
