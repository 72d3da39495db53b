//! The error type of all HTTP routes, and the one place that chooses its status.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hob_store::Fault;
use serde::Serialize;
use utoipa::ToSchema;

/// Why a request failed. API clients receive it as `application/problem+json`, browsers as a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    kind: &'static str,
    detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    retry_after: Option<Duration>,
}

/// What is wrong with one field of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// The path of the field: `monitors[0].url`.
    pub field: String,
    pub message: String,
}

/// A problem as clients see it (RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody<'a> {
    /// The kind of problem, as a constant for programs.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "about:blank")]
    kind: &'a str,
    /// The kind of problem, as a text for people.
    #[schema(value_type = String, example = "Not Found")]
    title: &'a str,
    /// The HTTP status.
    #[schema(value_type = u16, example = 404)]
    status: u16,
    /// Why this request failed.
    #[schema(value_type = String, example = "No such monitor.")]
    detail: &'a str,
    /// The id of the request, as in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    instance: Option<&'a str>,
    /// The invalid fields.
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    #[schema(value_type = Vec<FieldError>)]
    errors: &'a [FieldError],
}

/// `Retry-After` if nothing more specific is known.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, kind: "about:blank", detail: detail.into(), errors: Vec::new(), retry_after: None }
    }

    /// 422: a field of the request is invalid.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "The request is invalid.").with_field(field, message)
    }

    /// 400: the request is malformed.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// 401: missing or invalid credentials.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Sign in, or send a valid token: Authorization: Bearer hob_…")
    }

    /// 403: the caller lacks a permission.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// 404: `what` is a noun, such as `monitor`.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("No such {what}."))
    }

    /// 409: the request conflicts with the current state.
    pub fn conflict(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// 429: rate limit exceeded.
    pub fn too_many(detail: impl Into<Cow<'static, str>>, retry_after: Duration) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, detail).with_retry_after(retry_after)
    }

    /// 429: the address has sent too many wrong credentials.
    pub(crate) fn throttled(retry_after: Duration) -> Self {
        Self::too_many("Too many wrong credentials from this address. Try again later.", retry_after)
    }

    /// 503: temporarily unavailable.
    pub fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_retry_after(DEFAULT_RETRY_AFTER)
    }

    /// 500: an internal error. The error is logged and not sent to the client.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "request failed with an internal error");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal error. See the server log for details.")
    }

    /// Adds an invalid field.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>, message: impl Into<String>) -> Self {
        self.errors.push(FieldError { field: field.into(), message: message.into() });
        self
    }

    /// Sets the `type`, by which programs can distinguish problems with the same status.
    #[must_use]
    pub fn with_kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }

    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// The error of a form's field, or the first one of its parts, such as `covers[2]` of `covers`.
    #[must_use]
    pub fn error_of(&self, field: &str) -> Option<&str> {
        let concerns = |error: &&FieldError| {
            let rest = error.field.strip_prefix(field);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '.']))
        };
        self.errors.iter().find(concerns).map(|error| error.message.as_str())
    }

    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    #[must_use]
    pub fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    pub(crate) fn title(&self) -> &'static str {
        self.status.canonical_reason().unwrap_or("Problem")
    }

    /// The response, with the id of its request.
    pub(crate) fn respond(&self, request_id: Option<&str>) -> Response {
        let body = ProblemBody {
            kind: self.kind,
            title: self.title(),
            status: self.status.as_u16(),
            detail: &self.detail,
            instance: request_id,
            errors: &self.errors,
        };
        let json = serde_json::to_vec(&body).unwrap_or_default();
        let mut response =
            (self.status, [(header::CONTENT_TYPE, "application/problem+json")], json).into_response();
        self.add_headers(&mut response);
        response
    }

    /// Adds the headers that JSON and HTML responses share.
    pub(crate) fn add_headers(&self, response: &mut Response) {
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.retry_after {
            // Rounded up: a client that retries too early is rejected again.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"hob\""));
        }
    }
}

/// The response carries the problem as an extension, so that middleware can add the request id or render a page.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.respond(None);
        response.extensions_mut().insert(self);
        response
    }
}

/// The texts do not say that nothing was changed: the same request may have changed the other of the two, or have
/// committed an earlier transaction.
impl From<hob_database::Error> for Problem {
    fn from(error: hob_database::Error) -> Self {
        use hob_database::Error as E;
        match &error {
            E::Unavailable { .. } => {
                tracing::warn!(%error, "database unavailable");
                let problem = Self::unavailable(
                    "The database is unavailable, so the request could not be completed. Repeat it later.",
                );
                problem.with_retry_after(error.retry_after().unwrap_or(DEFAULT_RETRY_AFTER))
            }
            E::Conflict { .. } => {
                tracing::warn!(%error, "database transaction kept conflicting with others");
                let problem = Self::unavailable(
                    "Other requests keep changing the same data, so the request could not be completed. Repeat it later.",
                );
                problem.with_retry_after(error.retry_after().unwrap_or(DEFAULT_RETRY_AFTER))
            }
            E::Uncertain { .. } => {
                tracing::warn!(%error, "outcome of a database commit is unknown");
                Self::unavailable(
                    "Lost the database connection during commit. The change may or may not have been applied.",
                )
            }
            E::InvalidCursor => Self::invalid("after", "is not a cursor of this list"),
            E::InvalidValue { reason } => Self::invalid("", reason.clone()),
            E::Violation { constraint: hob_database::Constraint::Unique, .. } => {
                Self::conflict("It already exists.")
            }
            _ => Self::internal(error),
        }
    }
}

impl From<hob_store::Error> for Problem {
    fn from(error: hob_store::Error) -> Self {
        use hob_store::Error as E;
        match &error {
            E::Unavailable { .. } => {
                tracing::warn!(%error, "store unavailable");
                Self::unavailable(
                    "Redis is unavailable, so the request could not be completed. Repeat it later.",
                )
            }
            E::Interrupted { .. } => {
                tracing::warn!(%error, "store unavailable");
                Self::unavailable(
                    "Lost the connection to Redis. The change may or may not have been applied.",
                )
            }
            error => match Fault::of(error) {
                // The store handle logs it.
                Some(fault) => Self::unavailable(format!(
                    "{}, so the request could not be completed. Repeat it later.",
                    fault.reason()
                )),
                None => Self::internal(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_rounded_up_to_whole_seconds() {
        for (wait, expected) in [(0, "1"), (1, "1"), (1_000, "1"), (1_001, "2"), (59_500, "60")] {
            let response = Problem::too_many("Slow down.", Duration::from_millis(wait)).into_response();
            assert_eq!(response.headers()[header::RETRY_AFTER], expected, "{wait} ms");
        }
    }

    #[test]
    fn internal_errors_do_not_reveal_their_cause() {
        let problem = Problem::internal("password=hunter2");
        assert!(!format!("{problem:?}").contains("hunter2"));
    }
}
