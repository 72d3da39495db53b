//! Why something could not be answered, and why something is not done.

use std::time::Duration;

/// The chat could not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Database(#[from] hob_database::Error),
    #[error(transparent)]
    Store(#[from] hob_store::Error),
    #[error("chat configuration: {0}")]
    Config(String),
    #[error("a stored event is no event: {0}")]
    Event(#[from] serde_json::Error),
    /// A change of who may see what is recorded, but not every live node has confirmed it in time.
    #[error("not every node has confirmed the change yet")]
    Unconfirmed,
}

/// A wish that is not granted: the answer, not a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    NoConversation,
    NoMessage,
    NotMember,
    /// Only the sender may change a message.
    NotYours,
    /// One of the two has blocked the other, and nobody else would see it.
    Blocked,
    /// What was asked for is there already.
    Taken,
    /// Too often; the same wish is worth a try later.
    TooOften {
        retry_after: Duration,
    },
    /// A number of something that is bounded.
    TooMany {
        what: &'static str,
        most: u64,
    },
    /// A field that cannot be what it is.
    Bad {
        field: &'static str,
        reason: String,
    },
}

/// What became of a wish, if it could be decided.
pub type Answer<T> = Result<Result<T, Refusal>, Error>;

/// What ends a transaction early: a refusal undoes it just as a failure does.
#[derive(Debug)]
pub(crate) enum Halt {
    Refused(Refusal),
    Failed(Error),
}

impl From<hob_database::Error> for Halt {
    fn from(error: hob_database::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<serde_json::Error> for Halt {
    fn from(error: serde_json::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Tells a refusal from a failure.
pub(crate) fn answer<T>(outcome: Result<T, Halt>) -> Answer<T> {
    match outcome {
        Ok(done) => Ok(Ok(done)),
        Err(Halt::Refused(refusal)) => Ok(Err(refusal)),
        Err(Halt::Failed(error)) => Err(error),
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoConversation => f.write_str("there is no such conversation"),
            Self::NoMessage => f.write_str("there is no such message"),
            Self::NotMember => f.write_str("only members of the conversation may do this"),
            Self::NotYours => f.write_str("only its sender may change a message"),
            Self::Blocked => f.write_str("one of you has blocked the other"),
            Self::Taken => f.write_str("it is there already"),
            Self::TooOften { retry_after } => write!(f, "too often; try again in {retry_after:.0?}"),
            Self::TooMany { what, most } => write!(f, "{most} {what} at most"),
            Self::Bad { field, reason } => write!(f, "{field}: {reason}"),
        }
    }
}
