//! The names of channels: a conversation, or a user's own feed.

use std::fmt;
use std::str::FromStr;

use crate::keys::{ConversationId, UserId};

/// The name of a channel in the client protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChannelName {
    /// `conv:<id>`: the events of a conversation. The offset is the conversation's sequence.
    Conversation(ConversationId),
    /// `user:<id>`: updates for one user on all devices.
    Feed(UserId),
}

impl FromStr for ChannelName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.split_once(':') {
            Some(("conv", id)) => ConversationId::new(id).map(Self::Conversation).map_err(drop),
            Some(("user", id)) => UserId::new(id).map(Self::Feed).map_err(drop),
            _ => Err(()),
        }
    }
}

impl fmt::Display for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conversation(id) => write!(f, "conv:{id}"),
            Self::Feed(user) => write!(f, "user:{user}"),
        }
    }
}
