//! Extractors that reject invalid input with a [`Problem`] that names the field.

use std::error::Error;

use axum::body::Bytes;
use axum::extract::rejection::{FormRejection, JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequest, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use hob_units::plain_serde_error;
use mime::Mime;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Problem;

/// A JSON body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json<T>(pub T);

/// The query string.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<T>(pub T);

/// The parameters of the path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path<T>(pub T);

/// A submitted form.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let body = json_body(request).await?;
        let axum::Json(value) = axum::Json::from_bytes(&body).map_err(invalid_json)?;
        Ok(Self(value))
    }
}

/// `None` without a body, for requests whose members all have defaults.
impl<T: DeserializeOwned, S: Send + Sync> OptionalFromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, Problem> {
        let (parts, body) = request.into_parts();
        // The limit of the body is in the extensions.
        let body = Bytes::from_request(Request::from_parts(parts.clone(), body), state).await;
        let body = body.map_err(|rejection| rejected(rejection.status(), rejection.body_text()))?;
        if body.is_empty() {
            return Ok(None);
        }
        let request = Request::from_parts(parts, body.into());
        <Self as FromRequest<S>>::from_request(request, state).await.map(Some)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(QueryRejection::FailedToDeserializeQueryString(error)) => {
                Err(invalid_field::<serde_urlencoded::de::Error>(&error))
            }
            Err(rejection) => Err(rejected(rejection.status(), rejection.body_text())),
        }
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Form<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match axum::Form::from_request(request, state).await {
            Ok(axum::Form(value)) => Ok(Self(value)),
            Err(FormRejection::FailedToDeserializeForm(error)) => {
                Err(invalid_field::<serde_urlencoded::de::Error>(&error))
            }
            Err(FormRejection::FailedToDeserializeFormBody(error)) => {
                Err(invalid_field::<serde_urlencoded::de::Error>(&error))
            }
            Err(rejection) => Err(rejected(rejection.status(), rejection.body_text())),
        }
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            // No resource has a malformed id.
            Err(PathRejection::FailedToDeserializePathParams(error)) if error.status().is_client_error() => {
                Err(Problem::new(StatusCode::NOT_FOUND, format!("Not found: {}", error.body_text())))
            }
            Err(rejection) => Err(rejected(rejection.status(), rejection.body_text())),
        }
    }
}

/// The body of a request with JSON. Does not depend on the type of the value, so that it is compiled only once.
fn json_body(request: Request) -> BoxFuture<'static, Result<Bytes, Problem>> {
    Box::pin(async move {
        if !is_json(request.headers()) {
            let expected = "Expected request with `Content-Type: application/json`";
            return Err(rejected(StatusCode::UNSUPPORTED_MEDIA_TYPE, expected.to_owned()));
        }
        let body = Bytes::from_request(request, &()).await;
        body.map_err(|rejection| rejected(rejection.status(), rejection.body_text()))
    })
}

/// `application/json`, or a type such as `application/merge-patch+json`, as [`axum::Json`] accepts them.
fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mime = value.and_then(|value| value.parse::<Mime>().ok());
    mime.is_some_and(|mime| {
        mime.type_() == mime::APPLICATION
            && (mime.subtype() == mime::JSON || mime.suffix() == Some(mime::JSON))
    })
}

fn invalid_json(rejection: JsonRejection) -> Problem {
    match rejection {
        JsonRejection::JsonDataError(error) => invalid_field::<serde_json::Error>(&error),
        JsonRejection::JsonSyntaxError(error) => {
            let detail = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Problem::bad_request(format!("The body is not valid JSON: {detail}"))
        }
        rejection => rejected(rejection.status(), rejection.body_text()),
    }
}

/// Names the invalid field, if the deserializer knows it.
fn invalid_field<E: Error + 'static>(error: &(dyn Error + 'static)) -> Problem {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(at) = error.downcast_ref::<serde_path_to_error::Error<E>>() {
            let field = match at.path().to_string().as_str() {
                "." => String::new(),
                path => path.to_owned(),
            };
            return Problem::invalid(field, plain_serde_error(&at.inner().to_string()));
        }
        cause = error.source();
    }
    Problem::invalid("", plain_serde_error(&error.to_string()))
}

/// Reads a JSON value, such as a document after a merge patch.
pub fn read_json<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(value).map_err(|error: serde_path_to_error::Error<serde_json::Error>| {
        invalid_field::<serde_json::Error>(&error)
    })
}

fn rejected(status: StatusCode, text: String) -> Problem {
    if status.is_server_error() { Problem::internal(text) } else { Problem::new(status, text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_of_json_are_recognised() {
        let is_json = |value: &'static str| {
            is_json(&HeaderMap::from_iter([(header::CONTENT_TYPE, value.parse().expect("a header value"))]))
        };
        for value in ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"] {
            assert!(is_json(value), "{value}");
        }
        for value in ["", "json", "text/json", "text/plain", "application/jsonp", "application/json; charset"]
        {
            assert!(!is_json(value), "{value}");
        }
        assert!(!super::is_json(&HeaderMap::new()));
    }
}
