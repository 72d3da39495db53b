//! Templates: `https://api.example/dockets/${key}/`, `Token ${secret.api}`, `${data.court}`.

use hob_expression::{Escape, Mistake, Part, unknown_variable};
use hob_service::config::{Secret, SecretDenied, SecretName};
use serde::{Deserialize, Deserializer, de};

/// A text with variables: the key of an item, members of its data, and secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(hob_expression::Template<Variable>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Variable {
    Key,
    Data(String),
    Secret(SecretName),
}

/// Values for the variables.
#[derive(Clone, Copy)]
pub(crate) struct TemplateValues<'a> {
    pub(crate) key: &'a str,
    pub(crate) data: &'a serde_json::Map<String, serde_json::Value>,
    pub(crate) secrets: &'a (dyn Fn(&SecretName) -> Result<Secret, SecretDenied> + Sync),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("the item has no member {0:?}")]
    NoData(String),
    #[error(transparent)]
    Secret(#[from] SecretDenied),
}

impl Template {
    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.0.variables().filter_map(|variable| match variable {
            Variable::Secret(name) => Some(name),
            _ => None,
        })
    }

    /// The text, if it has no variables.
    pub(crate) fn fixed(&self) -> Option<&str> {
        self.0.fixed()
    }

    /// The text before the first variable.
    pub(super) fn beginning(&self) -> &str {
        match self.0.parts().first() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }

    /// Renders the template with `item` for values of the item and `secret` for secrets.
    pub(crate) fn with_sample_values(&self, item: &str, secret: &str) -> String {
        let text = |part: &Part<Variable>| match part {
            Part::Text(literal) => literal.clone(),
            Part::Variable(Variable::Key | Variable::Data(_)) => item.to_owned(),
            Part::Variable(Variable::Secret(_)) => secret.to_owned(),
        };
        self.0.parts().iter().map(text).collect()
    }

    pub(crate) fn render(
        &self,
        values: &TemplateValues<'_>,
        escape: Escape,
    ) -> Result<String, TemplateError> {
        let mut text = String::new();
        for part in self.0.parts() {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Variable(Variable::Key) => escape.write(&mut text, values.key),
                Part::Variable(Variable::Data(name)) => {
                    let value = values.data.get(name).ok_or_else(|| TemplateError::NoData(name.clone()))?;
                    match value {
                        serde_json::Value::String(value) => escape.write(&mut text, value),
                        other => escape.write(&mut text, &other.to_string()),
                    }
                }
                Part::Variable(Variable::Secret(name)) => {
                    escape.write(&mut text, (values.secrets)(name)?.reveal());
                }
            }
        }
        Ok(text)
    }
}

impl std::str::FromStr for Template {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Self, Mistake> {
        refuse_bare_braces(text, |name| variable(name).is_ok())?;
        hob_expression::Template::parse(text, variable).map(Self)
    }
}

fn variable(name: &str) -> Result<Variable, String> {
    match name.split_once('.') {
        None if name == "key" => Ok(Variable::Key),
        Some(("data", member)) if !member.is_empty() => Ok(Variable::Data(member.to_owned())),
        Some(("secret", secret)) => {
            secret.parse().map(Variable::Secret).map_err(|error| format!("`${{{name}}}`: {error}"))
        }
        _ => {
            let unknown = unknown_variable(name, ["key"]);
            Err(format!("{unknown}; variables are `${{key}}`, `${{data.NAME}}` and `${{secret.NAME}}`"))
        }
    }
}

/// Refuses the syntax of earlier versions, which would otherwise be sent as text: `{key}` for a variable, and `{{` for a
/// brace, unless it is closed by `}}` as in Mustache.
pub(super) fn refuse_bare_braces(text: &str, is_variable: impl Fn(&str) -> bool) -> Result<(), Mistake> {
    let mut at = 0;
    while let Some(found) = text[at..].find('{') {
        let (before, inside) = (&text[..at + found], &text[at + found + 1..]);
        at = text.len() - inside.len();
        let mistake = |message| Err(Mistake { column: before.chars().count() + 1, message });
        if before.ends_with('$') {
            continue;
        }
        let name = inside.split('}').next().unwrap_or_default();
        if is_variable(name) {
            return mistake(format!("`{{{name}}}` is text, not a variable; write `${{{name}}}`"));
        }
        if let Some(inside) = inside.strip_prefix('{') {
            let is_mustache = inside
                .split_once('}')
                .is_some_and(|(name, after)| !name.contains(['{', '"']) && after.starts_with('}'));
            if !is_mustache {
                return mistake("`{{` is two braces; write `{` for one".to_owned());
            }
            at += 1;
        }
    }
    Ok(())
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, escape: Escape) -> String {
        let data = serde_json::json!({ "court": "a/b \"c\"", "n": 7 });
        let secrets = |_: &SecretName| Ok(Secret::from("s3\r\ncret".to_owned()));
        let values = TemplateValues { key: "1 2", data: data.as_object().unwrap(), secrets: &secrets };
        template.parse::<Template>().unwrap().render(&values, escape).unwrap()
    }

    fn error(template: &str) -> String {
        template.parse::<Template>().unwrap_err().to_string()
    }

    #[test]
    fn value_cannot_change_the_structure_around_it() {
        assert_eq!(render("/d/${key}/?c=${data.court}", Escape::Url), "/d/1%202/?c=a%2Fb%20%22c%22");
        assert_eq!(render("Token ${secret.api}", Escape::Header), "Token s3cret");
        assert_eq!(
            render(r#"{"c": "${data.court}", "o": {"n": ${data.n}}}"#, Escape::Json),
            r#"{"c": "a/b \"c\"", "o": {"n": 7}}"#
        );
    }

    #[test]
    fn unknown_variable_is_rejected() {
        for text in ["${", "${keys}", "${data.}", "${secret.a b}", "${env:HOME}", "${}"] {
            assert!(text.parse::<Template>().is_err(), "{text}");
        }
        assert!(error("/${kye}").starts_with("column 2: unknown variable `kye`"));
    }

    #[test]
    fn earlier_syntax_is_rejected_with_what_to_write() {
        for (text, expected) in [
            ("/d/{key}/", "column 4: `{key}` is text, not a variable; write `${key}`"),
            ("ä {secret.api}", "column 3: `{secret.api}` is text, not a variable; write `${secret.api}`"),
            (r#"{"a": "{data.n}"}"#, "column 8: `{data.n}` is text, not a variable; write `${data.n}`"),
            (r#"{{"a": "${data.n}"}"#, "column 1: `{{` is two braces; write `{` for one"),
            (r#"{"a": {{"b": 1}}"#, "column 7: `{{` is two braces; write `{` for one"),
            ("/?f={{a}", "column 5: `{{` is two braces; write `{` for one"),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
        for text in [r#"{"a": {}, "b": "{x} {{name}} {"}"#, "$${key}", "{ key }"] {
            assert_eq!(render(text, Escape::Json), text.replace("$$", "$"), "{text}");
        }
    }
}
