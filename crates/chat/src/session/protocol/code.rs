//! The codes of errors, disconnects and unsubscribes.

use std::borrow::Cow;
use std::fmt::Display;

/// An error in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplyError {
    pub(crate) code: u32,
    pub(crate) message: Cow<'static, str>,
    pub(super) temporary: bool,
}

impl ReplyError {
    pub(crate) const INTERNAL: Self = Self::temporary_error(100, "internal server error");
    pub(crate) const UNKNOWN_CHANNEL: Self = Self::permanent_error(102, "unknown channel");
    pub(crate) const PERMISSION_DENIED: Self = Self::permanent_error(103, "permission denied");
    pub(crate) const METHOD_NOT_FOUND: Self = Self::permanent_error(104, "method not found");
    pub(crate) const ALREADY_SUBSCRIBED: Self = Self::permanent_error(105, "already subscribed");
    pub(crate) const LIMIT_EXCEEDED: Self = Self::permanent_error(106, "limit exceeded");
    pub(crate) const BAD_REQUEST: Self = Self::permanent_error(107, "bad request");
    pub(crate) const NOT_AVAILABLE: Self = Self::permanent_error(108, "not available");
    pub(crate) const TOKEN_EXPIRED: Self = Self::permanent_error(109, "token expired");
    pub(crate) const TOO_MANY_REQUESTS: Self = Self::temporary_error(111, "too many requests");
    pub(crate) const UNRECOVERABLE_POSITION: Self = Self::permanent_error(112, "unrecoverable position");
    pub(crate) const NOT_FOUND: Self = Self::permanent_error(404, "not found");
    pub(crate) const CONFLICT: Self = Self::permanent_error(409, "already exists");

    /// An error that the application has chosen.
    pub(crate) fn of_application(code: u32, message: String, temporary: bool) -> Self {
        Self { code, message: message.into(), temporary }
    }

    const fn permanent_error(code: u32, message: &'static str) -> Self {
        Self { code, message: Cow::Borrowed(message), temporary: false }
    }

    const fn temporary_error(code: u32, message: &'static str) -> Self {
        Self { code, message: Cow::Borrowed(message), temporary: true }
    }

    /// The same error with details: `bad request: content: must not be empty`.
    pub(crate) fn with_detail(self, detail: impl Display) -> Self {
        Self { message: format!("{}: {detail}", self.message).into(), ..self }
    }
}

/// The longest reason in a close frame.
const MAX_REASON_BYTES: usize = 123;

/// Why a connection is closed. Clients reconnect on codes below 3500.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disconnect {
    pub(crate) code: u16,
    pub(crate) reason: Cow<'static, str>,
}

impl Disconnect {
    /// A code of the WebSocket protocol. Clients do not reconnect.
    pub(crate) const TOO_LARGE: Self = Self::new(1009, "frame too large");
    pub(crate) const SHUTDOWN: Self = Self::new(3001, "shutdown");
    pub(crate) const SERVER_ERROR: Self = Self::new(3004, "internal server error");
    pub(crate) const EXPIRED: Self = Self::new(3005, "connection expired");
    pub(crate) const SLOW: Self = Self::new(3008, "slow");
    pub(crate) const NO_PONG: Self = Self::new(3012, "no pong");
    pub(crate) const TOO_MANY_REQUESTS: Self = Self::new(3013, "too many requests");
    pub(crate) const INVALID_TOKEN: Self = Self::new(3500, "invalid token");
    pub(crate) const BAD_REQUEST: Self = Self::new(3501, "bad request");
    pub(crate) const STALE: Self = Self::new(3502, "stale");
    pub(crate) const FORCED: Self = Self::new(3503, "force disconnect");
    pub(crate) const CONNECTION_LIMIT: Self = Self::new(3504, "connection limit");

    pub(crate) const PERMISSION_DENIED: Self = Self::new(3507, "permission denied");

    const fn new(code: u16, reason: &'static str) -> Self {
        Self { code, reason: Cow::Borrowed(reason) }
    }

    /// The same reason with details. The WebSocket protocol limits its length, so the end of a long one is cut off.
    pub(crate) fn with_detail(self, detail: impl Display) -> Self {
        let mut reason = format!("{}: {detail}", self.reason);
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        Self { reason: reason.into(), ..self }
    }
}

/// Why a subscription is ended. Clients subscribe again on codes from 2500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsubscribe {
    pub(super) code: u32,
    pub(super) reason: &'static str,
}

impl Unsubscribe {
    pub(crate) const SERVER: Self = Self { code: 2000, reason: "server unsubscribe" };
    pub(crate) const INSUFFICIENT: Self = Self { code: 2500, reason: "insufficient state" };
    pub(crate) const EXPIRED: Self = Self { code: 2501, reason: "expired" };
}
