//! Errors (the chat could not answer) and refusals (the answer is no).

use std::time::Duration;

/// The chat could not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Database(#[from] hob_database::Error),
    #[error(transparent)]
    Store(#[from] hob_store::Error),
    #[error("invalid chat configuration: {0}")]
    Config(String),
    #[error("malformed event in the database: {0}")]
    Event(#[from] serde_json::Error),
    /// A change is in the database, but not every live node has confirmed it in time.
    #[error("the change is saved, but not every node has confirmed it yet; repeat the request")]
    Unconfirmed,
}

impl Error {
    /// Whether the store handle reports it already; see [`hob_store::Error::is_reported`].
    pub(crate) fn is_reported(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_reported())
    }

    /// Whether Redis has certainly not executed the call that failed; see [`hob_store::Error::did_not_happen`].
    pub(crate) fn did_not_happen(&self) -> bool {
        matches!(self, Self::Store(error) if error.did_not_happen())
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    ConversationNotFound,
    MessageNotFound,
    NotMember,
    /// Only the sender can change a message.
    NotSender,
    /// A block hides every other member from the sender.
    Blocked,
    /// The token of a connection is revoked.
    TokenRevoked,
    /// The user may not connect.
    Banned,
    /// It already exists.
    AlreadyExists,
    /// Over the rate limit. The request can be repeated later.
    RateLimited {
        retry_after: Duration,
    },
    /// Over a limit on the number of something.
    LimitExceeded {
        what: &'static str,
        max: u64,
    },
    /// A field has an invalid value.
    InvalidField {
        field: &'static str,
        reason: String,
    },
}

/// The result of a request that was decided.
pub type Answer<T> = Result<Result<T, Refusal>, Error>;

/// Why a transaction is rolled back.
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

/// Turns a rollback into a refusal or an error.
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
            Self::ConversationNotFound => f.write_str("conversation not found"),
            Self::MessageNotFound => f.write_str("message not found"),
            Self::NotMember => f.write_str("only members of the conversation can do this"),
            Self::NotSender => f.write_str("only the sender can change a message"),
            Self::Blocked => f.write_str("one of the two users has blocked the other"),
            Self::TokenRevoked => f.write_str("the token is revoked"),
            Self::Banned => f.write_str("the user is banned"),
            Self::AlreadyExists => f.write_str("already exists"),
            Self::RateLimited { retry_after } => write!(f, "rate limit exceeded; retry in {retry_after:.0?}"),
            Self::LimitExceeded { what, max } => write!(f, "at most {max} {what}"),
            Self::InvalidField { field, reason } => write!(f, "{field}: {reason}"),
        }
    }
}
