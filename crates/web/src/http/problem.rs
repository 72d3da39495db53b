//! The one error of all HTTP faces, and the one place where a status is chosen for it.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// Why a request was not answered as hoped. Clients of the API get it as `application/problem+json`, people as a page.
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
    /// Where it is: `monitors[0].url`.
    pub field: String,
    pub message: String,
}

/// A problem as clients see it (RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Body<'a> {
    /// What kind of problem it is, for programs.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "about:blank")]
    kind: &'a str,
    /// The same for people.
    #[schema(value_type = String, example = "Not Found")]
    title: &'a str,
    /// The HTTP status.
    #[schema(value_type = u16, example = 404)]
    status: u16,
    /// What happened in this case.
    #[schema(value_type = String, example = "There is no such monitor.")]
    detail: &'a str,
    /// The id of the request, as in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    instance: Option<&'a str>,
    /// The fields that are wrong.
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    #[schema(value_type = Vec<FieldError>)]
    errors: &'a [FieldError],
}

/// Seconds that a client waits when nobody knows better.
const SOON: Duration = Duration::from_secs(1);

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, kind: "about:blank", detail: detail.into(), errors: Vec::new(), retry_after: None }
    }

    /// 422: the request was understood, and a field of it cannot be.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "The request cannot be carried out as it is.")
            .with_field(field, message)
    }

    /// 400: the request was not understood.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// 401: who is calling?
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Sign in, or send a valid token: Authorization: Bearer hob_…")
    }

    /// 403: not with these rights.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// 404: `what` is a noun, such as `monitor`.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("There is no such {what}."))
    }

    /// 409: the request contradicts how things are.
    pub fn conflict(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// 429: too many of these requests.
    pub fn too_many(detail: impl Into<Cow<'static, str>>, retry_after: Duration) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, detail).with_retry_after(retry_after)
    }

    /// 503: not now.
    pub fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_retry_after(SOON)
    }

    /// 500: a fault of ours. What it was goes to the log, and to nobody else.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "a request failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong here. The log knows more.")
    }

    /// Adds a field that is wrong.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>, message: impl Into<String>) -> Self {
        self.errors.push(FieldError { field: field.into(), message: message.into() });
        self
    }

    /// Gives the problem a kind of its own, which programs can tell from others of the same status.
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

    /// The response with the id of its request.
    pub(crate) fn respond(&self, request_id: Option<&str>) -> Response {
        let body = Body {
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

    /// What a client is told whether it reads JSON or HTML.
    pub(crate) fn add_headers(&self, response: &mut Response) {
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.retry_after {
            // Rounded up: who comes back a moment too early is only refused again.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"hob\""));
        }
    }
}

/// The response carries the problem along, so that the app can add the request's id or make a page of it.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.respond(None);
        response.extensions_mut().insert(self);
        response
    }
}

impl From<hob_database::Error> for Problem {
    fn from(error: hob_database::Error) -> Self {
        use hob_database::Error as E;
        match &error {
            E::Unavailable { .. } | E::Conflict { .. } => {
                tracing::warn!(%error, "the database did not answer");
                let problem =
                    Self::unavailable("The database cannot be reached right now. Nothing was changed.");
                problem.with_retry_after(error.retry_after().unwrap_or(SOON))
            }
            E::Uncertain { .. } => {
                tracing::warn!(%error, "the database did not answer");
                Self::unavailable("The database was lost sight of: the change was made, or it was not.")
            }
            E::Cursor => Self::invalid("after", "this is not where a page of this list ended"),
            E::Unfit { reason } => Self::invalid("", reason.clone()),
            E::Violation { constraint: hob_database::Constraint::Unique, .. } => {
                Self::conflict("There is one like this already.")
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
                tracing::warn!(%error, "the store did not answer");
                Self::unavailable("The store cannot be reached right now. Nothing was changed.")
            }
            E::Interrupted { .. } => {
                tracing::warn!(%error, "the store did not answer");
                Self::unavailable("The store gave no answer: the change was made, or it was not.")
            }
            E::Refused { code, .. }
                if matches!(
                    code.as_str(),
                    "LOADING" | "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" | "OOM" | "BUSY"
                ) =>
            {
                tracing::warn!(%error, "the store is not ready");
                Self::unavailable("The store cannot take this right now. Nothing was changed.")
            }
            _ => Self::internal(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_in_whole_seconds_and_never_as_none() {
        for (wait, told) in [(0, "1"), (1, "1"), (1_000, "1"), (1_001, "2"), (59_500, "60")] {
            let response = Problem::too_many("Slow down.", Duration::from_millis(wait)).into_response();
            assert_eq!(response.headers()[header::RETRY_AFTER], told, "{wait} ms");
        }
    }

    #[test]
    fn a_fault_of_ours_tells_nothing_of_what_it_was() {
        let problem = Problem::internal("password=hunter2");
        assert!(!format!("{problem:?}").contains("hunter2"));
    }
}
