//! The parts of the OpenAPI document that the pages show.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Document {
    /// By path and method in lower case.
    #[serde(default)]
    pub(super) paths: BTreeMap<String, BTreeMap<String, Operation>>,
    #[serde(default)]
    pub(super) components: Components,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Components {
    #[serde(default)]
    pub(super) schemas: BTreeMap<String, Schema>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Operation {
    pub(super) operation_id: String,
    pub(super) tags: Vec<String>,
    #[serde(default)]
    pub(super) summary: String,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) parameters: Vec<Parameter>,
    pub(super) request_body: Option<RequestBody>,
    pub(super) responses: BTreeMap<String, Response>,
    /// Empty if no token is required.
    #[serde(default)]
    pub(super) security: Vec<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Parameter {
    pub(super) name: String,
    #[serde(rename = "in")]
    pub(super) location: String,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) required: bool,
    #[serde(default)]
    pub(super) schema: Schema,
}

#[derive(Debug, Deserialize)]
pub(super) struct RequestBody {
    #[serde(default)]
    pub(super) description: String,
    pub(super) content: BTreeMap<String, Content>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Response {
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) content: BTreeMap<String, Content>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Content {
    #[serde(default)]
    pub(super) schema: Schema,
}

/// A JSON Schema.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Schema {
    /// `#/components/schemas/NAME`.
    #[serde(rename = "$ref")]
    pub(super) reference: Option<String>,
    #[serde(default, rename = "type")]
    pub(super) kind: Kind,
    pub(super) format: Option<String>,
    #[serde(default)]
    pub(super) description: String,
    pub(super) default: Option<Value>,
    pub(super) example: Option<Value>,
    #[serde(default)]
    pub(super) examples: Vec<Value>,
    #[serde(default, rename = "enum")]
    pub(super) values: Vec<Value>,
    pub(super) pattern: Option<String>,
    pub(super) minimum: Option<Value>,
    pub(super) maximum: Option<Value>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) max_properties: Option<u64>,
    #[serde(default)]
    pub(super) required: Vec<String>,
    #[serde(default)]
    pub(super) properties: BTreeMap<String, Schema>,
    /// Of the values of an object with arbitrary names.
    #[serde(default, deserialize_with = "schema_or_bool")]
    pub(super) additional_properties: Option<Box<Schema>>,
    #[serde(default, deserialize_with = "schema_or_bool")]
    pub(super) items: Option<Box<Schema>>,
    #[serde(default)]
    pub(super) one_of: Vec<Schema>,
    #[serde(default)]
    pub(super) any_of: Vec<Schema>,
    #[serde(default)]
    pub(super) all_of: Vec<Schema>,
}

/// The types that a value may have; none if it may have any.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "OneOrMany")]
pub(super) struct Kind(pub(super) Vec<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for Kind {
    fn from(kinds: OneOrMany) -> Self {
        match kinds {
            OneOrMany::One(kind) => Self(vec![kind]),
            OneOrMany::Many(kinds) => Self(kinds),
        }
    }
}

impl Schema {
    /// The name of the schema that this one refers to.
    pub(super) fn target(&self) -> Option<&str> {
        self.reference.as_deref()?.rsplit('/').next()
    }

    /// The type of a value that is not `null`.
    pub(super) fn main_kind(&self) -> Option<&str> {
        self.kind.0.iter().map(String::as_str).find(|kind| *kind != "null")
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.kind.0.as_slice(), [kind] if kind == "null")
    }

    /// The schemas of which a value has one, without `null`.
    pub(super) fn variants(&self) -> impl Iterator<Item = &Self> {
        self.one_of.iter().chain(&self.any_of).filter(|variant| !variant.is_null())
    }

    /// Whether a value may be `null`.
    pub(super) fn is_nullable(&self) -> bool {
        self.kind.0.iter().any(|kind| kind == "null")
            || self.one_of.iter().chain(&self.any_of).any(Self::is_null)
    }

    /// Whether it is a text or a number about which there is nothing to say but its limits.
    pub(super) fn is_plain(&self) -> bool {
        self.parts().next().is_none()
            && self.values.is_empty()
            && self.description.is_empty()
            && self.kind.0 != ["object"]
    }

    /// The schemas of the elements, of the values of a map, of the fields and of all alternatives.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Self> {
        let nested = self.items.iter().chain(&self.additional_properties).map(AsRef::as_ref);
        let combined = self.one_of.iter().chain(&self.any_of).chain(&self.all_of);
        nested.chain(combined).chain(self.properties.values())
    }
}

/// A boolean says whether any value is allowed, and nothing about it.
fn schema_or_bool<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<Schema>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum SchemaOrBool {
        Schema(Box<Schema>),
        #[expect(dead_code, reason = "only distinguished from a schema")]
        Bool(bool),
    }
    Ok(match SchemaOrBool::deserialize(deserializer)? {
        SchemaOrBool::Schema(schema) => Some(schema),
        SchemaOrBool::Bool(_) => None,
    })
}
