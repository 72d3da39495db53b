//! The JSON Schema of the format, so that editors complete and check schema files as they are typed.

use serde_json::{Map, Value as Json, json};

use crate::model::{KeyType, Role};
use crate::parse::{FORMS, JSON_WORDS, VALUE_WORDS};

/// The document that `schemas/hob-schema.json` holds.
pub fn json_schema() -> String {
    let named = |definition: &str| json!({ "type": "object", "additionalProperties": reference(definition) });
    let mut root = object(
        "A schema of Redis keys: one file is the source of every key of a system.",
        &["schema"],
        json!({
            "schema": reference("schema"),
            "ids": described(named("id"), "The values of placeholders <name>."),
            "key": described(named("family"), "Key families, by name."),
            "channel": described(named("channel"), "Pub/sub channels, by name."),
            "shape": described(named("shape"), "JSON objects, by name."),
        }),
    );
    if let Some(root) = root.as_object_mut() {
        root.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        root.insert("title".into(), json!("Hob key schema"));
        root.insert("$defs".into(), definitions());
    }
    let mut text = serde_json::to_string_pretty(&root).unwrap_or_default();
    text.push('\n');
    text
}

fn definitions() -> Json {
    json!({
        "schema": schema(),
        "id": id(),
        "family": family(),
        "channel": channel(),
        "shape": { "type": "object", "additionalProperties": reference("json") },
        "ttl": ttl(),
        "tag": tag(),
        "allow": allow(),
        "value": value(),
        "json": json_form(),
        "texts": { "oneOf": [text(""), { "type": "array", "items": text("") }] },
        "count": limit(&json!({ "type": ["integer", "string"], "examples": [100, "4 KiB"] })),
        "duration": limit(&duration()),
    })
}

fn schema() -> Json {
    object(
        "The name and the general properties of the schema.",
        &["name", "version"],
        json!({
            "name": text("Lowercase; becomes a name in code."),
            "version": { "type": "integer", "minimum": 1 },
            "prefix": {
                "description": "The prefix of every key.",
                "oneOf": [text(""), object("", &[], json!({ "env": text("The environment variable that sets the prefix."), "default": text("") }))],
            },
            "shards": described(reference("count"), "The number of shards of a global key in the tagged layout."),
            "purpose": text("What the system does with Redis."),
            "note": text("What a reader should know before reading the file."),
            "allow": reference("allow"),
        }),
    )
}

fn id() -> Json {
    object(
        "The values of one placeholder.",
        &[],
        json!({
            "max": { "type": "integer", "minimum": 1, "description": "Maximum length in bytes; 128 by default." },
            "not": described(reference("texts"), "Reserved words that are never a value of this id."),
            "raw": text("Which of `:`, `/` and space are not percent-encoded."),
            "without": text("Which characters a verbatim id never contains."),
            "form": { "enum": FORMS },
            "range": { "type": "array", "items": { "type": "integer" }, "minItems": 2, "maxItems": 2 },
            "step": { "type": ["integer", "string"], "description": "The number is a multiple of this." },
            "one_of": described(reference("texts"), "The complete list of values."),
            "of": text("The id of which this one is another encoding."),
            "space": { "enum": ["_", " "], "description": "How the space of an endpoint is written." },
            "example": text("Used in the documentation."),
            "allow": reference("allow"),
            "note": text(""),
        }),
    )
}

