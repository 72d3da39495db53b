//! Texts with variables: `/users/${id}`. Names become numbers when the plan is read, so that a request is
//! put together without looking anything up by name.

use std::borrow::Cow;

/// The names of a plan's variables; a variable is its place among them.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<String>);

/// The number of the virtual user, of its iteration, and a random number, which every iteration has.
const BUILT_IN: [&str; 3] = ["user", "iteration", "random"];

impl Names {
    pub(super) fn new() -> Self {
        Self(BUILT_IN.iter().map(|name| (*name).to_owned()).collect())
    }

    /// The place of a name that may be new.
    pub(super) fn declare(&mut self, name: &str) -> usize {
        self.find(name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }

    /// The name at a place.
    #[must_use]
    pub fn name(&self, at: usize) -> &str {
        &self.0[at]
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: some are always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Variable(usize),
}

impl Template {
    /// Reads a text; the error names what is wrong with it.
    pub(super) fn parse(text: &str, names: &Names) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, after) = (&rest[..at], &rest[at + 2..]);
            let Some(end) = after.find('}') else {
                return Err("a `${` has no `}`".to_owned());
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let name = &after[..end];
            let variable = names.find(name).ok_or_else(|| {
                format!("no variable is called `{name}` here: it is neither in `vars`, nor a column of the users, nor extracted by an earlier step")
            })?;
            parts.push(Part::Variable(variable));
            rest = &after[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// The text itself, if there is no variable in it.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        match self.0.as_slice() {
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
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Variable(at) => filled.push_str(&values[*at]),
            }
        }
        Cow::Owned(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_take_their_places() {
        let mut names = Names::new();
        let id = names.declare("id");
        let template = Template::parse("/a/${id}/b?u=${user}", &names).unwrap();
        let mut values = vec![String::new(); names.len()];
        (values[0], values[id]) = ("7".into(), "x y".into());
        assert_eq!(template.fill(&values), "/a/x y/b?u=7");
        assert_eq!(Template::parse("plain", &names).unwrap().fixed(), Some("plain"));
    }

    #[test]
    fn an_unknown_variable_is_named() {
        assert!(Template::parse("${nope}", &Names::new()).unwrap_err().contains("`nope`"));
        assert!(Template::parse("${user", &Names::new()).is_err());
    }
}
