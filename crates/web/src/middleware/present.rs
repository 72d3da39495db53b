//! Problems on their way out: JSON for programs, a page for people.

use std::any::Any;

use askama::Template;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::RequestId;
use crate::console::Frame;
use crate::{Console, FieldError, Problem};

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    status: u16,
    detail: &'a str,
    errors: &'a [FieldError],
    request_id: &'a str,
}

/// Adds the request's id to a problem, or makes a page of it.
pub(crate) async fn present(request: Request, next: Next) -> Response {
    let (frame, id) =
        (request.extensions().get::<Frame>().cloned(), request.extensions().get::<RequestId>().cloned());
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let person = for_people(&uri, request.headers());
    let mut response = next.run(request).await;
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
    let id = id.as_ref().map_or("", RequestId::as_str);
    match frame {
        Some(frame) if person => page(&problem, &frame.console(&uri, None), &method, id)
            .unwrap_or_else(|| problem.respond(Some(id))),
        _ => problem.respond(Some(id)),
    }
}

/// The API speaks JSON; so does everything else to whoever asks for that, or for a stream.
fn for_people(uri: &Uri, headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    !uri.path().starts_with("/api/") && !accepts.contains("json") && !accepts.contains("event-stream")
}

fn page(problem: &Problem, console: &Console, method: &Method, id: &str) -> Option<Response> {
    let status = problem.status();
    if status == StatusCode::UNAUTHORIZED && method == Method::GET {
        let back = utf8_percent_encode(console.path(), NON_ALPHANUMERIC);
        return Some(Redirect::to(&format!("/sign-in?to={back}")).into_response());
    }
    let body = ProblemPage {
        status: status.as_u16(),
        detail: problem.detail(),
        errors: problem.errors(),
        request_id: id,
    };
    let page = console.page(problem.title(), &body).ok()?;
    let mut response = (status, page).into_response();
    problem.add_headers(&mut response);
    Some(response)
}

/// What a panic of a handler becomes. It was logged where it happened.
pub(crate) fn panicked(_: Box<dyn Any + Send + 'static>) -> Response {
    Problem::internal("a handler panicked").into_response()
}