fn family() -> Json {
    object(
        "All keys of one pattern.",
        &["pattern", "type"],
        json!({
            "pattern": text("Literal text and <placeholders>; braces are Redis's hash tags."),
            "type": key_type(),
            "also": {
                "description": "Further types that keys of this pattern have.",
                "oneOf": [key_type(), { "type": "array", "items": key_type() }],
            },
            "value": described(reference("value"), "The value of a string."),
            "fields": { "type": "object", "additionalProperties": reference("value"), "description": "The fields of a hash, or of each entry of a stream; \"<id>\" and \"*\" match many fields." },
            "item": described(reference("value"), "The items of a list."),
            "member": described(reference("value"), "The members of a set or sorted set."),
            "score": described(reference("value"), "The scores of a sorted set."),
            "max_len": described(reference("count"), "Maximum number of items, members or fields."),
            "max_keys": described(reference("count"), "Maximum number of keys in the family."),
            "ttl": reference("ttl"),
            "field_ttl": described(reference("ttl"), "How long the fields of a hash may live: one of max, exact, range, none, late."),
            "groups": described(reference("texts"), "The consumer groups of a stream; without it, any."),
            "max_pending": described(reference("count"), "Maximum number of pending entries of each consumer group."),
            "max_age": described(reference("duration"), "Maximum age of the oldest entry of a stream."),
            "tag": reference("tag"),
            "role": { "enum": Role::ALL.map(Role::as_str) },
            "with": described(reference("texts"), "Families that a script uses together with this one."),
            "sums": text("The family whose values add up to the values of this one."),
            "writers": described(reference("texts"), "The programs that write these keys."),
            "contract": described(reference("texts"), "Ids of the contracts that it implements."),
            "purpose": text("Why it exists, in a sentence."),
            "note": text("What a reader should know, such as deviations from the contract."),
            "example": {
                "description": "A value, item or member, or some fields of a hash; for the documentation.",
                "type": ["string", "object"],
                "additionalProperties": text(""),
            },
            "allow": reference("allow"),
            "unconfirmed": described(reference("texts"), "What `infer` suspects; remove what is intended."),
        }),
    )
}

fn key_type() -> Json {
    let core: Vec<&str> =
        KeyType::ALL.into_iter().filter(|kind| *kind != KeyType::Module).map(KeyType::as_str).collect();
    json!({ "oneOf": [{ "enum": core }, { "type": "string", "pattern": "^module:.+$" }] })
}

fn channel() -> Json {
    object(
        "A pub/sub channel.",
        &["name"],
        json!({
            "name": { "oneOf": [text(""), object("", &["env", "default"], json!({ "env": text(""), "default": text("") }))] },
            "payload": reference("value"),
            "contract": reference("texts"),
            "purpose": text("Why it exists, in a sentence."),
            "note": text(""),
        }),
    )
}

fn ttl() -> Json {
    object(
        "How long a key may live: one of max, exact, range, none, late; or max with after.",
        &[],
        json!({
            "max": described(reference("duration"), "Always has a TTL, at most this long."),
            "exact": described(reference("duration"), "Always written with this TTL."),
            "range": { "type": "array", "items": reference("duration"), "minItems": 2, "maxItems": 2 },
            "none": text("Never expires, for this reason."),
            "late": described(reference("duration"), "May be written without a TTL (give the reason in `why`); once set, the TTL is at most this long."),
            "why": text(""),
            "after": text("The event after which the key is kept for `max`."),
            "backstop": described(reference("duration"), "The TTL of the key until the event."),
            "renewed": { "type": "boolean", "description": "Whether each write restarts the TTL." },
        }),
    )
}

fn tag() -> Json {
    json!({
        "description": "Which keys share a slot in the tagged layout.",
        "oneOf": [
            text("A placeholder of the pattern, or \"shard\"."),
            object("", &[], json!({ "shard_by": text("The placeholder that chooses the shard."), "none": text("Why the key has its own slot.") })),
        ],
    })
}

fn allow() -> Json {
    let one = object(
        "A lint rule that this breaks on purpose.",
        &["rule", "reason"],
        json!({ "rule": text("The id of the rule."), "reason": text("Why the exception is acceptable.") }),
    );
    json!({ "oneOf": [one, { "type": "array", "items": one }] })
}

