//! Extractors that reject invalid input with a [`Problem`] that names the field.

use std::error::Error;

use axum::extract::rejection::{FormRejection, JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
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

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match axum::Json::from_request(request, state).await {
            Ok(axum::Json(value)) => Ok(Self(value)),
            Err(JsonRejection::JsonDataError(error)) => Err(invalid_field::<serde_json::Error>(&error)),
            Err(JsonRejection::JsonSyntaxError(error)) => {
                let detail = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                Err(Problem::bad_request(format!("The body is not valid JSON: {detail}")))
            }
            Err(rejection) => Err(rejected(rejection.status(), rejection.body_text())),
        }
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
            // A malformed id belongs to no resource.
            Err(PathRejection::FailedToDeserializePathParams(error)) if error.status().is_client_error() => {
                Err(Problem::new(StatusCode::NOT_FOUND, format!("Not found: {}", error.body_text())))
            }
            Err(rejection) => Err(rejected(rejection.status(), rejection.body_text())),
        }
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
            return Problem::invalid(field, at.inner().to_string());
        }
        cause = error.source();
    }
    Problem::invalid("", error.to_string())
}

fn rejected(status: StatusCode, text: String) -> Problem {
    if status.is_server_error() { Problem::internal(text) } else { Problem::new(status, text) }
}
