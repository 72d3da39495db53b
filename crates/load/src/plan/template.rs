//! Text with variables, such as `/users/${id}`. Names are resolved to indexes when the plan is read, so that sending a
//! request needs no lookup by name.

use std::borrow::Cow;

use hob_expression::{Escape, Mistake, Part, unknown_variable};

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
    text: hob_expression::Template<usize>,
    /// How values are escaped.
    escape: Escape,
}

impl Template {
    pub(super) fn parse(text: &str, variables: &Variables) -> Result<Self, Mistake> {
        let text = hob_expression::Template::parse(text, |name| {
            variables.find(name).ok_or_else(|| {
                let unknown = unknown_variable(name, variables.0.iter().map(String::as_str));
                format!("{unknown}; variables are defined in `vars`, as fields of the users, and in `extract` of earlier steps")
            })
        })?;
        Ok(Self { text, escape: Escape::Nothing })
    }

    /// Parts that are already escaped; values will be escaped in the same way.
    pub(super) fn joined(parts: Vec<Part<usize>>, escape: Escape) -> Self {
        Self { text: parts.into_iter().collect(), escape }
    }

    /// The parts of the template with their text escaped.
    pub(super) fn escaped_parts(self, escape: Escape) -> impl Iterator<Item = Part<usize>> {
        self.text.into_parts().into_iter().map(move |part| match part {
            Part::Text(text) => Part::Text(escape.apply(&text)),
            variable @ Part::Variable(_) => variable,
        })
    }

    /// The text, if it has no variables.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        self.text.fixed()
    }

    /// The text with the values of its variables.
    #[must_use]
    pub fn fill<'a>(&'a self, values: &[String]) -> Cow<'a, str> {
        if let Some(text) = self.fixed() {
            return Cow::Borrowed(text);
        }
        let mut filled = String::new();
        for part in self.text.parts() {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Variable(at) => {
                    self.escape.write(&mut filled, values.get(*at).map_or("", String::as_str));
                }
            }
        }
        Cow::Owned(filled)
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
    fn unknown_variable_is_named() {
        let mistake = Template::parse("/${itertaion}", &Variables::new()).unwrap_err();
        assert_eq!(mistake.column, 2);
        assert!(mistake.message.contains("`itertaion`; write `${iteration}`"), "{mistake}");
    }
}
