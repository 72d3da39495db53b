//! The log on the page of a run: filtered, with repeated lines folded into one, in pages.

use std::collections::HashMap;

use hob_expression::Escape;
use hob_web::components::{Badge, Field, RelativeTime, Tone};
use serde::Deserialize;

use crate::run::logs::{LogLevel, LogLine, LogStream};

/// Rows on one page.
const ROWS: usize = 50;

/// What the log shows.
#[derive(Debug, Default, Deserialize)]
pub(super) struct LogQuery {
    #[serde(default)]
    level: String,
    /// A part of the message or of the user.
    #[serde(default)]
    q: String,
    #[serde(default)]
    lines: Lines,
    /// From 1.
    page: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Lines {
    /// Lines with the same level and message, for any user, are one row.
    #[default]
    Folded,
    Each,
}

/// The name in the query, the label and the level of each filter.
const LEVELS: [(&str, &str, Option<LogLevel>); 4] = [
    ("", "All", None),
    ("info", "Info", Some(LogLevel::Info)),
    ("warn", "Warnings", Some(LogLevel::Warn)),
    ("error", "Errors", Some(LogLevel::Error)),
];

impl LogQuery {
    fn level(&self) -> Option<LogLevel> {
        LEVELS.iter().find(|(name, ..)| *name == self.level).and_then(|(_, _, level)| *level)
    }

    /// Errors have their own list, so that other lines cannot displace them.
    pub(super) fn stream(&self) -> LogStream {
        if self.level() == Some(LogLevel::Error) { LogStream::Errors } else { LogStream::All }
    }
}

/// A page of the log.
pub(super) struct LogPage {
    pub(super) rows: Vec<LogRow>,
    /// Lines that match, on all pages.
    pub(super) lines: usize,
    pub(super) search: Field,
    query: LogQuery,
    page: usize,
    pages: usize,
    path: String,
}

/// Lines with the same level and message, or one line.
pub(super) struct LogRow {
    pub(super) message: String,
    pub(super) newest: LogLine,
    pub(super) oldest_ms: i64,
    pub(super) count: usize,
}

/// A link that changes what the log shows.
pub(super) struct LogLink {
    pub(super) label: String,
    pub(super) href: String,
    pub(super) is_current: bool,
}

impl LogPage {
    /// The lines come newest first.
    pub(super) fn new(query: LogQuery, lines: impl Iterator<Item = LogLine>, path: &str) -> Self {
        let (level, wanted) = (query.level(), query.q.trim().to_lowercase());
        let matches = |line: &LogLine| {
            level.is_none_or(|level| line.level == level)
                && (line.message.to_lowercase().contains(&wanted)
                    || line.user_id.as_ref().is_some_and(|user| user.to_lowercase().contains(&wanted)))
        };
        let lines: Vec<LogLine> = lines.filter(matches).collect();
        let count = lines.len();
        let rows = fold(lines, query.lines);
        let pages = rows.len().div_ceil(ROWS).max(1);
        let page = query.page.unwrap_or(1).clamp(1, pages);
        let rows = rows.into_iter().skip((page - 1) * ROWS).take(ROWS).collect();
        let search = Field::search("q", "Search the log").value(&query.q).max_length(200);
        Self { rows, lines: count, search, query, page, pages, path: path.to_owned() }
    }

    pub(super) fn levels(&self) -> Vec<LogLink> {
        let link = |(name, label, level): (&str, &str, Option<LogLevel>)| LogLink {
            label: label.to_owned(),
            href: self.href(name, self.query.lines, 1),
            is_current: level == self.query.level(),
        };
        LEVELS.map(link).into()
    }

    /// Whether repeated lines are folded.
    pub(super) fn folding(&self) -> [LogLink; 2] {
        [("Repeated lines folded", Lines::Folded), ("Each line", Lines::Each)].map(|(label, lines)| LogLink {
            label: label.to_owned(),
            href: self.href(&self.query.level, lines, 1),
            is_current: lines == self.query.lines,
        })
    }

    pub(super) fn newer(&self) -> Option<String> {
        (self.page > 1).then(|| self.href(&self.query.level, self.query.lines, self.page - 1))
    }

    pub(super) fn older(&self) -> Option<String> {
        (self.page < self.pages).then(|| self.href(&self.query.level, self.query.lines, self.page + 1))
    }

    pub(super) fn position(&self) -> String {
        format!("Page {} of {}", self.page, self.pages)
    }

    /// The fields that a search keeps.
    pub(super) fn kept(&self) -> Vec<(&'static str, &str)> {
        let mut kept = Vec::new();
        if !self.query.level.is_empty() {
            kept.push(("level", self.query.level.as_str()));
        }
        if self.query.lines == Lines::Each {
            kept.push(("lines", "each"));
        }
        kept
    }