fn value() -> Json {
    let optional_words: Vec<String> = VALUE_WORDS.iter().map(|word| format!("{word}?")).collect();
    let bounds = json!({ "type": "array", "minItems": 2, "maxItems": 2, "description": "The smallest and the largest value; \"-\" means no limit." });
    json!({ "oneOf": [
        { "enum": VALUE_WORDS },
        { "enum": optional_words, "description": "Only for the fields of a hash." },
        object("", &[], json!({
            "int": bounds,
            "float": bounds,
            "enum": reference("texts"),
            "text": described(reference("count"), "Any text of at most this many bytes."),
            "id": text("An id of this file."),
            "json": described(reference("json"), "JSON of this shape."),
            "bitmap": described(reference("count"), "Bits, of at most this many bytes."),
            "msgpack": described(reference("count"), "A MessagePack value of at most this many bytes."),
            "protobuf": described(reference("count"), "A Protocol Buffers message of at most this many bytes."),
            "max_bytes": described(reference("count"), "Maximum size of the JSON text."),
            "is": described(reference("value"), "Any of these forms, if further properties are needed."),
            "optional": { "type": "boolean" },
        })),
    ] })
}

fn json_form() -> Json {
    json!({ "oneOf": [
        { "type": "string", "description": "A form or the name of a shape; `?` at the end makes it optional.", "examples": JSON_WORDS },
        { "type": "array", "items": reference("json"), "minItems": 1, "maxItems": 1 },
        object("", &[], json!({
            "enum": reference("texts"),
            "list": reference("json"),
            "shape": text("The name of a shape."),
            "optional": { "type": "boolean" },
        })),
    ] })
}

fn duration() -> Json {
    json!({ "type": "string", "pattern": "^\\s*([0-9]+ ?(ms|s|m|min|h|d) ?)+$", "examples": ["1h", "1h 30m", "250ms"] })
}

fn limit(plain: &Json) -> Json {
    let from_env = object(
        "A limit that an environment variable may change.",
        &["env", "default"],
        json!({ "env": text(""), "default": plain, "unit": { "enum": ["ms", "s", "m", "h", "d"] } }),
    );
    json!({ "oneOf": [plain, from_env] })
}

fn object(description: &str, required: &[&str], properties: Json) -> Json {
    let mut object = Map::new();
    if !description.is_empty() {
        object.insert("description".into(), json!(description));
    }
    object.insert("type".into(), json!("object"));
    object.insert("additionalProperties".into(), json!(false));
    if !required.is_empty() {
        object.insert("required".into(), json!(required));
    }
    object.insert("properties".into(), properties);
    Json::Object(object)
}

fn text(description: &str) -> Json {
    if description.is_empty() {
        json!({ "type": "string" })
    } else {
        json!({ "type": "string", "description": description })
    }
}

fn reference(definition: &str) -> Json {
    json!({ "$ref": format!("#/$defs/{definition}") })
}

fn described(mut schema: Json, description: &str) -> Json {
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".into(), json!(description));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{
        ALLOW_KEYS, CHANNEL_KEYS, FAMILY_KEYS, ID_KEYS, JSON_KEYS, LIMIT_KEYS, SCHEMA_KEYS, TOP_KEYS,
        TTL_KEYS, VALUE_KEYS,
    };

    fn names(schema: &Json) -> Vec<&str> {
        let mut names: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    fn sorted<const N: usize>(mut keys: [&'static str; N]) -> Vec<&'static str> {
        keys.sort_unstable();
        keys.to_vec()
    }

    #[test]
    fn json_schema_knows_exactly_the_keys_that_the_parser_knows() {
        let root: Json = serde_json::from_str(&json_schema()).unwrap();
        assert_eq!(names(&root), sorted(TOP_KEYS));
        assert_eq!(names(&schema()), sorted(SCHEMA_KEYS));
        assert_eq!(names(&id()), sorted(ID_KEYS));
        assert_eq!(names(&family()), sorted(FAMILY_KEYS));
        assert_eq!(names(&channel()), sorted(CHANNEL_KEYS));
        assert_eq!(names(&ttl()), sorted(TTL_KEYS));
        assert_eq!(names(&allow()["oneOf"][0]), sorted(ALLOW_KEYS));
        assert_eq!(names(&value()["oneOf"][2]), sorted(VALUE_KEYS));
        assert_eq!(names(&json_form()["oneOf"][2]), sorted(JSON_KEYS));
        assert_eq!(names(&limit(&duration())["oneOf"][1]), sorted(LIMIT_KEYS));
    }
}
