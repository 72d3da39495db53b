//! Problems on their way out: JSON for programs, a page for people.

use std::any::Any;

use askama::Template;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::RequestId;
use crate::console::Frame;
use crate::http::routes::ForPrograms;
use crate::{Console, FieldError, Problem};

/// As much as anybody says in plain text.
const LONGEST_TEXT: usize = 4 * 1024;

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
    let person = for_people(&uri, request.headers()).then(|| request.headers().clone());
    let response = next.run(request).await;
    let person = person.filter(|_| response.extensions().get::<ForPrograms>().is_none());
    let (response, problem) = problem_of(response).await;
    let Some(problem) = problem else { return response };
    let id = id.as_ref().map_or("", RequestId::as_str);
    let shown = match (frame, person) {
        (Some(frame), Some(headers)) => {
            // Who is lost finds the way on, as far as they may go; who cannot be identified now is nobody.
            let caller = frame.web().door().identify(&headers).await.unwrap_or_default();
            page(&problem, &frame.console(&uri, caller), &method, id)
        }
        _ => None,
    };
    let mut shown = shown.unwrap_or_else(|| problem.respond(Some(id)));
    // Such as `Allow`, which belongs to a method that is not allowed.
    for (name, value) in response.headers() {
        if name != header::CONTENT_LENGTH && !shown.headers().contains_key(name) {
            shown.headers_mut().insert(name, value.clone());
        }
    }
    shown
}

/// The problem that a response tells of. What an extractor of axum's own, or a handler in a hurry, says in plain text is
/// one as well, so that all failures look alike.
async fn problem_of(mut response: Response) -> (Response, Option<Problem>) {
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        return (response, Some(problem));
    }
    let status = response.status();
    let plain = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !plain || !(status.is_client_error() || status.is_server_error()) {
        return (response, None);
    }
    let (head, body) = response.into_parts();
    let text = axum::body::to_bytes(body, LONGEST_TEXT).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    let problem = Problem::new(status, text);
    (Response::from_parts(head, Body::empty()), Some(problem))
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
