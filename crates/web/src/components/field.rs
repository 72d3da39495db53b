//! Form fields with label, hint and error.

use std::fmt::{self, Display};

use askama::filters::HtmlSafe;

use super::Tone;
use super::markup::Escaped;

/// One field of a form.
#[derive(Clone, Debug)]
#[must_use]
pub struct Field {
    name: String,
    label: String,
    value: String,
    hint: Option<String>,
    error: Option<String>,
    entry: Entry,
    attributes: Vec<(&'static str, String)>,
}

/// The kind of input.
#[derive(Clone, Debug)]
enum Entry {
    Line(&'static str),
    Lines,
    Box,
    Choice(Vec<Choice>),
}

/// An option of a select field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub value: String,
    pub label: String,
}

impl Field {
    /// A line of text.
    pub fn text(name: impl Into<String>, label: impl Into<String>) -> Self {
        Self::new(name.into(), label.into(), Entry::Line("text"))
    }

    /// An e-mail address. Phones show a keyboard with `@`.
    pub fn email(name: impl Into<String>, label: impl Into<String>) -> Self {
        Self::new(name.into(), label.into(), Entry::Line("email"))
    }

    /// A password field. Its value is never rendered.
    pub fn secret(name: impl Into<String>, label: impl Into<String>) -> Self {
        Self::new(name.into(), label.into(), Entry::Line("password"))
    }

    pub fn number(name: impl Into<String>, label: impl Into<String>) -> Self {
        Self::new(name.into(), label.into(), Entry::Line("number"))
    }

    pub fn search(name: impl Into<String>, label: impl Into<String>) -> Self {
        Self::new(name.into(), label.into(), Entry::Line("search"))
    }

    /// A date with a time, such as `2026-12-31T22:00`.
    pub fn time(name: impl Into<String>, label: impl Into<String>) -> Self {
        Self::new(name.into(), label.into(), Entry::Line("datetime-local"))
    }

    /// Several lines.
    pub fn lines(name: impl Into<String>, label: impl Into<String>) -> Self {
        Self::new(name.into(), label.into(), Entry::Lines)
    }

    /// A checkbox, which sends `on`; checked if the value is `on`.
    pub fn checkbox(name: impl Into<String>, label: impl Into<String>) -> Self {
        Self::new(name.into(), label.into(), Entry::Box)
    }

    /// A select field.
    pub fn choice(name: impl Into<String>, label: impl Into<String>, choices: Vec<Choice>) -> Self {
        Self::new(name.into(), label.into(), Entry::Choice(choices))
    }

    fn new(name: String, label: String, entry: Entry) -> Self {
        Self { name, label, value: String::new(), hint: None, error: None, entry, attributes: Vec::new() }
    }

    /// The current value.
    pub fn value(mut self, value: impl Display) -> Self {
        self.value = value.to_string();
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The error message, if any.
    pub fn error(mut self, error: Option<impl Into<String>>) -> Self {
        self.error = error.map(Into::into);
        self
    }

    pub fn required(self) -> Self {
        self.attribute("required", "")
    }

    /// The `autocomplete` attribute: `off`, `username`, `current-password`.
    pub fn autocomplete(self, kind: &str) -> Self {
        self.attribute("autocomplete", kind)
    }

    pub fn placeholder(self, text: &str) -> Self {
        self.attribute("placeholder", text)
    }

    /// Bounds of a number.
    pub fn between(self, least: impl Display, most: impl Display) -> Self {
        self.attribute("min", least).attribute("max", most)
    }

    /// The most characters.
    pub fn max_length(self, chars: usize) -> Self {
        self.attribute("maxlength", chars)
    }

    fn attribute(mut self, name: &'static str, value: impl Display) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    fn entry(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, name) = (Escaped(&self.value), Escaped(&self.name));
        match &self.entry {
            Entry::Line(kind) => {
                write!(f, r#"<input type="{kind}" id="field-{name}" name="{name}""#)?;
                if *kind != "password" {
                    write!(f, r#" value="{value}""#)?;
                }
                self.rest(f)
            }
            Entry::Lines => {
                write!(f, r#"<textarea id="field-{name}" name="{name}" rows="4""#)?;
                self.rest(f)?;
                // HTML parsers drop the first newline.
                write!(f, "\n{value}</textarea>")
            }
            Entry::Box => {
                write!(f, r#"<input type="checkbox" id="field-{name}" name="{name}" value="on""#)?;
                f.write_str(if self.value == "on" { " checked" } else { "" })?;
                self.rest(f)
            }
            Entry::Choice(choices) => {
                write!(f, r#"<select id="field-{name}" name="{name}""#)?;
                self.rest(f)?;
                for choice in choices {
                    let chosen = if choice.value == self.value { " selected" } else { "" };
                    let (value, label) = (Escaped(&choice.value), Escaped(&choice.label));
                    write!(f, r#"<option value="{value}"{chosen}>{label}</option>"#)?;
                }
                f.write_str("</select>")
            }
        }
    }

    /// The common attributes and the end of the tag.
    fn rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Escaped(&self.name);
        for (attribute, value) in &self.attributes {
            write!(f, r#" {attribute}="{}""#, Escaped(value))?;
        }
        match (&self.error, &self.hint) {
            (Some(_), Some(_)) => {
                write!(f, r#" aria-invalid="true" aria-describedby="error-{name} hint-{name}""#)?;
            }
            (Some(_), None) => write!(f, r#" aria-invalid="true" aria-describedby="error-{name}""#)?,
            (None, Some(_)) => write!(f, r#" aria-describedby="hint-{name}""#)?,
            (None, None) => {}
        }
        f.write_str(">")
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, label) = (Escaped(&self.name), Escaped(&self.label));
        let class = if matches!(self.entry, Entry::Box) { "field tick" } else { "field" };
        write!(f, r#"<div class="{class}"><label for="field-{name}">{label}</label>"#)?;
        self.entry(f)?;
        if let Some(hint) = &self.hint {
            write!(f, r#"<p class="hint" id="hint-{name}">{}</p>"#, Escaped(hint))?;
        }
        if let Some(error) = &self.error {
            let icon = Tone::Bad.icon();
            write!(f, r#"<p class="error" id="error-{name}">{icon}{}</p>"#, Escaped(error))?;
        }
        f.write_str("</div>")
    }
}

impl HtmlSafe for Field {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_shown_at_the_field() {
        let field =
            Field::text("url", "Address").value("\"><script>").hint("https://…").error(Some("no host"));
        let html = field.to_string();
        assert!(html.contains(r#"value="&quot;&gt;&lt;script&gt;""#), "{html}");
        assert!(html.contains(r#"aria-invalid="true" aria-describedby="error-url hint-url""#), "{html}");
        assert!(html.contains("no host</p>"), "{html}");
    }

    #[test]
    fn password_is_never_rendered() {
        assert!(!Field::secret("token", "Token").value("hunter2").to_string().contains("hunter2"));
    }

    #[test]
    fn current_option_is_selected() {
        let choice = |value: &str| Choice { value: value.to_owned(), label: value.to_uppercase() };
        let html = Field::choice("kind", "Kind", vec![choice("a"), choice("b")]).value("b").to_string();
        assert!(html.contains(r#"<option value="b" selected>B</option>"#), "{html}");
        assert_eq!(html.matches("selected").count(), 1);
    }
}
