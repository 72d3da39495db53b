//! What one can subscribe to: a conversation, or one's own feed.

use std::fmt;
use std::str::FromStr;

use crate::keys::{ConversationId, UserId};

/// A channel of the client protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChannelName {
    /// `conv:<id>`: what happens in a conversation. Its offset is the conversation's sequence.
    Conversation(ConversationId),
    /// `user:<id>`: what concerns one user on all devices.
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
