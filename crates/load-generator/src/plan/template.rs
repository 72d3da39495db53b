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

/// `${raw:name}` is the value of a variable as it is, where `${name}` would be escaped.
const RAW: &str = "raw:";

/// Text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(hob_expression::Template<Placeholder>);

/// A variable in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placeholder {
    variable: usize,
    /// How the value is escaped.
    escape: Escape,
}

impl Template {
    /// Reads a template whose values are escaped, except those of `${raw:name}`.
    pub(super) fn parse(text: &str, variables: &Variables, escape: Escape) -> Result<Self, Mistake> {
        let find = |name: &str| {
            let raw = name.strip_prefix(RAW).filter(|_| variables.find(name).is_none());
            let (name, escape) = raw.map_or((name, escape), |name| (name, Escape::Nothing));
            let variable = variables.find(name).ok_or_else(|| {
                let unknown = unknown_variable(name, variables.0.iter().map(String::as_str));
                format!("{unknown}; variables are defined in `vars`, as fields of the users, and in `extract` of earlier steps")
            })?;
            Ok(Placeholder { variable, escape })
        };
        hob_expression::Template::parse(text, find).map(Self)
    }

    /// Parts whose text is already escaped.
    pub(super) fn joined(parts: Vec<Part<Placeholder>>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// The parts of the template with their text escaped.
    pub(super) fn escaped_parts(self, escape: Escape) -> impl Iterator<Item = Part<Placeholder>> {
        self.0.into_parts().into_iter().map(move |part| match part {
            Part::Text(text) => Part::Text(escape.apply(&text)),
            variable @ Part::Variable(_) => variable,
        })
    }

    /// The text, if it has no variables.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        self.0.fixed()
    }

    /// The text with the values of its variables.
    #[must_use]
    pub fn fill<'a>(&'a self, values: &[String]) -> Cow<'a, str> {
        if let Some(text) = self.fixed() {
            return Cow::Borrowed(text);
        }
        let mut filled = String::new();
        for part in self.0.parts() {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Variable(Placeholder { variable, escape }) => {
                    escape.write(&mut filled, values.get(*variable).map_or("", String::as_str));
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
        let fill = |text: &str, escape| {
            let mut values = vec![String::new(); variables.len()];
            (values[0], values[id]) = ("7".into(), "x y/&=#".into());
            Template::parse(text, &variables, escape).unwrap().fill(&values).into_owned()
        };
        assert_eq!(fill("/a/${id}/b?u=${user}", Escape::Nothing), "/a/x y/&=#/b?u=7");
        assert_eq!(fill("/a b/${id}?q=${id}", Escape::Url), "/a b/x%20y%2F%26%3D%23?q=x%20y%2F%26%3D%23");
        assert_eq!(fill("/${raw:id}?u=${raw:user}", Escape::Url), "/x y/&=#?u=7");
        assert_eq!(Template::parse("plain", &variables, Escape::Url).unwrap().fixed(), Some("plain"));
    }

    #[test]
    fn variable_whose_name_begins_like_the_raw_form_is_escaped() {
        let mut variables = Variables::new();
        let at = variables.declare("raw:user");
        let mut values = vec![String::new(); variables.len()];
        values[at] = "a/b".into();
        let template = Template::parse("${raw:user}", &variables, Escape::Url).unwrap();
        assert_eq!(template.fill(&values), "a%2Fb");
    }

    #[test]
    fn unknown_variable_is_named() {
        let mistake = Template::parse("/${itertaion}", &Variables::new(), Escape::Url).unwrap_err();
        assert_eq!(mistake.column, 2);
        assert!(mistake.message.contains("`itertaion`; write `${iteration}`"), "{mistake}");
    }
}
