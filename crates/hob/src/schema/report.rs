//! Findings of lint, diff and audit in the formats that CI systems read.

use std::fmt::Write as _;

use hob_schema::diff::{Change, Class};
use hob_schema::lint::{Finding, Severity};
use hob_schema::{Catalog, Position};
use hob_schema_audit::AuditReport;
use serde_json::json;

use crate::cli::ReportFormat;

/// A format that has one entry for each finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListFormat {
    Sarif,
    Junit,
    Github,
}

impl ListFormat {
    /// `None` for text and JSON, which each command writes in its own way.
    pub(super) fn of(format: ReportFormat) -> Option<ListFormat> {
        match format {
            ReportFormat::Text | ReportFormat::Json => None,
            ReportFormat::Sarif => Some(ListFormat::Sarif),
            ReportFormat::Junit => Some(ListFormat::Junit),
            ReportFormat::Github => Some(ListFormat::Github),
        }
    }
}

/// One finding, at a line of a schema file.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    rule: String,
    /// `None` for a change that needs no action.
    severity: Option<Severity>,
    file: String,
    position: Position,
    message: String,
}

pub(super) fn lint_entries(findings: &[Finding]) -> Vec<Entry> {
    let entry = |finding: &Finding| Entry {
        rule: finding.rule.to_owned(),
        severity: Some(finding.severity),
        file: finding.file.clone(),
        position: finding.position,
        message: format!("{}: {}", finding.subject, finding.message),
    };
    findings.iter().map(entry).collect()
}

pub(super) fn diff_entries(changes: &[Change]) -> Vec<Entry> {
    let entry = |change: &Change| {
        let effects: Vec<&str> = change.effects.iter().map(|effect| effect.as_str()).collect();
        let effects = if effects.is_empty() { String::new() } else { format!(" ({})", effects.join(", ")) };
        Entry {
            rule: format!("schema-{}", change.class.as_str()),
            severity: severity(change.class),
            file: change.file.clone(),
            position: change.position,
            message: format!("{}: {}{effects}", change.subject, change.message),
        }
    };
    changes.iter().map(entry).collect()
}

/// How severe a change is for an exit code.
pub(super) fn severity(class: Class) -> Option<Severity> {
    match class {
        Class::Compatible => None,
        Class::Migration => Some(Severity::Warning),
        Class::Breaking => Some(Severity::Error),
    }
}

/// A finding of an audit is at the line of its family; an undeclared key is at the first line of the first schema.
pub(super) fn audit_entries(report: &AuditReport, catalog: &Catalog) -> Vec<Entry> {
    let nowhere = (
        catalog.spaces().first().map(|space| space.schema().file.clone()).unwrap_or_default(),
        Position { line: 1, column: 1 },
    );
    let place = |name: &str| {
        let found = catalog.families().find(|(id, family)| {
            name.split_once('.') == Some((catalog.schema(*id).name.as_str(), family.name.as_str()))
        });
        found.map_or(nowhere.clone(), |(id, family)| (catalog.schema(id).file.clone(), family.position))
    };
    let mut entries = Vec::new();
    for group in &report.violations {
        let (file, position) = place(&group.family);
        let example = group.examples.first().map(|example| format!("{} {}", example.key, example.message));
        let message =
            format!("{}: {}, such as {}", group.family, group.amount(), example.unwrap_or_default());
        let rule = group.breach.as_str().to_owned();
        entries.push(Entry { rule, severity: Some(group.severity), file, position, message });
    }
    for group in &report.undeclared {
        let (file, position) = nowhere.clone();
        let noun = if group.keys == 1 { "key" } else { "keys" };
        let message =
            format!("{}: {} undeclared {noun}, such as {}", group.pattern, group.keys, group.example);
        let rule = "undeclared-key".to_owned();
        entries.push(Entry { rule, severity: Some(Severity::Warning), file, position, message });
    }
    entries
}

/// The report of a command, such as `hob schema lint`.
pub(super) fn render(format: ListFormat, command: &str, entries: &[Entry]) -> String {
    match format {
        ListFormat::Sarif => sarif(entries),
        ListFormat::Junit => junit(command, entries),
        ListFormat::Github => github(entries),
    }
}

