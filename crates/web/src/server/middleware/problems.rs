//! Presents problems: as JSON to programs, as a page to browsers.

use std::any::Any;

use askama::Template;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{RequestId, Sender};
use crate::access::Identity;
use crate::console::AppContext;
use crate::http::routes::JsonOnly;
use crate::{Console, FieldError, Problem};

/// The maximum number of bytes of a plain-text error.
const MAX_TEXT_BYTES: usize = 4 * 1024;

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    status: u16,
    detail: &'a str,
    errors: &'a [FieldError],
    request_id: &'a str,
}

/// Adds the request id to a problem, or renders it as a page.
pub(crate) async fn present_problems(request: Request, next: Next) -> Response {
    let (frame, id) =
        (request.extensions().get::<AppContext>().cloned(), request.extensions().get::<RequestId>().cloned());
    let sender = request.extensions().get::<Sender>().copied();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let page_headers = wants_html(&uri, request.headers()).then(|| request.headers().clone());
    let response = next.run(request).await;
    let page_headers = page_headers.filter(|_| response.extensions().get::<JsonOnly>().is_none());
    let (response, problem) = take_problem(response).await;
    let Some(problem) = problem else { return response };
    let id = id.as_ref().map_or("", RequestId::as_str);
    let presented = match (frame, page_headers) {
        (Some(frame), Some(headers)) => {
            // The page shows the navigation of the caller. Without the database, the caller is unknown.
            let caller = match sender {
                Some(sender) => frame.web().authenticator().identify(&headers, sender.address).await.ok(),
                None => None,
            };
            let caller = match caller {
                Some(Identity::Caller(caller)) => Some(caller),
                _ => None,
            };
            page(&problem, &frame.console(&method, &uri, caller), &method, id)
        }
        _ => None,
    };
    let mut presented = presented.unwrap_or_else(|| problem.respond(Some(id)));
    // Headers such as `Allow`, which a response with status 405 must have.
    for (name, value) in response.headers() {
        if name != header::CONTENT_LENGTH && !presented.headers().contains_key(name) {
            presented.headers_mut().insert(name, value.clone());
        }
    }
    presented
}

/// The problem of a response. A plain-text error, for example from an axum extractor, becomes a problem as well.
async fn take_problem(mut response: Response) -> (Response, Option<Problem>) {
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
    let text = axum::body::to_bytes(body, MAX_TEXT_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    let problem = Problem::new(status, text);
    (Response::from_parts(head, Body::empty()), Some(problem))
}

/// Whether the client is a browser that shows a page. Programs, which read the API, `/metrics` or a stream, get JSON and a
/// status instead of a redirect to the sign-in page.
fn wants_html(uri: &Uri, headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    !uri.path().starts_with("/api/") && accepts.is_none_or(|accepts| accepts.contains("text/html"))
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

/// The response for a handler that panicked. The panic hook has logged the panic.
pub(crate) fn panic_response(_: Box<dyn Any + Send + 'static>) -> Response {
    Problem::internal("handler panicked").into_response()
}
