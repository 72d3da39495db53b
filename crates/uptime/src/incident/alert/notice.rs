//! Notices: what a channel receives.

use std::fmt;
use std::str::FromStr;

use hob_database::column;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::incident::{IncidentEvent, IncidentEventKind};

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
                IncidentEventKind::Resolved => format!("{} is up again", event.name),
            },
            Self::Test => "Hob can reach this channel".to_owned(),
        }
    }
}

impl NoticeKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Reminded => "reminded",
            Self::Resolved => "resolved",
            Self::Test => "test",
        }
    }
}

impl fmt::Display for NoticeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for NoticeKind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let all = [Self::Opened, Self::Reminded, Self::Resolved, Self::Test];
        all.into_iter().find(|kind| kind.as_str() == text).ok_or(())
    }
}
