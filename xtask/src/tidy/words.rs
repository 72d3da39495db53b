//! Phrases that readers have to read twice, found in documentation, comments, messages and pages.

use anyhow::Result;
use regex::{Regex, RegexBuilder};

use super::{Tree, position};

/// A phrase as a regular expression, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    (r"\banew\b", "again"),
    (r"\bwhoever\b", "name the actor"),
    (r"\bwhom\b", "name the actor"),
    (r"\b(some|no|every)body\b", "name the actor: the client, another instance, no node"),
    (r"\bhardly\b", "barely, or a number"),
    (r"\bamid\b", "during"),
    (r"\bin one breath\b", "atomically"),
    (r"\bat leisure\b", "say when"),
    (r"\blost sight of\b", "say what was lost"),
    (r"\b(is|are|was|were) told\b", "receives, is notified"),
    (r"\bhears?\b", "receives, listens"),
    (r"\bknows more\b", "see the log"),
    (r"\bgoes by (the|that|this) name\b", "is named"),
    (r"\bof (its|their) own([.,;:()`]|$)", "its own X, a separate X"),
    (r"\bwish(es)?\b", "request"),
    (r"\bmend(s|ed|ing)?\b", "repair, restore"),
    (r"\bobey(s|ed)?\b", "apply"),
    (r"\bstrangers?\b", "unknown caller"),
];

/// "X is no map" is "X is not a map", but these may follow "is no", and "there is no map" is fine.
const AFTER_NO: &[&str] =
    &["longer", "other", "such", "more", "later", "earlier", "newer", "older", "larger", "less"];

/// Files whose words are not ours, or that quote such phrases.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/schema/tests/", "documents that users wrote"),
    ("crates/schema-audit/tests/", "documents that users wrote"),
    ("docs/contract.md", "quotes those documents"),
    ("xtask/src/tidy/words.rs", "this list"),
];

impl Tree {
    pub(super) fn check_words(&self, problems: &mut Vec<String>) -> Result<()> {
        let phrases: Vec<(Regex, &str)> = PHRASES
            .iter()
            .map(|(phrase, instead)| {
                Ok((RegexBuilder::new(phrase).case_insensitive(true).build()?, *instead))
            })
            .collect::<Result<_>>()?;
        let no = Regex::new(r"(?i)(there )?\b(?:is|are) no ([a-z]+)")?;
        for (path, text) in &self.0 {
            let prose = [".rs", ".lua", ".toml", ".md", ".html", ".js"].iter().any(|end| path.ends_with(end));
            if !prose || ALLOWED.iter().any(|(prefix, _)| path.starts_with(prefix)) {
                continue;
            }
            for (start, words) in words(path, text) {
                let mut report = |at: usize, phrase: &str, instead: &str| {
                    problems
                        .push(format!("{}: {phrase:?}; write: {instead}", position(path, text, start + at)));
                };
                for (phrase, instead) in &phrases {
                    if let Some(found) = phrase.find(words) {
                        report(found.start(), found.as_str(), instead);
                    }
                }
                for found in no.captures_iter(words) {
                    if found.get(1).is_none() && !AFTER_NO.contains(&&found[2]) {
                        let at = found.get(0).map_or(0, |whole| whole.start());
                        report(at, &found[0], "is not a");
                    }
                }
            }
        }
        Ok(())
    }
}

/// The parts of a file that people read: comments and texts of source code, and whole pages.
fn words<'a>(path: &str, text: &'a str) -> Vec<(usize, &'a str)> {
    let mut parts = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let part = if path.ends_with(".rs") || path.ends_with(".js") {
            readable(line, "//")
        } else if path.ends_with(".lua") {
            readable(line, "--")
        } else {
            Some(line)
        };
        if let Some(part) = part {
            parts.push((start + (part.as_ptr() as usize - line.as_ptr() as usize), part));
        }
        start += line.len();
    }
    parts
}

/// Of a line of code its comment, or the text from its first quotation mark on.
fn readable<'a>(line: &'a str, comment: &str) -> Option<&'a str> {
    let at = [line.find(comment), line.find('"')].into_iter().flatten().min()?;
    Some(&line[at..])
}
