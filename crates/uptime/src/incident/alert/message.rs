//! A notice in the format of each kind of channel.
//!
//! Names and error messages come from users and targets: each format escapes them, and none lets them mention people.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::notice::{Notice, NoticeKind};
use crate::incident::{IncidentEvent, IncidentEventKind, Resolution};

/// Discord takes 2,000 characters, Slack more.
const MAX_CHARS: usize = 1800;

/// The body of a webhook.
#[derive(Serialize)]
struct WebhookBody<'a> {
    /// The idempotency key, the same for every attempt.
    id: &'a str,
    kind: NoticeKind,
    /// The notice as text.
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    incident: Option<IncidentBody<'a>>,
}

#[derive(Serialize)]
struct IncidentBody<'a> {
    id: &'a str,
    number: u32,
    monitor: MonitorBody<'a>,
    /// Times are ISO 8601.
    at: String,
    opened_at: String,
    class: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolution: Option<Resolution>,
}

#[derive(Serialize)]
struct MonitorBody<'a> {
    id: &'a str,
    name: &'a str,
    target: &'a str,
}

#[derive(Serialize)]
struct Slack {
    text: String,
}

#[derive(Serialize)]
struct Discord {
    content: String,
    allowed_mentions: Mentions,
}

#[derive(Serialize)]
struct Mentions {
    parse: [&'static str; 0],
}

pub(super) fn webhook(id: &str, notice: &Notice) -> Vec<u8> {
    let incident = match notice {
        Notice::Incident(event) => Some(incident_body(event)),
        Notice::Test | Notice::Status(_) | Notice::Confirm { .. } => None,
    };
    json(&WebhookBody { id, kind: notice.kind(), text: text(notice), incident })
}

fn incident_body(event: &IncidentEvent) -> IncidentBody<'_> {
    IncidentBody {
        id: &event.incident,
        number: event.number,
        monitor: MonitorBody { id: &event.monitor, name: &event.name, target: &event.target },
        at: iso(event.at_ms),
        opened_at: iso(event.opened_at_ms),
        class: &event.class,
        message: &event.message,
        resolution: event.resolution,
    }
}

pub(super) fn slack(notice: &Notice) -> Vec<u8> {
    // Unescaped, these would be links and mentions.
    let escaped = text(notice).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    json(&Slack { text: escaped })
}

pub(super) fn discord(notice: &Notice) -> Vec<u8> {
    json(&Discord { content: text(notice), allowed_mentions: Mentions { parse: [] } })
}

/// The notice as lines of text.
pub(super) fn text(notice: &Notice) -> String {
    let mut lines = vec![notice.title()];
    match notice {
        Notice::Incident(event) => {
            let down_ms = u64::try_from(event.at_ms - event.opened_at_ms).unwrap_or(0);
            let down_for = format_duration(Duration::from_millis(down_ms));
            lines.push(match event.kind {
                IncidentEventKind::Opened => format!("{}: {}", event.class, event.message),
                IncidentEventKind::Reminded => {
                    format!("Down for {down_for}. {}: {}", event.class, event.message)
                }
                IncidentEventKind::Resolved => {
                    let when =
                        if event.resolution == Some(Resolution::Paused) { " when it was paused" } else { "" };
                    format!("Was down for {down_for}{when}. {}: {}", event.class, event.message)
                }
            });
            if !event.target.is_empty() {
                lines.push(event.target.clone());
            }
            lines.push(format!("Since {}", iso(event.opened_at_ms)));
        }
        Notice::Test => lines.push("This is a test.".to_owned()),
        // Only subscribers receive these; `status::mail` writes the text.
        Notice::Status(_) | Notice::Confirm { .. } => {}
    }
    lines.join("\n").chars().take(MAX_CHARS).collect()
}

fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_else(|error| unreachable!("a message is plain data: {error}"))
}

fn iso(unix_ms: i64) -> String {
    Timestamp::from_millisecond(unix_ms).map(|time| time.to_string()).unwrap_or_default()
}

/// A duration in its two largest units.
fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENED_MS: i64 = 1_700_000_000_000;

    fn event(kind: IncidentEventKind, after_ms: i64) -> IncidentEvent {
        IncidentEvent {
            incident: "i1".to_owned(),
            number: 1,
            kind,
            monitor: "m1".to_owned(),
            name: "Shop <!channel> & @everyone".to_owned(),
            target: "https://shop.example/".to_owned(),
            channels: Vec::new(),
            at_ms: OPENED_MS + after_ms,
            opened_at_ms: OPENED_MS,
            class: "timeout".to_owned(),
            message: "no response after 10s".to_owned(),
            resolution: None,
        }
    }

    fn notice(kind: IncidentEventKind, after_ms: i64) -> Notice {
        Notice::Incident(Box::new(event(kind, after_ms)))
    }

    #[test]
    fn monitor_name_cannot_mention_everyone() {
        let slack = String::from_utf8(slack(&notice(IncidentEventKind::Opened, 0))).unwrap();
        assert!(slack.contains("Shop &lt;!channel&gt; &amp; @everyone is down"), "{slack}");
        let discord = String::from_utf8(discord(&notice(IncidentEventKind::Opened, 0))).unwrap();
        assert!(discord.contains(r#""allowed_mentions":{"parse":[]}"#), "{discord}");
    }

    #[test]
    fn reminder_and_recovery_include_the_downtime() {
        let reminder = text(&notice(IncidentEventKind::Reminded, 90_000));
        assert!(reminder.contains("is still down\nDown for 1 min 30 s. timeout: no response"), "{reminder}");
        let recovery = text(&notice(IncidentEventKind::Resolved, 7_200_000));
        assert!(recovery.contains("is up again\nWas down for 2 h 0 min. timeout"), "{recovery}");
    }

    #[test]
    fn pause_of_a_monitor_is_not_announced_as_a_recovery() {
        let paused = IncidentEvent {
            resolution: Some(Resolution::Paused),
            ..event(IncidentEventKind::Resolved, 90_000)
        };
        let paused = text(&Notice::Incident(Box::new(paused)));
        let expected = "was paused while it was down\nWas down for 1 min 30 s when it was paused. timeout";
        assert!(paused.contains(expected) && !paused.contains("up again"), "{paused}");
    }

    #[test]
    fn long_message_is_cut() {
        let long = IncidentEvent { message: "é".repeat(10_000), ..event(IncidentEventKind::Opened, 0) };
        assert_eq!(text(&Notice::Incident(Box::new(long))).chars().count(), MAX_CHARS);
    }
}
