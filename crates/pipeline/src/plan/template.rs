//! Templates: `https://api.example/dockets/{key}/`, `Token {secret.api}`, `{data.court}`.

use std::fmt;
use std::str::FromStr;

use hob_service::config::{Secret, SecretDenied, SecretName};
use serde::{Deserialize, Deserializer, de};

/// A text with placeholders for the key of an item, members of its data, and secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Key,
    Data(String),
    Secret(SecretName),
}

/// Values for the placeholders.
#[derive(Clone, Copy)]
pub(crate) struct TemplateValues<'a> {
    pub(crate) key: &'a str,
    pub(crate) data: &'a serde_json::Map<String, serde_json::Value>,
    pub(crate) secrets: &'a (dyn Fn(&SecretName) -> Result<Secret, SecretDenied> + Sync),
}

/// How a value is escaped, so that it cannot change the structure around it.
#[derive(Clone, Copy)]
pub(crate) enum Encoding {
    /// Percent-encodes everything but letters, digits and `-._~`.
    Url,
    /// Removes control characters.
    Header,
    /// Escapes for a JSON string.
    Json,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("the item has no member {0:?}")]
    NoData(String),
    #[error(transparent)]
    Secret(#[from] SecretDenied),
}

impl Template {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.parts.iter().filter_map(|part| match part {
            Part::Secret(name) => Some(name),
            _ => None,
        })
    }

    pub(crate) fn has_placeholders(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part, Part::Text(_)))
    }

    /// Renders the template with `item` for values of the item and `secret` for secrets.
    pub(crate) fn with_sample_values(&self, item: &str, secret: &str) -> String {
        let text = |part: &Part| match part {
            Part::Text(literal) => literal.clone(),
            Part::Key | Part::Data(_) => item.to_owned(),
            Part::Secret(_) => secret.to_owned(),
        };
        self.parts.iter().map(text).collect()
    }

    pub(crate) fn render(
        &self,
        values: &TemplateValues<'_>,
        encoding: Encoding,
    ) -> Result<String, TemplateError> {
        let mut text = String::with_capacity(self.text.len());
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Key => encoding.write(&mut text, values.key),
                Part::Data(name) => {
                    let value = values.data.get(name).ok_or_else(|| TemplateError::NoData(name.clone()))?;
                    match value {
                        serde_json::Value::String(value) => encoding.write(&mut text, value),
                        other => encoding.write(&mut text, &other.to_string()),
                    }
                }
                Part::Secret(name) => encoding.write(&mut text, (values.secrets)(name)?.reveal()),
            }
        }
        Ok(text)
    }
}

impl Encoding {
    pub(crate) fn encode(self, value: &str) -> String {
        let mut text = String::new();
        self.write(&mut text, value);
        text
    }

    fn write(self, text: &mut String, value: &str) {
        match self {
            Encoding::Url => {
                let parts = url::form_urlencoded::byte_serialize(value.as_bytes());
                text.extend(parts.map(|part| if part == "+" { "%20" } else { part }));
            }
            Encoding::Header => text.extend(value.chars().filter(|c| !c.is_control())),
            Encoding::Json => {
                let quoted = serde_json::Value::from(value).to_string();
                text.push_str(&quoted[1..quoted.len() - 1]);
            }
        }
    }
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find("{{").into_iter().chain(rest.find('{')).min() {
            if !rest[..open].is_empty() {
                parts.push(Part::Text(rest[..open].to_owned()));
            }
            if rest[open..].starts_with("{{") {
                parts.push(Part::Text("{".to_owned()));
                rest = &rest[open + 2..];
                continue;
            }
            let close =
                rest[open..].find('}').ok_or("unclosed placeholder; write {{ for a literal brace")? + open;
            parts.push(placeholder(&rest[open + 1..close])?);
            rest = &rest[close + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self { text: text.to_owned(), parts })
    }
}

fn placeholder(name: &str) -> Result<Part, String> {
    match name.split_once('.') {
        None if name == "key" => Ok(Part::Key),
        Some(("data", member)) if !member.is_empty() => Ok(Part::Data(member.to_owned())),
        Some(("secret", secret)) => {
            secret.parse().map(Part::Secret).map_err(|error| format!("{{{name}}}: {error}"))
        }
        _ => Err(format!("{{{name}}} is not a placeholder; use {{key}}, {{data.NAME}} or {{secret.NAME}}")),
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, encoding: Encoding) -> String {
        let data = serde_json::json!({ "court": "a/b \"c\"", "n": 7 });
        let secrets = |_: &SecretName| Ok(Secret::from("s3\r\ncret".to_owned()));
        let values = TemplateValues { key: "1 2", data: data.as_object().unwrap(), secrets: &secrets };
        template.parse::<Template>().unwrap().render(&values, encoding).unwrap()
    }

    #[test]
    fn value_cannot_change_the_structure_around_it() {
        assert_eq!(render("/d/{key}/?c={data.court}", Encoding::Url), "/d/1%202/?c=a%2Fb%20%22c%22");
        assert_eq!(render("Token {secret.api}", Encoding::Header), "Token s3cret");
        assert_eq!(
            render(r#"{{"c": "{data.court}", "n": {data.n}}"#, Encoding::Json),
            r#"{"c": "a/b \"c\"", "n": 7}"#
        );
    }

    #[test]
    fn unknown_placeholder_is_rejected() {
        for text in ["{", "{keys}", "{data.}", "{secret.a b}", "{env:HOME}", "{}"] {
            assert!(text.parse::<Template>().is_err(), "{text}");
        }
    }
}
