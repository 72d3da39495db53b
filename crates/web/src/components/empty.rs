//! The empty state of a list.

use std::fmt::{self, Display};

use askama::filters::HtmlSafe;

use super::copy_button::CopyButton;
use super::markup::Escaped;

/// An empty state with a hint about what to do next.
#[derive(Clone, Debug)]
#[must_use]
pub struct Empty {
    title: String,
    advice: String,
    command: Option<String>,
    link: Option<(String, String)>,
}

impl Empty {
    /// A title such as `No monitors yet`, and an explanation.
    pub fn new(title: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { title: title.into(), advice: advice.into(), command: None, link: None }
    }

    /// A command to run.
    pub fn command(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }

    /// A link.
    pub fn link(mut self, label: impl Into<String>, href: impl Into<String>) -> Self {
        self.link = Some((label.into(), href.into()));
        self
    }
}

impl Display for Empty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (title, advice) = (Escaped(&self.title), Escaped(&self.advice));
        write!(f, r#"<div class="empty"><p class="empty-title">{title}</p><p>{advice}</p>"#)?;
        if let Some(command) = &self.command {
            let copy = CopyButton { text: command, what: "command" };
            write!(f, r#"<div class="command"><pre><code>{}</code></pre>{copy}</div>"#, Escaped(command))?;
        }
        if let Some((label, href)) = &self.link {
            write!(f, r#"<p><a class="button primary" href="{}">{}</a></p>"#, Escaped(href), Escaped(label))?;
        }
        f.write_str("</div>")
    }
}

impl HtmlSafe for Empty {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_state_says_what_to_do_next() {
        let html =
            Empty::new("No <monitors>", "Add one.").command("hob \"x\"").link("Add", "/a?b&c").to_string();
        assert!(html.contains("No &lt;monitors&gt;") && html.contains("hob &quot;x&quot;"), "{html}");
        assert!(html.contains(r#"href="/a?b&amp;c">Add</a>"#), "{html}");
    }
}
