//! What the five documents' own example commands get wrong, found by running them and auditing after each.
//!
//! The page with the result is kept in `docs/schemas/examples.md`;
//! `UPDATE_DOCS=1 cargo test -p hob-schema --test documents` writes it again.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use hob_schema::live::{AuditOptions, AuditReport, audit};
use hob_schema::{Catalog, Layout, Schema};
use hob_testkit::RedisServer;

const DOCUMENTS: [(&str, &str, &str); 5] = [
    ("gateway", "G", include_str!("data/documents/gateway.txt")),
    ("uptime", "U", include_str!("data/documents/uptime.txt")),
    ("chat", "C", include_str!("data/documents/chat.txt")),
    ("load", "L", include_str!("data/documents/load.txt")),
    ("pipeline", "P", include_str!("data/documents/pipeline.txt")),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

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

/// A finding, the command after which it was first seen, and whether it was there until the end.
#[derive(Debug)]
struct Found {
    after: String,
    what: String,
    key: String,
    message: String,
    stays: bool,
}

impl Found {
    /// Sums say another number after each command and are the same finding still.
    fn is(&self, (what, key, message): &(String, String, String)) -> bool {
        self.what == *what && self.key == *key && (self.message == *message || what == "broken-sum")
    }
}

#[derive(Debug, Default)]
struct Outcome {
    commands: usize,
    refused: Vec<(String, String)>,
    found: Vec<Found>,
}

fn findings(report: &AuditReport) -> Vec<(String, String, String)> {
    let violations = report.violations.iter().flat_map(|group| {
        let what = group.breach.name().to_owned();
        group.examples.iter().map(move |example| (what.clone(), example.key.clone(), example.message.clone()))
    });
    let strangers = report
        .undeclared
        .iter()
        .map(|group| ("undeclared-key".to_owned(), group.example.clone(), "belongs to no family".to_owned()));
    violations.chain(strangers).collect()
}

/// Runs a document's commands on an empty server and audits after each.
async fn run(name: &str, text: &str) -> Outcome {
    let server = RedisServer::start();
    let schema = Schema::load(&root().join(format!("schemas/{name}.toml"))).unwrap();
    let catalog = Catalog::new(vec![schema], Layout::Plain).unwrap();
    let mut outcome = Outcome::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words = words(line);
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        outcome.commands += 1;
        if let Err(error) = command.query::<redis::Value>(&mut server.connect()) {
            // Versions of Redis differ in what they say further on.
            let detail = error.detail().unwrap_or_default().split([',', '.']).next().unwrap_or_default();
            let words = detail.split(" script:").next().unwrap_or_default().trim().to_owned();
            outcome.refused.push((line.to_owned(), words));
        }
        let report = audit(&server.url(), &catalog, AuditOptions::default(), &mut |_| {}).await.unwrap();
        let now = findings(&report);
        for found in &mut outcome.found {
            found.stays = now.iter().any(|(what, key, _)| *what == found.what && *key == found.key);
        }
        for now in now {
            if !outcome.found.iter().any(|found| found.is(&now)) {
                let (what, key, message) = now;
                outcome.found.push(Found { after: line.to_owned(), what, key, message, stays: true });
            }
        }
    }
    outcome
}

fn shortened(line: &str) -> String {
    let short: String = line.chars().take(90).collect();
    let dots = if short.len() < line.len() { "…" } else { "" };
    format!("{short}{dots}").replace('|', "\\|")
}

fn section(out: &mut String, name: &str, letter: &str, outcome: &Outcome) {
    let _ = writeln!(out, "## {letter} · [{name}]({name}.md)\n");
    let _ = writeln!(out, "{} commands, {} refused by Redis.\n", outcome.commands, outcome.refused.len());
    for (line, error) in &outcome.refused {
        let _ = writeln!(out, "- `{}`: {}", shortened(line), error);
    }
    if !outcome.refused.is_empty() {
        out.push('\n');
    }
    if outcome.found.is_empty() {
        let _ = writeln!(out, "Everything is as declared after each of them.\n");
        return;
    }
    let _ = writeln!(out, "| after | key | finding | until |\n|---|---|---|---|");
    for found in &outcome.found {
        let until = if found.stays { "the end" } else { "a later command" };
        let (after, key) = (shortened(&found.after), shortened(&found.key));
        let _ = writeln!(out, "| `{after}` | `{key}` | {}: {} | {until} |", found.what, found.message);
    }
    out.push('\n');
}

#[tokio::test]
async fn the_page_about_the_documents_examples_is_fresh() {
    let mut page = String::from(
        "# What the documents' own examples get wrong\n\n\
         <!-- Made by `UPDATE_DOCS=1 cargo test -p hob-schema --test documents`. -->\n\n\
         The example commands of the five documents, run one by one on an empty Redis and audited with our \
         schemas after each. \"Until a later command\" is the window in which a crash would have left the key so: \
         the commands belong into one script.\n\n",
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
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == page,
        "docs/schemas/examples.md is stale: UPDATE_DOCS=1 cargo test -p hob-schema --test documents"
    );
}

/// C6: the gap between INCR and PEXPIRE is what blocks a user for ever.
#[tokio::test]
async fn a_ttl_that_is_set_by_a_second_command_is_seen_missing_after_the_first() {
    let outcome = run("chat", DOCUMENTS[2].2).await;
    let gap = outcome.found.iter().find(|found| found.after.starts_with("INCR rate:message")).unwrap();
    assert_eq!((gap.what.as_str(), gap.stays), ("missing-ttl", false));
    let (line, error) = &outcome.refused[0];
    assert!(line.starts_with("EVAL") && !error.is_empty(), "{line}: {error}");
}
