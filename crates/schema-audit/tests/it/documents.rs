//! The example commands of the five source documents, run one by one and audited after each.
//!
//! The result is `docs/schemas/examples.md`; `UPDATE_DOCS=1 cargo test -p hob-schema-audit documents` rewrites it.

use std::fmt::Write as _;

use hob_schema::{Catalog, Layout};
use hob_schema_audit::AuditReport;
use hob_testkit::RedisServer;

use crate::{load_schema, open, root, run_audit};

const DOCUMENTS: [(&str, &str, &str); 5] = [
    ("gateway", "G", include_str!("../data/documents/gateway.txt")),
    ("uptime", "U", include_str!("../data/documents/uptime.txt")),
    ("chat", "C", include_str!("../data/documents/chat.txt")),
    ("load", "L", include_str!("../data/documents/load.txt")),
    ("pipeline", "P", include_str!("../data/documents/pipeline.txt")),
];

/// The words of a command as redis-cli would split them.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            quote @ ('"' | '\'') => rest[1..].split_once(quote).unwrap_or((&rest[1..], "")),
            _ => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}

/// A finding, the command after which it first occurred, and whether it remained until the end.
#[derive(Debug)]
struct Found {
    after: String,
    what: String,
    key: String,
    message: String,
    stays: bool,
}

impl Found {
    /// The message of a broken sum has another number after each command, but it is the same finding.
    fn is(&self, (what, key, message): &(String, String, String)) -> bool {
        self.what == *what && self.key == *key && (self.message == *message || what == "broken-sum")
    }
}

#[derive(Debug, Default)]
struct DocumentAudit {
    commands: usize,
    refused: Vec<(String, String)>,
    found: Vec<Found>,
}

fn findings(report: &AuditReport) -> Vec<(String, String, String)> {
    let violations = report.violations.iter().flat_map(|group| {
        let what = group.breach.as_str().to_owned();
        group.examples.iter().map(move |example| (what.clone(), example.key.clone(), example.message.clone()))
    });
    let undeclared = report.undeclared.iter().map(|group| {
        (
            "undeclared-key".to_owned(),
            group.example.clone(),
            "does not belong to a declared family".to_owned(),
        )
    });
    violations.chain(undeclared).collect()
}

/// Runs a document's commands on an empty server and audits after each.
async fn run(name: &str, text: &str) -> DocumentAudit {
    let server = RedisServer::start();
    let catalog = Catalog::new(vec![load_schema(name)], Layout::Plain).unwrap();
    let store = open(&server.url()).await;
    let mut audit = DocumentAudit::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words = words(line);
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        audit.commands += 1;
        if let Err(error) = command.query::<redis::Value>(&mut server.connect()) {
            // The rest of the message differs between versions of Redis.
            let detail = error.detail().unwrap_or_default().split([',', '.']).next().unwrap_or_default();
            let words = detail.split(" script:").next().unwrap_or_default().trim().to_owned();
            audit.refused.push((line.to_owned(), words));
        }
        let report = run_audit(&store, &catalog).await;
        let now = findings(&report);
        for found in &mut audit.found {
            found.stays = now.iter().any(|(what, key, _)| *what == found.what && *key == found.key);
        }
        for now in now {
            if !audit.found.iter().any(|found| found.is(&now)) {
                let (what, key, message) = now;
                audit.found.push(Found { after: line.to_owned(), what, key, message, stays: true });
            }
        }
    }
    audit
}

fn shortened(line: &str) -> String {
    let short: String = line.chars().take(90).collect();
    let dots = if short.len() < line.len() { "…" } else { "" };
    format!("{short}{dots}").replace('|', "\\|")
}

fn section(out: &mut String, name: &str, letter: &str, audit: &DocumentAudit) {
    let _ = writeln!(out, "## {letter} · [{name}]({name}.md)\n");
    let _ = writeln!(out, "{} commands, {} refused by Redis.\n", audit.commands, audit.refused.len());
    for (line, error) in &audit.refused {
        let _ = writeln!(out, "- `{}`: {}", shortened(line), error);
    }
    if !audit.refused.is_empty() {
        out.push('\n');
    }
    if audit.found.is_empty() {
        let _ = writeln!(out, "No findings.\n");
        return;
    }
    let _ = writeln!(out, "| after | key | finding | until |\n|---|---|---|---|");
    for found in &audit.found {
        let until = if found.stays { "the end" } else { "a later command" };
        let (after, key) = (shortened(&found.after), shortened(&found.key));
        let _ = writeln!(out, "| `{after}` | `{key}` | {}: {} | {until} |", found.what, found.message);
    }
    out.push('\n');
}

#[tokio::test]
async fn examples_page_is_up_to_date() {
    let mut page = String::from(
        "# Audit of the documents' example commands\n\n\
         <!-- Generated by `UPDATE_DOCS=1 cargo test -p hob-schema-audit documents`. -->\n\n\
         Hob's five services implement five documents that describe their keys with example commands. Here are those \
         commands, run one by one on an empty Redis and audited with Hob's schemas after each. If a finding lasts \
         \"until a later command\", a crash between the two commands leaves the key in that state: the commands \
         belong in one script.\n\n",
    );
    for (name, letter, text) in DOCUMENTS {
        section(&mut page, name, letter, &run(name, text).await);
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    let file = root().join("docs/schemas/examples.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let current = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        current == page,
        "docs/schemas/examples.md is out of date: UPDATE_DOCS=1 cargo test -p hob-schema-audit documents"
    );
}

/// C6: a crash between INCR and PEXPIRE blocks a user permanently.
#[tokio::test]
async fn ttl_set_by_a_second_command_is_missing_after_the_first() {
    let audit = run("chat", DOCUMENTS[2].2).await;
    let gap = audit.found.iter().find(|found| found.after.starts_with("INCR rate:message")).unwrap();
    assert_eq!((gap.what.as_str(), gap.stays), ("missing-ttl", false));
    let (line, error) = &audit.refused[0];
    assert!(line.starts_with("EVAL") && !error.is_empty(), "{line}: {error}");
}
