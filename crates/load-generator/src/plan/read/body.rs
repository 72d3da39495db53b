//! The body of a request.

use hob_expression::{Escape, Part};
use serde_json::Value;

use super::field::{Result, at, wrong};
use crate::plan::document::Step;
use crate::plan::template::{Placeholder, Template, Variables};

/// The content type that the form of the body implies, and the body.
pub(super) fn body(
    path: &str,
    from: &Step,
    variables: &Variables,
) -> Result<Option<(Option<&'static str>, Template)>> {
    let mut parts = Parts { variables, escape: Escape::Nothing, all: Vec::new() };
    match (&from.body, &from.json, &from.form) {
        (None, None, None) => Ok(None),
        (Some(text), None, None) => {
            parts.add(&format!("{path}.body"), text)?;
            Ok(Some((None, parts.joined())))
        }
        (None, Some(json), None) => {
            parts.escape = Escape::Json;
            parts.add_json(&format!("{path}.json"), json)?;
            Ok(Some((Some("application/json"), parts.joined())))
        }
        (None, None, Some(form)) => {
            parts.escape = Escape::Url;
            for (index, (name, value)) in form.iter().enumerate() {
                let sign = if index == 0 { "" } else { "&" };
                parts.add_text(format!("{sign}{}=", Escape::Url.apply(name)));
                parts.add(&format!("{path}.form.{name}"), &value.0)?;
            }
            Ok(Some((Some("application/x-www-form-urlencoded"), parts.joined())))
        }
        _ => Err(wrong(format!("{path}.body"), "a request has one of `body`, `json` and `form`")),
    }
}

/// The parts of a body. Every string is a template.
struct Parts<'a> {
    variables: &'a Variables,
    escape: Escape,
    all: Vec<Part<Placeholder>>,
}

impl Parts<'_> {
    fn add_text(&mut self, text: impl Into<String>) {
        self.all.push(Part::Text(text.into()));
    }

    fn add(&mut self, path: &str, text: &str) -> Result<()> {
        let template = Template::parse(text, self.variables, self.escape).map_err(at(path))?;
        self.all.extend(template.escaped_parts(self.escape));
        Ok(())
    }

    fn add_json(&mut self, path: &str, value: &Value) -> Result<()> {
        match value {
            Value::String(text) => self.add_json_string(path, text)?,
            Value::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    self.add_text(if index == 0 { "[" } else { "," });
                    self.add_json(&format!("{path}[{index}]"), element)?;
                }
                self.add_text(if elements.is_empty() { "[]" } else { "]" });
            }
            Value::Object(fields) => {
                for (index, (name, field)) in fields.iter().enumerate() {
                    let path = format!("{path}.{name}");
                    self.add_text(if index == 0 { "{" } else { "," });
                    self.add_json_string(&path, name)?;
                    self.add_text(":");
                    self.add_json(&path, field)?;
                }
                self.add_text(if fields.is_empty() { "{}" } else { "}" });
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => self.add_text(value.to_string()),
        }
        Ok(())
    }

    fn add_json_string(&mut self, path: &str, text: &str) -> Result<()> {
        self.add_text("\"");
        self.add(path, text)?;
        self.add_text("\"");
        Ok(())
    }

    fn joined(self) -> Template {
        Template::joined(self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(body_of_step: &str, values: &[&str]) -> String {
        let mut variables = Variables::new();
        variables.declare("x");
        let step = format!("name = 's'\nrequest = 'POST /'\n{body_of_step}");
        let (_, template) = body("step[0]", &toml::from_str(&step).unwrap(), &variables).unwrap().unwrap();
        let built_in = [""; 3];
        let values: Vec<String> = built_in.iter().chain(values).map(|value| (*value).to_owned()).collect();
        template.fill(&values).into_owned()
    }

    #[test]
    fn values_are_escaped_in_json_and_forms() {
        let json = fill(
            r#"json = { a = "${x}", b = [1, "$${x}", {}, [], "\"${x}"], "k${x}" = { c = true } }"#,
            &["v\"w"],
        );
        assert_eq!(json, r#"{"a":"v\"w","b":[1,"${x}",{},[],"\"v\"w"],"kv\"w":{"c":true}}"#);
        assert_eq!(
            fill("form = { q = '${x}=', n = 1, 'a b' = '' }", &["a\"b & c"]),
            "a%20b=&n=1&q=a%22b%20%26%20c%3D"
        );
        assert_eq!(fill("body = '{\"x\": \"${x}\", \"y\": {}}'", &["v\"w"]), r#"{"x": "v"w", "y": {}}"#);
    }

    #[test]
    fn unknown_variable_in_json_is_found() {
        let step = "name = 's'\nrequest = 'POST /'\njson = { a = [1, { b = 'to ${y}' }] }";
        let (field, message) =
            body("step[0]", &toml::from_str(step).unwrap(), &Variables::new()).unwrap_err();
        assert_eq!(field, "step[0].json.a[1].b");
        assert!(message.starts_with("column 4: unknown variable `y`"), "{message}");
    }
}
