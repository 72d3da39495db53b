//! Notices: what a channel receives.

use hob_database::column;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::incident::{IncidentEvent, IncidentEventKind, Resolution};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Notice {
    Incident(Box<IncidentEvent>),
    /// A test of the channel.
    Test,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    Opened,
    Reminded,
    Resolved,
    Test,
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
        }
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
        }
    }
}

hob_units::names!(NoticeKind {
    Opened = "opened",
    Reminded = "reminded",
    Resolved = "resolved",
    Test = "test",
});
