//! Text with variables, such as `/users/${id}`. Names are resolved to indexes when the plan is read, so that sending a
//! request needs no lookup by name.

use std::borrow::Cow;

/// The variables of a plan. A variable is identified by its index.
#[derive(Clone, Debug, Default)]
pub struct Variables(Vec<String>);

/// The number of the virtual user, the number of its iteration, and a random number; set for every iteration.
const BUILT_IN: [&str; 3] = ["user", "iteration", "random"];

impl Variables {
    pub(super) fn new() -> Self {
        Self(BUILT_IN.iter().map(|name| (*name).to_owned()).collect())
    }

    /// The index of a name, which is added if it is new.
    pub(super) fn declare(&mut self, name: &str) -> usize {
        self.find(name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }

    /// The name at an index.
    #[must_use]
    pub fn name(&self, at: usize) -> &str {
        &self.0[at]
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Always `false`: there are built-in variables.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
    escape: Escape,
}

/// How values are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    Nothing,
    /// Inside a JSON string.
    Json,
    /// A form value.
    Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Variable(usize),
}

impl Template {
    pub(super) fn parse(text: &str, variables: &Variables) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, after) = (&rest[..at], &rest[at + 2..]);
            let Some(end) = after.find('}') else {
                return Err("`${` without `}`".to_owned());
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let name = &after[..end];
            let variable = variables.find(name).ok_or_else(|| {
                format!("unknown variable `{name}`; define it in `vars`, as a field of the users, or in `extract` of an earlier step")
            })?;
            parts.push(Part::Variable(variable));
            rest = &after[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self { parts, escape: Escape::Nothing })
    }

    /// The same text, with values escaped for JSON strings.
    pub(super) fn in_json(self) -> Self {
        Self { escape: Escape::Json, ..self }
    }

    /// A form of these fields.
    pub(super) fn form(fields: Vec<(&str, Self)>) -> Self {
        let mut parts = Vec::new();
        for (index, (name, value)) in fields.into_iter().enumerate() {
            let sign = if index == 0 { "" } else { "&" };
            parts.push(Part::Text(format!("{sign}{}=", Escape::Form.apply(name))));
            parts.extend(value.parts.into_iter().map(|part| match part {
                Part::Text(text) => Part::Text(Escape::Form.apply(&text).into_owned()),
                variable => variable,
            }));
        }
        Self { parts, escape: Escape::Form }
    }

    /// The text, if it has no variables.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text with the values of its variables.
    #[must_use]
    pub fn fill<'a>(&'a self, values: &[String]) -> Cow<'a, str> {
        if let Some(text) = self.fixed() {
            return Cow::Borrowed(text);
        }
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Variable(at) => {
                    filled.push_str(&self.escape.apply(values.get(*at).map_or("", String::as_str)));
                }
            }
        }
        Cow::Owned(filled)
    }
}

impl Escape {
    fn apply(self, value: &str) -> Cow<'_, str> {
        match self {
            Self::Nothing => Cow::Borrowed(value),
            Self::Json => {
                let quoted = serde_json::to_string(value).unwrap_or_default();
                Cow::Owned(quoted[1..quoted.len().max(2) - 1].to_owned())
            }
            Self::Form => {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
                let encode =
                    |byte| if is_plain(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") };
                Cow::Owned(value.bytes().map(encode).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced() {
        let mut variables = Variables::new();
        let id = variables.declare("id");
        let template = Template::parse("/a/${id}/b?u=${user}", &variables).unwrap();
        let mut values = vec![String::new(); variables.len()];
        (values[0], values[id]) = ("7".into(), "x y".into());
        assert_eq!(template.fill(&values), "/a/x y/b?u=7");
        assert_eq!(Template::parse("plain", &variables).unwrap().fixed(), Some("plain"));
    }

    #[test]
    fn values_are_escaped_in_json_and_forms() {
        let mut variables = Variables::new();
        variables.declare("x");
        let values = ["", "", "", "a\"b & c"].map(str::to_owned);
        let json = Template::parse(r#"{"x":"${x}"}"#, &variables).unwrap().in_json();
        assert_eq!(json.fill(&values), r#"{"x":"a\"b & c"}"#);
        let field = |text| Template::parse(text, &variables).unwrap();
        let form = Template::form(vec![("q", field("${x}=")), ("n", field("1"))]);
        assert_eq!(form.fill(&values), "q=a%22b%20%26%20c%3D&n=1");
    }

    #[test]
    fn unknown_variable_is_named() {
        assert!(Template::parse("${nope}", &Variables::new()).unwrap_err().contains("`nope`"));
        assert!(Template::parse("${user", &Variables::new()).is_err());
    }
}
