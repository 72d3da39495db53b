//! The errors of the server API, with Centrifugo's codes.

use axum::http::StatusCode;
use serde::Serialize;

use crate::Error;
use crate::namespace::PublishFailure;
use crate::session::internal;
use crate::session::protocol::ReplyError;

/// An error as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ApiError {
    code: u32,
    message: String,
}

/// Why a command has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// The method is unknown.
    Unknown,
    /// The request cannot be read.
    Malformed(String),
    Refused(ApiError),
}

impl ApiError {
    pub(super) fn bad_request(reason: &str) -> Self {
        ReplyError::BAD_REQUEST.with_detail(reason).into()
    }

    /// The status in the transport error mode.
    pub(super) fn status(&self) -> StatusCode {
        match self.code {
            102 | 104 => StatusCode::NOT_FOUND,
            107 | 108 => StatusCode::BAD_REQUEST,
            112 => StatusCode::RANGE_NOT_SATISFIABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl Failure {
    /// The error in a list of results.
    pub(super) fn into_error(self) -> ApiError {
        match self {
            Self::Unknown => ReplyError::METHOD_NOT_FOUND.into(),
            Self::Malformed(reason) => ApiError::bad_request(&reason),
            Self::Refused(error) => error,
        }
    }
}

impl From<ReplyError> for ApiError {
    fn from(error: ReplyError) -> Self {
        Self { code: error.code, message: error.message.into_owned() }
    }
}

impl From<ReplyError> for Failure {
    fn from(error: ReplyError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        internal(error).into()
    }
}

impl From<PublishFailure> for Failure {
    fn from(failure: PublishFailure) -> Self {
        match failure {
            PublishFailure::TooLarge { what, max } => {
                Self::Refused(ApiError::bad_request(&format!("{what}: at most {max} bytes")))
            }
            PublishFailure::Failed(error) => error.into(),
        }
    }
}
