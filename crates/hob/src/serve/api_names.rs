//! Tests that the API has one style: fields, parameters and values of enumerations are in snake_case, and states are
//! enumerations.

use serde_json::Value;

use super::route_table::api_document;

/// Schemas with names that are not ours, and whose they are.
const FOREIGN: [(&str, &str); 3] = [
    ("LimitHeaders", "headers of HTTP, which a service copies into its response"),
    ("HttpVersion", "versions of HTTP: 1.1"),
    ("RecordType", "types of DNS records: AAAA"),
];

/// Fields that are enumerations wherever they occur.
const STATES: [&str; 3] = ["state", "class", "resolution"];

#[tokio::test]
async fn names_in_the_api_are_in_snake_case() {
    let document = api_document().await;
    let mut names = Names::default();
    names.visit("paths", &document["paths"]);
    for (schema, definition) in document["components"]["schemas"].as_object().unwrap() {
        let mut inside = Names::default();
        inside.visit(schema, definition);
        names.total += inside.total;
        let is_foreign = FOREIGN.iter().any(|(foreign, _)| foreign == schema);
        assert!(!is_foreign || !inside.found.is_empty(), "{schema} needs no exception");
        if !is_foreign {
            names.found.append(&mut inside.found);
        }
    }
    assert!(names.total > 500, "{}", names.total);
    assert_eq!(names.found, [] as [String; 0]);
}

/// Whether a field is a text that may have any value.
fn is_text(field: &Value) -> bool {
    let kind = &field["type"];
    (kind == "string" || kind.as_array().is_some_and(|kinds| kinds.contains(&"string".into())))
        && field["enum"].is_null()
}

/// Looks for names in another style.
#[derive(Default)]
struct Names {
    total: usize,
    found: Vec<String>,
}

impl Names {
    fn visit(&mut self, at: &str, value: &Value) {
        match value {
            Value::Object(fields) => {
                // A parameter.
                if let (Some(name), Some(_)) = (value["name"].as_str(), value["in"].as_str()) {
                    self.check(at, name);
                }
                for (name, field) in value["properties"].as_object().into_iter().flatten() {
                    self.check(at, name);
                    if STATES.contains(&&**name) && is_text(field) {
                        self.found.push(format!("{at}: {name} is a text without a list of its values"));
                    }
                }
                let constants = value["enum"].as_array().into_iter().flatten().chain([&value["const"]]);
                for name in constants.filter_map(Value::as_str) {
                    self.check(at, name);
                }
                for (name, field) in fields.iter().filter(|(name, _)| !name.starts_with("example")) {
                    self.visit(&format!("{at}.{name}"), field);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.visit(at, item)),
            _ => {}
        }
    }

    fn check(&mut self, at: &str, name: &str) {
        self.total += 1;
        // A length of time such as 24h begins with a digit.
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if !name.split('_').all(is_word) {
            self.found.push(format!("{at}: {name}"));
        }
    }
}
