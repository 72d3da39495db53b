//! E-mail to the subscribers of status pages.

use hob_database::UnixMs;
use lettre::message::header::{Header, HeaderName, HeaderValue};

use super::event::{StatusChange, StatusEvent};
use super::language::{Language, Zone};
use super::subscriber::Subscriber;
use crate::incident::alert::Notice;

/// Subject and text of an e-mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) subject: String,
    pub(crate) text: String,
}

/// The URL that ends the subscription with one request (RFC 8058).
#[derive(Clone, Debug)]
pub(crate) struct ListUnsubscribe(pub(crate) String);

/// The body of that request.
#[derive(Clone, Debug)]
pub(crate) struct ListUnsubscribePost;

type HeaderError = Box<dyn std::error::Error + Send + Sync>;

impl Header for ListUnsubscribe {
    fn name() -> HeaderName {
        HeaderName::new_from_ascii_str("List-Unsubscribe")
    }

    fn parse(text: &str) -> Result<Self, HeaderError> {
        Ok(Self(text.trim_matches(['<', '>']).to_owned()))
    }

    fn display(&self) -> HeaderValue {
        HeaderValue::new(Self::name(), format!("<{}>", self.0))
    }
}

impl Header for ListUnsubscribePost {
    fn name() -> HeaderName {
        HeaderName::new_from_ascii_str("List-Unsubscribe-Post")
    }

    fn parse(_: &str) -> Result<Self, HeaderError> {
        Ok(Self)
    }

    fn display(&self) -> HeaderValue {
        HeaderValue::new(Self::name(), "List-Unsubscribe=One-Click".to_owned())
    }
}

/// The e-mail with this notice; `None` if the notice is not for subscribers.
pub(crate) fn content(notice: &Notice, to: &Subscriber) -> Option<Content> {
    let words = to.language.words();
    let page = |path: &str| format!("{}{path}", to.base_url);
    let unsubscribe = to.link("unsubscribe");
    match notice {
        Notice::Confirm { title, path } => Some(Content {
            subject: format!("{title}: {}", words.mail_confirm_subject),
            text: format!(
                "{}\n\n{}\n\n{}\n\n{}\n",
                words.mail_confirm_text,
                to.link("confirm"),
                words.mail_ignore,
                page(path)
            ),
        }),
        Notice::Status(status) => {
            let (headline, details) = describe(&status.event, to.language);
            Some(Content {
                subject: format!("{}: {headline}", status.title),
                text: format!(
                    "{headline}\n{details}\n\n{}\n\n{} {unsubscribe}\n",
                    page(&status.path),
                    words.mail_unsubscribe
                ),
            })
        }
        Notice::Incident(_) | Notice::Test => None,
    }
}

/// What has happened, in a line, and the details. The time zone of a subscriber is not known, so times are in UTC.
fn describe(event: &StatusEvent, language: Language) -> (String, String) {
    let (words, zone) = (language.words(), Zone::utc());
    let time = |ms: i64| format!("{} UTC", language.moment(UnixMs(ms), &zone));
    match &event.change {
        StatusChange::Opened { .. } => (format!("{} {}", event.name, words.mail_is_down), time(event.at_ms)),
        StatusChange::Resolved { .. } => (format!("{} {}", event.name, words.mail_is_up), time(event.at_ms)),
        StatusChange::Updated { status, text, .. } => {
            let headline = format!("{}: {}", event.name, words.update(*status));
            (headline, format!("{}\n\n{text}", time(event.at_ms)))
        }
        StatusChange::Planned { starts_at_ms, ends_at_ms, .. } => {
            let (from, to) = (time(*starts_at_ms), time(*ends_at_ms));
            let headline = format!("{}: {}", words.planned_maintenance, event.name);
            (headline, format!("{} {from} {} {to}", words.mail_from, words.mail_to))
        }
    }
}
