//! Pagination.

use std::fmt::{self, Display};

use askama::filters::HtmlSafe;

use super::markup::Escaped;

/// Links to the first and the next page. Empty for a single page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pager {
    /// The first page, unless this is the first page.
    pub first: Option<String>,
    /// The next page, if any.
    pub next: Option<String>,
}

impl Display for Pager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first.is_none() && self.next.is_none() {
            return Ok(());
        }
        f.write_str(r#"<nav class="pager" aria-label="Pages">"#)?;
        if let Some(href) = &self.first {
            write!(f, r#"<a class="button" href="{}">← To the beginning</a>"#, Escaped(href))?;
        }
        if let Some(href) = &self.next {
            write!(f, r#"<a class="button" rel="next" href="{}">Next page →</a>"#, Escaped(href))?;
        }
        f.write_str("</nav>")
    }
}

impl HtmlSafe for Pager {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_page_has_no_pager() {
        assert_eq!(Pager::default().to_string(), "");
    }

    #[test]
    fn links_are_escaped() {
        let html = Pager { first: None, next: Some("/a?after=\"x\"&n=2".to_owned()) }.to_string();
        assert!(html.contains(r#"href="/a?after=&quot;x&quot;&amp;n=2""#), "{html}");
    }
}
