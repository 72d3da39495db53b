//! The JSON Schema of the format accepts the schemas of the services and rejects invalid ones, as the parser does. The
//! validator here supports only the keywords that it uses.

use hob_schema::json_schema;
use serde_json::Value as Json;

use crate::{SERVICES, schema_path};

/// Validates `value`. The error has the reason and the path.
fn check(root: &Json, schema: &Json, value: &Json, path: &str) -> Result<(), String> {
    let Some(rules) = schema.as_object() else {
        return Ok(());
    };
    for (keyword, rule) in rules {
        match keyword.as_str() {
            "$ref" => {
                let name = rule.as_str().unwrap().trim_start_matches("#/$defs/");
                check(root, &root["$defs"][name], value, path)?;
            }
            "type" => {
                let types = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                if !types.iter().any(|name| name == type_name(value)) {
                    return Err(format!("{path} is no {rule}"));
                }
            }
            // The only pattern of a text without alternatives by type is that of a module's type.
            "pattern"
                if rule == "^module:.+$"
                    && value
                        .as_str()
                        .and_then(|text| text.strip_prefix("module:"))
                        .is_none_or(str::is_empty) =>
            {
                return Err(format!("{path} does not match {rule}"));
            }
            "enum" if !rule.as_array().unwrap().contains(value) => {
                return Err(format!("{path} is none of {rule}"));
            }
            "oneOf" => {
                let fitting = rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|one| check(root, one, value, path).is_ok())
                    .count();
                if fitting != 1 {
                    return Err(format!("{path} fits {fitting} of the alternatives"));
                }
            }
            "properties" => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        check(root, rule, value, &format!("{path}.{name}"))?;
                    }
                }
            }
            "required" => {
                if let Some(name) =
                    rule.as_array().unwrap().iter().find(|name| value.get(name.as_str().unwrap()).is_none())
                {
                    return Err(format!("{path} has no {name}"));
                }
            }
            "additionalProperties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    let known = rules.get("properties").is_some_and(|known| known.get(name).is_some());
                    if !known && *rule == Json::Bool(false) {
                        return Err(format!("{path}.{name} is not known"));
                    }
                    if !known {
                        check(root, rule, value, &format!("{path}.{name}"))?;
                    }
                }
            }
            "items" => {
                for value in value.as_array().into_iter().flatten() {
                    check(root, rule, value, &format!("{path}[]"))?;
                }
            }
            "minItems" if (value.as_array().map_or(0, Vec::len) as u64) < rule.as_u64().unwrap() => {
                return Err(format!("{path} is too short"));
            }
            "maxItems" if value.as_array().map_or(0, Vec::len) as u64 > rule.as_u64().unwrap() => {
                return Err(format!("{path} is too long"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn type_name(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(number) if number.is_f64() => "number",
        Json::Number(_) => "integer",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn validate(toml_text: &str) -> Result<(), String> {
    let root: Json = serde_json::from_str(&json_schema()).unwrap();
    let value: Json = serde_json::to_value(toml::from_str::<toml::Value>(toml_text).unwrap()).unwrap();
    check(&root, &root, &value, "file")
}

#[test]
fn service_schemas_are_valid() {
    for name in SERVICES {
        assert_eq!(validate(&std::fs::read_to_string(schema_path(name)).unwrap()), Ok(()), "{name}");
    }
}

#[test]
fn json_schema_rejects_what_the_parser_rejects() {
    let head = "[schema]\nname = \"t\"\nversion = 1\n";
    for (body, path) in [
        ("[schema]\nname = \"t\"\n", "file.schema"),
        (&format!("{head}[key.a]\npattern = \"a\"\ntype = \"sting\"\n"), "file.key.a.type"),
        (&format!("{head}[key.a]\npatern = \"a\"\ntype = \"set\"\n"), "file.key.a"),
        (&format!("{head}[key.a]\npattern = \"a\"\ntype = \"set\"\nttl = \"1h\"\n"), "file.key.a.ttl"),
        (
            &format!("{head}[key.a]\npattern = \"a\"\ntype = \"string\"\nvalue = \"itn\"\n"),
            "file.key.a.value",
        ),
    ] {
        let error = validate(body).unwrap_err();
        assert!(error.starts_with(path), "{error}");
        assert!(hob_schema::Schema::parse("t.toml", body).is_err(), "{body}");
    }
}
