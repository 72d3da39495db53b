//! Lint: reports declarations that are valid but are probably mistakes.

mod families;
mod keys;
mod rules;

pub use rules::{RULES, Rule, Severity, explain};

use std::fmt::Write as _;

use serde::Serialize;

use crate::model::{Allow, Schema};
use crate::parse::source::Position;

/// One finding of the linter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub rule: &'static str,
    pub severity: Severity,
    pub file: String,
    #[serde(flatten)]
    pub position: Position,
    /// `key.recent`, `ids.endpoint` or `schema`.
    pub subject: String,
    pub message: String,
}

/// All findings in a schema that no `allow` covers.
pub fn lint(schema: &Schema) -> Vec<Finding> {
    let mut linter = Linter { schema, findings: Vec::new(), used_allows: Vec::new() };
    keys::check(&mut linter);
    families::check(&mut linter);
    linter.check_allows();
    let mut findings = linter.findings;
    findings.sort_by_key(|finding| (finding.position, finding.rule));
    findings
}

/// The findings as text; the last line counts them.
pub fn report_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let (position, severity) = (finding.position, finding.severity.as_str());
        let _ = writeln!(
            text,
            "{}:{}:{}: {severity}[{}] {}: {}",
            finding.file, position.line, position.column, finding.rule, finding.subject, finding.message
        );
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let _ = writeln!(text, "{errors} errors, {warnings} warnings");
    text
}

/// The findings as one JSON list.
pub fn report_json(findings: &[Finding]) -> String {
    serde_json::to_string_pretty(findings).unwrap_or_default()
}

/// All rules with their explanations, as a page.
pub fn rules_markdown() -> String {
    let mut page = String::from(
        "# Lint rules\n\n<!-- Generated from crates/schema/src/lint/rules.rs; edit that file. -->\n",
    );
    for rule in RULES {
        let _ = write!(
            page,
            "\n## {}\n\n*{}*: {}.\n\n{}\n",
            rule.id,
            rule.severity.as_str(),
            rule.title,
            rule.explanation
        );
    }
    page
}

/// Collects the findings of the rules.
struct Linter<'s> {
    schema: &'s Schema,
    findings: Vec<Finding>,
    /// The positions of the `allow` entries that covered a finding.
    used_allows: Vec<Position>,
}

/// The subject of a finding.
#[derive(Clone, Copy)]
struct Subject<'s> {
    kind: &'static str,
    name: &'s str,
    position: Position,
    allow: &'s [Allow],
}

impl Linter<'_> {
    fn find(&mut self, rule: &'static str, subject: Subject<'_>, message: impl Into<String>) {
        if let Some(allow) = subject.allow.iter().find(|allow| allow.rule == rule) {
            self.used_allows.push(allow.position);
            return;
        }
        let severity = explain(rule).map_or(Severity::Warning, |rule| rule.severity);
        let name = if subject.name.is_empty() { String::new() } else { format!(".{}", subject.name) };
        self.findings.push(Finding {
            rule,
            severity,
            file: self.schema.file.clone(),
            position: subject.position,
            subject: format!("{}{name}", subject.kind),
            message: message.into(),
        });
    }

    fn check_allows(&mut self) {
        let schema = self.schema;
        let family = schema.families.iter().map(|family| ("key", family.name.as_str(), &family.allow));
        let ids = schema.ids.iter().map(|id| ("ids", id.name.as_str(), &id.allow));
        for (kind, name, allows) in family.chain(ids).chain([("schema", "", &schema.allow)]) {
            for allow in
                allows.iter().filter(|allow| !self.used_allows.contains(&allow.position)).collect::<Vec<_>>()
            {
                let message = match explain(&allow.rule) {
                    Some(_) => format!(
                        "the rule `{}` is not broken here, so the exception is unnecessary",
                        allow.rule
                    ),
                    None => format!("unknown rule `{}`", allow.rule),
                };
                self.find(
                    "idle-allow",
                    Subject { kind, name, position: allow.position, allow: &[] },
                    message,
                );
            }
        }
    }
}
