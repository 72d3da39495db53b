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
    ConversationNotFound,
    MessageNotFound,
    NotMember,
    /// Only the sender may change a message.
    NotSender,
    /// One of the two has blocked the other, and nobody else would see it.
    Blocked,
    /// What was asked for is there already.
    AlreadyExists,
    /// Too often; the same wish is worth a try later.
    RateLimited {
        retry_after: Duration,
    },
    /// A number of something that is bounded.
    LimitExceeded {
        what: &'static str,
        max: u64,
    },
    /// A field that cannot be what it is.
    InvalidField {
        field: &'static str,
        reason: String,
    },
}

/// What became of a wish, if it could be decided.
pub type Answer<T> = Result<Result<T, Refusal>, Error>;

/// What ends a transaction early: a refusal undoes it just as a failure does.
#[derive(Debug)]
pub(crate) enum Rollback {
    Refused(Refusal),
    Failed(Error),
}

impl From<hob_database::Error> for Rollback {
    fn from(error: hob_database::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Error> for Rollback {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<serde_json::Error> for Rollback {
    fn from(error: serde_json::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Refusal> for Rollback {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Tells a refusal from a failure.
pub(crate) fn into_answer<T>(outcome: Result<T, Rollback>) -> Answer<T> {
    match outcome {
        Ok(done) => Ok(Ok(done)),
        Err(Rollback::Refused(refusal)) => Ok(Err(refusal)),
        Err(Rollback::Failed(error)) => Err(error),
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ConversationNotFound => f.write_str("there is no such conversation"),
            Self::MessageNotFound => f.write_str("there is no such message"),
            Self::NotMember => f.write_str("only members of the conversation may do this"),
            Self::NotSender => f.write_str("only its sender may change a message"),
            Self::Blocked => f.write_str("one of you has blocked the other"),
            Self::AlreadyExists => f.write_str("it is there already"),
            Self::RateLimited { retry_after } => write!(f, "too often; try again in {retry_after:.0?}"),
            Self::LimitExceeded { what, max } => write!(f, "{max} {what} at most"),
            Self::InvalidField { field, reason } => write!(f, "{field}: {reason}"),
        }
    }
}
