//! Notices: what a channel receives.

use hob_database::column;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::incident::{IncidentEvent, IncidentEventKind, Resolution};
use crate::status::{StatusEvent, StatusPage};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Notice {
    Incident(Box<IncidentEvent>),
    /// A test of the channel.
    Test,
    /// For the subscribers of a status page.
    Status(Box<StatusNotice>),
    /// Asks a subscriber of the page to confirm.
    Confirm {
        title: String,
        path: String,
    },
}

/// An event with the title and the path of the page that shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusNotice {
    pub title: String,
    pub path: String,
    pub event: StatusEvent,
}

impl StatusNotice {
    pub(crate) fn new(page: &StatusPage, event: &StatusEvent) -> Self {
        Self { title: page.spec.title.clone(), path: page.path(), event: event.clone() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    Opened,
    Reminded,
    Resolved,
    Test,
    /// To a subscriber of a status page.
    Status,
    /// A request to confirm a subscription.
    Confirm,
}

column!(NoticeKind as text);

impl Notice {
    #[must_use]
    pub fn kind(&self) -> NoticeKind {
        match self {
            Self::Incident(event) => match event.kind {
                IncidentEventKind::Opened => NoticeKind::Opened,
                IncidentEventKind::Reminded => NoticeKind::Reminded,
                IncidentEventKind::Resolved => NoticeKind::Resolved,
            },
            Self::Test => NoticeKind::Test,
            Self::Status(_) => NoticeKind::Status,
            Self::Confirm { .. } => NoticeKind::Confirm,
        }
    }

    pub(crate) fn to_json(&self) -> String {
        let json = serde_json::to_string(self);
        json.unwrap_or_else(|error| unreachable!("a notice is plain data: {error}"))
    }

    /// The first line of the message.
    #[must_use]
    pub fn title(&self) -> String {
        match self {
            Self::Incident(event) => match event.kind {
                IncidentEventKind::Opened => format!("{} is down", event.name),
                IncidentEventKind::Reminded => format!("{} is still down", event.name),
                IncidentEventKind::Resolved if event.resolution == Some(Resolution::Paused) => {
                    format!("{} was paused while it was down", event.name)
                }
                IncidentEventKind::Resolved => format!("{} is up again", event.name),
            },
            Self::Test => "Hob can reach this channel".to_owned(),
            Self::Status(status) => format!("{}: {}", status.title, status.event.name),
            Self::Confirm { title, .. } => title.clone(),
        }
    }
}

hob_units::names!(NoticeKind {
    Opened = "opened",
    Reminded = "reminded",
    Resolved = "resolved",
    Test = "test",
    Status = "status",
    Confirm = "confirm",
});
