//! The report as JUnit XML for CI: each threshold is a test case.

use std::fmt::Write as _;

use super::Report;

impl Report {
    #[must_use]
    pub fn junit(&self) -> String {
        let failed = self.thresholds.iter().filter(|result| !result.met).count();
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            out,
            r#"<testsuite name="{}" tests="{}" failures="{failed}" errors="0" time="{}">"#,
            escape(&self.name),
            self.thresholds.len().max(1),
            self.seconds
        );
        if self.thresholds.is_empty() {
            let _ = writeln!(out, r#"  <testcase classname="load" name="completed"/>"#);
        }
        for result in &self.thresholds {
            let name = escape(&result.threshold);
            if result.met {
                let _ = writeln!(out, r#"  <testcase classname="load" name="{name}"/>"#);
            } else {
                let _ = writeln!(
                    out,
                    r#"  <testcase classname="load" name="{name}"><failure message="{}"/></testcase>"#,
                    escape(&match result.value {
                        Some(_) => format!("measured {}", result.measured()),
                        None => result.measured(),
                    })
                );
            }
        }
        out.push_str("</testsuite>\n");
        out
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
