//! A message on the chat page.

use std::collections::HashMap;

use hob_database::UnixMs;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::keys::UserId;
use crate::{Attachment, ListedMessage, ReactionCount};

/// The longest text of a quoted message, in characters.
const MAX_QUOTE: usize = 80;

pub(super) struct MessageRow {
    pub(super) id: String,
    pub(super) sequence: u64,
    pub(super) sender: String,
    pub(super) content: String,
    pub(super) at: String,
    /// The time of day, with the date if it was not today.
    pub(super) time: String,
    pub(super) exact: String,
    /// The classes of the list item.
    pub(super) class: &'static str,
    /// The message that this one replies to, if it is on the page.
    pub(super) replied: Option<Quote>,
    pub(super) files: Vec<FileLink>,
    pub(super) reactions: Vec<ReactionCount>,
    /// "2 replies", or empty.
    pub(super) replies: String,
    pub(super) reply_href: String,
}

/// A message in short.
#[derive(Clone)]
pub(super) struct Quote {
    pub(super) id: String,
    pub(super) sender: String,
    pub(super) text: String,
}

pub(super) struct FileLink {
    pub(super) url: String,
    pub(super) name: String,
    /// The type, and the size if it is known.
    pub(super) detail: String,
}

/// The rows of a page. `href` is its address.
pub(super) fn rows(me: &UserId, href: &str, messages: Vec<ListedMessage>) -> Vec<MessageRow> {
    let today = time(UnixMs::now()).date();
    let mut rows: Vec<MessageRow> = Vec::with_capacity(messages.len());
    let mut quotes: HashMap<String, Quote> = HashMap::new();
    for ListedMessage { message, reactions, reply_count } in messages {
        let at = time(message.timestamp.0);
        let row = MessageRow {
            class: match (message.sender_id == *me, message.mentions.0.contains(me)) {
                (true, _) => "own",
                (false, true) => "mentioned",
                (false, false) => "",
            },
            sequence: message.sequence,
            sender: message.sender_id.to_string(),
            content: message.content,
            time: clock(at, today),
            exact: at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            at: message.timestamp.to_string(),
            replied: message.reply_to.and_then(|id| quotes.get(&id).cloned()),
            files: message.attachments.0.into_iter().map(FileLink::from).collect(),
            reactions,
            replies: match reply_count {
                0 => String::new(),
                1 => "1 reply".to_owned(),
                count => format!("{count} replies"),
            },
            reply_href: format!("{href}&reply={}", message.id),
            id: message.id,
        };
        quotes.insert(row.id.clone(), row.quote());
        rows.push(row);
    }
    rows
}

/// A time in UTC; 1970 if it is out of range.
fn time(at: UnixMs) -> DateTime {
    let at = Timestamp::from_millisecond(at.0).unwrap_or(Timestamp::UNIX_EPOCH);
    at.to_zoned(TimeZone::UTC).datetime()
}

fn clock(at: DateTime, today: Date) -> String {
    at.strftime(if at.date() == today { "%H:%M" } else { "%b %-d, %H:%M" }).to_string()
}

impl MessageRow {
    pub(super) fn quote(&self) -> Quote {
        let file = || self.files.first().map(|file| file.name.clone()).unwrap_or_default();
        let full = if self.content.is_empty() { file() } else { self.content.clone() };
        let mut text: String = full.chars().take(MAX_QUOTE).collect();
        if text.len() < full.len() {
            text.push('…');
        }
        Quote { id: self.id.clone(), sender: self.sender.clone(), text }
    }
}

impl From<Attachment> for FileLink {
    fn from(Attachment { url, name, media_type, size }: Attachment) -> Self {
        let detail = match size {
            Some(size) => format!("{media_type}, {}", hob_units::format_size(size)),
            None => media_type,
        };
        Self { url, name, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_another_day_shows_its_date() {
        let noon = time(UnixMs(1_763_208_000_000));
        assert_eq!(clock(noon, noon.date()), "12:00");
        assert_eq!(clock(noon, noon.date().tomorrow().unwrap()), "Nov 15, 12:00");
    }
}
