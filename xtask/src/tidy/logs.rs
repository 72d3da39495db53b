//! docs/logs.md: every message that the program logs, collected from the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::Tree;
use crate::workspace;

const PAGE: &str = "docs/logs.md";
const LEVELS: [&str; 3] = ["error", "warn", "info"];
const MAX_MESSAGE: usize = 80;

/// A message, with the fields of all places that log it.
type Messages = BTreeMap<(String, String), BTreeSet<String>>;

impl Tree {
    /// Checks the style of log messages and that the page lists them. `UPDATE_DOCS=1` writes the page.
    pub(super) fn check_logs(&self, problems: &mut Vec<String>) -> Result<()> {
        let mut crates: BTreeMap<&str, Messages> = BTreeMap::new();
        for (path, text) in self.with_ending(".rs").filter(|(path, _)| super::is_product(path)) {
            let name = path.split('/').nth(1).unwrap_or_default();
            let tokens: TokenStream =
                text.parse().map_err(|error| anyhow::anyhow!("{path}: cannot read the source: {error}"))?;
            let mut found = Vec::new();
            collect(tokens, &mut found);
            for log in found {
                if let Some(reason) = log.fault() {
                    problems.push(format!("{path}: log message {:?} {reason}", log.message));
                }
                let messages = crates.entry(name).or_default();
                messages.entry((log.message, log.level)).or_default().extend(log.fields);
            }
        }
        let page = page(&crates);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(workspace().join(PAGE), page).with_context(|| format!("cannot write {PAGE}"))?;
        } else if self.0.get(PAGE).is_none_or(|written| *written != page) {
            problems.push(format!("{PAGE} is out of date; run UPDATE_DOCS=1 cargo xtask tidy"));
        }
        Ok(())
    }
}

struct Log {
    level: String,
    message: String,
    fields: Vec<String>,
}

impl Log {
    /// What is wrong with the message, if anything.
    fn fault(&self) -> Option<&'static str> {
        let message = &self.message;
        if message.is_empty() {
            return Some("is missing; every event has a constant message");
        }
        if message.contains('{') {
            return Some("is formatted; put values into fields");
        }
        if message.ends_with(['.', '!', '…']) || message.len() > MAX_MESSAGE {
            return Some("is a sentence; write a short phrase without a full stop");
        }
        let mut letters = message.chars();
        let capital = letters.next().is_some_and(char::is_uppercase);
        // An abbreviation such as TLS may come first.
        if capital && letters.next().is_some_and(char::is_lowercase) && !message.starts_with("Redis") {
            return Some("begins with a capital letter");
        }
        None
    }
}

/// Finds `warn!(…)` and the like at any depth.
fn collect(tokens: TokenStream, found: &mut Vec<Log>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            match level(&tokens[..index]) {
                Some(level) if group.delimiter() == Delimiter::Parenthesis => found.push(read(level, group)),
                _ => collect(group.stream(), found),
            }
        }
    }
}

/// The level, if these tokens end with `warn!` and the like.
fn level(before: &[TokenTree]) -> Option<String> {
    let [.., TokenTree::Ident(name), TokenTree::Punct(bang)] = before else { return None };
    let name = name.to_string();
    (bang.as_char() == '!' && LEVELS.contains(&name.as_str())).then_some(name)
}

fn read(level: String, arguments: &Group) -> Log {
    let mut log = Log { level, message: String::new(), fields: Vec::new() };
    let mut part = Vec::new();
    let end = TokenTree::Punct(proc_macro2::Punct::new(',', proc_macro2::Spacing::Alone));
    for token in arguments.stream().into_iter().chain([end]) {
        match token {
            TokenTree::Punct(comma) if comma.as_char() == ',' => log.take(&std::mem::take(&mut part)),
            token => part.push(token),
        }
    }
    log
}

impl Log {
    /// Takes one argument: the message, or a field such as `%error`, `?state` or `node = %id`.
    fn take(&mut self, part: &[TokenTree]) {
        match part {
            [TokenTree::Literal(text)] => text.to_string().trim_matches('"').clone_into(&mut self.message),
            [TokenTree::Ident(target), ..] if target == "target" => {}
            [TokenTree::Punct(_), TokenTree::Ident(name), ..] | [TokenTree::Ident(name), ..] => {
                self.fields.push(name.to_string());
            }
            _ => {}
        }
    }
}

fn page(crates: &BTreeMap<&str, Messages>) -> String {
    let mut page = String::from(
        "# Log messages\n\n\
         What Hob logs at the levels `error`, `warn` and `info`, by crate. A message is constant, so that it can be\n\
         searched for; details are in its fields. Generated from the source by `UPDATE_DOCS=1 cargo xtask tidy`.\n",
    );
    for (name, messages) in crates {
        let _ = write!(page, "\n## {name}\n\n| message | level | fields |\n|---|---|---|\n");
        for ((message, level), fields) in messages {
            let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
            let _ = writeln!(page, "| {message} | {level} | {} |", fields.join(", "));
        }
    }
    page
}