    fn href(&self, level: &str, lines: Lines, page: usize) -> String {
        let mut parts = Vec::new();
        if !level.is_empty() {
            parts.push(format!("level={}", Escape::Url.apply(level)));
        }
        if !self.query.q.is_empty() {
            parts.push(format!("q={}", Escape::Url.apply(&self.query.q)));
        }
        if lines == Lines::Each {
            parts.push("lines=each".to_owned());
        }
        if page > 1 {
            parts.push(format!("page={page}"));
        }
        format!("{}?{}#logs", self.path, parts.join("&"))
    }
}

impl LogRow {
    pub(super) fn badge(&self) -> Badge {
        match self.newest.level {
            LogLevel::Info => Tone::Idle.badge("info"),
            LogLevel::Warn => Tone::Warn.badge("warn"),
            LogLevel::Error => Tone::Bad.badge("error"),
        }
    }

    pub(super) fn when(&self) -> RelativeTime {
        RelativeTime::at(self.newest.timestamp)
    }

    pub(super) fn since(&self) -> RelativeTime {
        RelativeTime::at(self.oldest_ms)
    }
}

/// Each row has the place of its newest line.
fn fold(lines: Vec<LogLine>, how: Lines) -> Vec<LogRow> {
    let mut rows: Vec<LogRow> = Vec::new();
    let mut known: HashMap<(LogLevel, String), usize> = HashMap::new();
    for line in lines {
        let key = (line.level, without_user(&line));
        let earlier = if how == Lines::Folded { known.get(&key) } else { None };
        if let Some(row) = earlier.and_then(|index| rows.get_mut(*index)) {
            row.count += 1;
            row.oldest_ms = line.timestamp;
            row.message = key.1;
        } else {
            known.insert(key, rows.len());
            rows.push(LogRow {
                message: line.message.clone(),
                oldest_ms: line.timestamp,
                count: 1,
                newest: line,
            });
        }
    }
    rows
}

/// The message without the number of its user: `User 7 connected` becomes `User … connected`.
fn without_user(line: &LogLine) -> String {
    let numbered = line.user_id.as_ref().and_then(|_| line.message.strip_prefix("User "));
    let rest = numbered.map(|text| text.trim_start_matches(|c: char| c.is_ascii_digit()));
    rest.map_or_else(|| line.message.clone(), |rest| format!("User …{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(timestamp: i64, level: LogLevel, message: &str) -> LogLine {
        LogLine::new(timestamp, level, message.to_owned())
    }

    fn lines() -> Vec<LogLine> {
        (0..300)
            .rev()
            .map(|at| match at % 3 {
                0 => line(at, LogLevel::Error, "order: status 503"),
                1 => line(at, LogLevel::Info, "user signed in"),
                _ => line(at, LogLevel::Warn, &format!("slow second {at}")),
            })
            .collect()
    }

    #[test]
    fn repeated_lines_are_one_row_with_their_number() {
        let page = LogPage::new(LogQuery::default(), lines().into_iter(), "/load/runs/a");
        let error = page.rows.iter().find(|row| row.newest.level == LogLevel::Error).unwrap();
        assert_eq!((error.count, error.newest.timestamp, error.oldest_ms), (100, 297, 0));
        assert_eq!((page.rows.len(), page.lines, page.position().as_str()), (50, 300, "Page 1 of 3"));
    }

    #[test]
    fn lines_of_different_users_are_folded() {
        let connected = |user: i64| LogLine {
            user_id: Some(format!("user_{user:03}")),
            ..line(user, LogLevel::Info, &format!("User {user} connected successfully"))
        };
        let lines = || [connected(12), line(5, LogLevel::Info, "Running"), connected(3)].into_iter();
        let page = LogPage::new(LogQuery::default(), lines(), "/r");
        let rows: Vec<_> = page.rows.iter().map(|row| (row.message.as_str(), row.count)).collect();
        assert_eq!(rows, [("User … connected successfully", 2), ("Running", 1)]);
        let query = LogQuery { lines: Lines::Each, ..LogQuery::default() };
        let page = LogPage::new(query, lines(), "/r");
        assert_eq!(page.rows[2].message, "User 3 connected successfully");
    }

    #[test]
    fn search_and_level_are_kept_in_links() {
        let query = LogQuery { level: "warn".into(), q: "second 29".into(), ..LogQuery::default() };
        let page = LogPage::new(query, lines().into_iter(), "/r");
        assert!(page.rows.iter().all(|row| row.newest.message.contains("second 29")), "all match");
        assert_eq!(page.levels()[3].href, "/r?level=error&q=second%2029#logs");
        assert_eq!(page.folding()[1].href, "/r?level=warn&q=second%2029&lines=each#logs");
    }

    #[test]
    fn page_beyond_the_end_is_the_last_one() {
        let query = LogQuery { lines: Lines::Each, page: Some(99), ..LogQuery::default() };
        let page = LogPage::new(query, lines().into_iter(), "/r");
        assert_eq!((page.position().as_str(), page.older(), page.rows.len()), ("Page 6 of 6", None, 50));
        assert_eq!(page.newer().as_deref(), Some("/r?lines=each&page=5#logs"));
    }
}
