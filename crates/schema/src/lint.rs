//! Reading a schema as a reviewer would: what is allowed by the language and still a mistake.

mod families;
mod keys;
mod rules;

pub use rules::{RULES, Rule, Severity, explain};

use std::fmt::Write as _;

use serde::Serialize;

use crate::model::{Allow, Schema};
use crate::source::Place;

/// One finding of the linter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub rule: &'static str,
    pub severity: Severity,
    pub file: String,
    #[serde(flatten)]
    pub place: Place,
    /// What it is about: `key.recent`, `ids.endpoint`, `schema`.
    pub subject: String,
    pub message: String,
}

/// Everything that the rules find in a schema and no `allow` excuses.
pub fn lint(schema: &Schema) -> Vec<Finding> {
    let mut linter = Linter { schema, findings: Vec::new(), excused: Vec::new() };
    keys::check(&mut linter);
    families::check(&mut linter);
    linter.check_allows();
    let mut findings = linter.findings;
    findings.sort_by_key(|finding| (finding.place, finding.rule));
    findings
}

/// The findings as text for people, with a last line that counts them.
pub fn report_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let (place, severity) = (finding.place, finding.severity.name());
        let _ = writeln!(
            text,
            "{}:{}:{}: {severity}[{}] {}: {}",
            finding.file, place.line, place.column, finding.rule, finding.subject, finding.message
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
    let mut page =
        String::from("# Lint rules\n\n<!-- Made from the rules themselves; edit them instead. -->\n");
    for rule in RULES {
        let _ = write!(
            page,
            "\n## {}\n\n*{}*: {}.\n\n{}\n",
            rule.id,
            rule.severity.name(),
            rule.title,
            rule.explanation
        );
    }
    page
}

/// What the rules write into.
struct Linter<'s> {
    schema: &'s Schema,
    findings: Vec<Finding>,
    /// The places of the `allow` entries that excused something.
    excused: Vec<Place>,
}

/// Something that a rule can be about.
#[derive(Clone, Copy)]
struct Subject<'s> {
    kind: &'static str,
    name: &'s str,
    place: Place,
    allow: &'s [Allow],
}

impl Linter<'_> {
    fn find(&mut self, rule: &'static str, subject: Subject<'_>, message: impl Into<String>) {
        if let Some(allow) = subject.allow.iter().find(|allow| allow.rule == rule) {
            self.excused.push(allow.place);
            return;
        }
        let severity = explain(rule).map_or(Severity::Warning, |rule| rule.severity);
        let name = if subject.name.is_empty() { String::new() } else { format!(".{}", subject.name) };
        self.findings.push(Finding {
            rule,
            severity,
            file: self.schema.file.clone(),
            place: subject.place,
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
                allows.iter().filter(|allow| !self.excused.contains(&allow.place)).collect::<Vec<_>>()
            {
                let message = match explain(&allow.rule) {
                    Some(_) => format!("nothing here breaks `{}`", allow.rule),
                    None => format!("no rule is called `{}`", allow.rule),
                };
                self.find("idle-allow", Subject { kind, name, place: allow.place, allow: &[] }, message);
            }
        }
    }
}