/// SARIF 2.1.0, for example for GitHub's code scanning.
fn sarif(entries: &[Entry]) -> String {
    let level = |entry: &Entry| entry.severity.map_or("note", Severity::as_str);
    let mut rules: Vec<&str> = entries.iter().map(|entry| entry.rule.as_str()).collect();
    rules.sort_unstable();
    rules.dedup();
    let rules: Vec<_> = rules.iter().map(|rule| json!({ "id": rule })).collect();
    let result = |entry: &Entry| {
        let region = json!({ "startLine": entry.position.line, "startColumn": entry.position.column });
        let location = json!({ "artifactLocation": { "uri": entry.file }, "region": region });
        json!({
            "ruleId": entry.rule,
            "level": level(entry),
            "message": { "text": entry.message },
            "locations": [{ "physicalLocation": location }],
        })
    };
    let results: Vec<_> = entries.iter().map(result).collect();
    let driver = json!({ "name": "hob schema", "version": env!("CARGO_PKG_VERSION"), "rules": rules });
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{ "tool": { "driver": driver }, "results": results }],
    });
    serde_json::to_string_pretty(&log).unwrap_or_default()
}

/// JUnit's XML: each finding is a failed test; without findings one test has passed.
fn junit(command: &str, entries: &[Entry]) -> String {
    let failures: Vec<&Entry> = entries.iter().filter(|entry| entry.severity.is_some()).collect();
    let tests = failures.len().max(1);
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let suite = xml(command);
    let counts = format!("tests=\"{tests}\" failures=\"{}\"", failures.len());
    let _ = writeln!(out, "<testsuites {counts}>\n  <testsuite name=\"{suite}\" {counts}>");
    for entry in &failures {
        let place = format!("{}:{}:{}", entry.file, entry.position.line, entry.position.column);
        let (rule, message) = (xml(&entry.rule), xml(&entry.message));
        let _ = writeln!(
            out,
            "    <testcase classname=\"{suite}\" name=\"{rule} {message}\">\n      <failure type=\"{rule}\" \
             message=\"{message}\">{}</failure>\n    </testcase>",
            xml(&place)
        );
    }
    if failures.is_empty() {
        let _ = writeln!(out, "    <testcase classname=\"{suite}\" name=\"no findings\"/>");
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

/// XML 1.0 has no control characters.
fn xml(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            char if char.is_control() => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}

/// Workflow commands, which GitHub Actions shows at the lines of a pull request.
fn github(entries: &[Entry]) -> String {
    let mut out = String::new();
    for entry in entries {
        let level = match entry.severity {
            None => "notice",
            Some(severity) => severity.as_str(),
        };
        let property = |text: &str| github_text(text).replace(':', "%3A").replace(',', "%2C");
        let _ = writeln!(
            out,
            "::{level} file={},line={},col={},title={}::{}",
            property(&entry.file),
            entry.position.line,
            entry.position.column,
            property(&entry.rule),
            github_text(&entry.message)
        );
    }
    out
}

fn github_text(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(severity: Option<Severity>, message: &str) -> Entry {
        Entry {
            rule: "no-cap".to_owned(),
            severity,
            file: "a,b.toml".to_owned(),
            position: Position { line: 3, column: 6 },
            message: message.to_owned(),
        }
    }

    #[test]
    fn github_annotations_are_escaped() {
        let text = github(&[entry(Some(Severity::Error), "50% of\nthe keys"), entry(None, "is new")]);
        let expected = "::error file=a%2Cb.toml,line=3,col=6,title=no-cap::50%25 of%0Athe keys\n\
                        ::notice file=a%2Cb.toml,line=3,col=6,title=no-cap::is new\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn junit_has_a_failure_for_each_finding_and_a_passed_test_without_any() {
        let failed = junit("lint", &[entry(Some(Severity::Warning), "a <b> \"c\" & \u{1}")]);
        assert!(
            failed.contains("failures=\"1\"") && failed.contains("a &lt;b&gt; &quot;c&quot; &amp; \u{fffd}")
        );
        let passed = junit("lint", &[entry(None, "is new")]);
        assert!(passed.contains("failures=\"0\"") && passed.contains("name=\"no findings\""), "{passed}");
    }

    #[test]
    fn sarif_names_rule_level_and_place() {
        let log: serde_json::Value =
            serde_json::from_str(&sarif(&[entry(Some(Severity::Warning), "x")])).unwrap();
        let result = &log["runs"][0]["results"][0];
        assert_eq!((result["ruleId"].as_str(), result["level"].as_str()), (Some("no-cap"), Some("warning")));
        let region = &result["locations"][0]["physicalLocation"]["region"];
        assert_eq!(region["startLine"], 3);
    }
}
